"""The only access to llama.cpp: the C functions of llama-cpp-python.

Only the package's plain function table is used, never its ``Llama`` class: that one
reuses one user's prefix for the next, is not thread-safe and puts prompts into its
exceptions. Importing this module

1. sets what the thread runtime and ggml read when they load,
2. loads the library, without the rest of its package, and checks
   version and every symbol used here,
3. drops everything the library would log.

An object here belongs to the thread that made it; any other thread is refused before it
reaches the library. Return codes become ``NativeError``.
"""

import codecs
import ctypes  # noqa: TID251 - a door
import os
import platform
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Final, NamedTuple, cast

# Read once, when the libraries load. With spinning threads, two-thread decoding is
# three times as fast as with sleeping ones, but endless spinning collapses on a busy
# machine: a short spin is best. And no debugger must be attached on abort.
for _name, _value in (
    ("GOMP_SPINCOUNT", "3000"),
    ("OMP_WAIT_POLICY", "passive"),
    ("GGML_NO_BACKTRACE", "1"),
):
    os.environ.setdefault(_name, _value)

# The package imports its ``Llama`` class and 80 modules that only that class needs. One
# is ``diskcache``, which unpickles what it finds in a folder (CVE-2025-69872); another
# opens a file for writing, which the engine's own process may not. So an empty module
# replaces them while the package loads; an application that uses them keeps them.
_UNUSED: Final = "llama_cpp.llama"
_used = sys.modules.get(_UNUSED)  # noqa: TID251 - a door
sys.modules[_UNUSED] = ModuleType(_UNUSED)  # noqa: TID251 - a door
try:
    import llama_cpp as package
finally:
    del sys.modules[_UNUSED]  # noqa: TID251 - a door
    if _used is not None:
        sys.modules[_UNUSED] = _used  # noqa: TID251 - a door
import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402
from llama_cpp import llama_cpp as lib  # noqa: E402

from curtilage.inference.batch import PREFILL_CHUNK  # noqa: E402
from curtilage.inference.errors import (  # noqa: E402
    EngineFailedError,
    EngineMemoryError,
    ModelFileError,
    NativeError,
    RequestError,
    WrongThreadError,
)
from curtilage.inference.sampling import SamplingSettings, choose_seed  # noqa: E402
from curtilage.inference.settings import FlashAttention, KVType  # noqa: E402
from curtilage.inference.state import (  # noqa: E402
    Layout,
    StateError,
    find_layout,
    moved,
    zero,
)

if TYPE_CHECKING:
    from llama_cpp.llama_cpp import llama_context_p, llama_memory_t

NO_GENERATOR: Final = "the model file is not a plain text generator"
NO_GPU: Final = (
    "the engine was built without GPU support, or finds no GPU that it may use; "
    "gpu_layers must be 0"
)
VERSION: Final = "0.3.36"
"""The layout of the library's structures is bound to this version."""

SYMBOLS: Final = (
    "ggml_abort_callback",
    "llama_adapter_lora_init",
    "llama_backend_init",
    "llama_batch_free",
    "llama_batch_init",
    "llama_context_default_params",
    "llama_decode",
    "llama_free",
    "llama_get_logits_ith",
    "llama_get_memory",
    "llama_init_from_model",
    "llama_log_callback",
    "llama_log_set",
    "llama_memory_clear",
    "llama_memory_seq_pos_max",
    "llama_memory_seq_rm",
    "llama_model_chat_template",
    "llama_model_default_params",
    "llama_model_free",
    "llama_model_get_vocab",
    "llama_model_has_encoder",
    "llama_model_load_from_file",
    "llama_model_meta_val_str",
    "llama_model_n_embd",
    "llama_model_n_head",
    "llama_model_n_ctx_train",
    "llama_print_system_info",
    "llama_sampler_accept",
    "llama_sampler_apply",
    "llama_sampler_chain_add",
    "llama_sampler_chain_default_params",
    "llama_sampler_chain_init",
    "llama_sampler_free",
    "llama_sampler_init_dist",
    "llama_sampler_init_grammar",
    "llama_sampler_init_greedy",
    "llama_sampler_init_logit_bias",
    "llama_sampler_init_penalties",
    "llama_sampler_init_temp",
    "llama_sampler_init_top_p",
    "llama_sampler_sample",
    "llama_set_abort_callback",
    "llama_set_adapter_cvec",
    "llama_set_adapters_lora",
    "llama_state_seq_get_data",
    "llama_state_seq_get_size",
    "llama_state_seq_set_data",
    "llama_supports_gpu_offload",
    "llama_token_to_piece",
    "llama_tokenize",
    "llama_vocab_bos",
    "llama_vocab_eos",
    "llama_vocab_get_add_bos",
    "llama_vocab_get_text",
    "llama_vocab_is_control",
    "llama_vocab_is_eog",
    "llama_vocab_n_tokens",
)

MAX_DRAWS: Final = 300
"""Of one token with a grammar. Each that fails leaves out a token or more; bytes that
only seem to fulfil the grammar are at most 256."""

ABORTED: Final = 2
"""``llama_decode`` was stopped by the abort callback."""

FIRST_TOKENS: Final = 2048
"""Of an empty context. It grows for a longer request and is made anew after it: a short
one need not wait until the largest is overwritten and made (docs/costs.md)."""
KV_BLOCK: Final = 32
"""Numbers that share a factor, in the quantised types."""
_KV_TYPES: Final[dict[KVType, int]] = {
    "f16": lib.GGML_TYPE_F16,
    "q8_0": lib.GGML_TYPE_Q8_0,
    "q4_0": lib.GGML_TYPE_Q4_0,
}
_FLASH: Final[dict[FlashAttention, int]] = {
    "auto": lib.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "on": lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}


def require_symbols(table: object, version: str) -> None:
    """Refuse a library that is not the one these calls were written for.

    Raises:
        ImportError: another version, or a function is missing; names them.
    """
    if version != VERSION:
        raise ImportError(f"llama-cpp-python {VERSION} is needed, not {version}")
    missing = [name for name in SYMBOLS if not hasattr(table, name)]
    if missing:
        raise ImportError(f"llama-cpp-python lacks {', '.join(missing)}")


require_symbols(lib, package.__version__)


def _drop_log(_level: int, _text: bytes, _data: ctypes.c_void_p) -> None:
    """Drop a line of the library's log; it may contain anything."""


# Before any other call. The module keeps the reference: else the library would call
# into freed memory.
LOG_CALLBACK: Final = lib.llama_log_callback(_drop_log)
NULL: Final = ctypes.c_void_p(0)
lib.llama_log_set(LOG_CALLBACK, NULL)


def check_cpu(machine: str, system_info: str) -> None:
    """Refuse an x86-64 build without AVX2.

    Such a build works, but three to seven times slower; a reproducible build produces
    one by accident.

    Args:
        machine: as ``platform.machine()`` names it.
        system_info: the library's list of its CPU features.

    Raises:
        EngineFailedError: AVX2 is missing.
    """
    if machine.lower() in {"x86_64", "amd64"} and "AVX2 = 1" not in system_info:
        raise EngineFailedError("the engine was built without AVX2; rebuild it")


def check_machine() -> None:
    """Check this build on this machine; see ``check_cpu``."""
    lib.llama_backend_init()
    check_cpu(platform.machine(), lib.llama_print_system_info().decode())


class _Owned:
    """Remembers its thread and refuses the others."""

    def __init__(self) -> None:
        self._owner = threading.get_ident()

    def _own(self) -> None:
        if threading.get_ident() != self._owner:
            raise WrongThreadError("a model belongs to the thread that loaded it")


class Model(_Owned):
    """A loaded model and its vocabulary.

    Args:
        path: the file; loaded into our own memory, so that later writes to the
            file do not change the model.
        adapter: a LoRA adapter's file, for every context of this model; or None.
        gpu_layers: how many layers a GPU computes.

    Raises:
        EngineFailedError: this build of the library cannot use a GPU.
        ModelFileError: the library refuses it, or its adapter for this model.
    """

    def __init__(
        self, path: str, *, adapter: str | None = None, gpu_layers: int = 0
    ) -> None:
        super().__init__()
        # Such a build would compute on the CPU, and say nothing.
        if gpu_layers and not lib.llama_supports_gpu_offload():
            raise EngineFailedError(NO_GPU)
        params = lib.llama_model_default_params()
        # Explicit: the default is all of them.
        params.n_gpu_layers = gpu_layers
        params.load_mode = lib.LLAMA_LOAD_MODE_NONE
        # A file with NaN weights is refused now, not in the middle of an answer.
        params.check_tensors = True
        loaded = lib.llama_model_load_from_file(os.fsencode(path), params)
        if not loaded:
            raise ModelFileError("the engine cannot load the model file")
        self.handle = loaded
        vocab = lib.llama_model_get_vocab(loaded)
        if vocab is None or lib.llama_model_has_encoder(loaded):
            self.free()
            raise ModelFileError(NO_GENERATOR)
        self.vocab = vocab
        self.vocabulary_size: int = lib.llama_vocab_n_tokens(vocab)
        self.trained_context: int = lib.llama_model_n_ctx_train(loaded)
        # Freed together with its model.
        self.adapter = (
            None
            if adapter is None
            else lib.llama_adapter_lora_init(loaded, os.fsencode(adapter))
        )
        if adapter is not None and not self.adapter:
            self.free()
            raise ModelFileError("the engine cannot load the adapter on this model")

    def free(self) -> None:
        """Free the model; nothing of it may be used afterwards."""
        self._own()
        lib.llama_model_free(self.handle)

    def metadata(self, key: str) -> str:
        """Return a scalar of the file's metadata as text; empty if absent."""
        self._own()
        buffer = ctypes.create_string_buffer(256)
        # Declared to take bytes, which are immutable; it writes into its argument.
        target = cast("bytes", buffer)
        size = lib.llama_model_meta_val_str(
            self.handle, key.encode(), target, len(buffer)
        )
        return buffer.value.decode(errors="replace") if size >= 0 else ""

    def head_widths(self) -> tuple[int, int]:
        """Return how many numbers a head has, of keys and of values."""
        usual = lib.llama_model_n_embd(self.handle) // lib.llama_model_n_head(
            self.handle
        )
        kind = self.metadata("general.architecture")
        own = (f"{kind}.attention.{each}_length" for each in ("key", "value"))
        keys, values = (int(self.metadata(each) or usual) for each in own)
        return keys, values

    def chat_template(self) -> str:
        """Return the file's chat template; empty if it has none."""
        self._own()
        source = lib.llama_model_chat_template(self.handle, None)
        return "" if source is None else source.decode(errors="replace")

    def bos(self) -> int | None:
        """Return the first-token marker, or None if the vocabulary has none."""
        self._own()
        token = int(lib.llama_vocab_bos(self.vocab))
        return token if token >= 0 else None

    def adds_bos(self) -> bool:
        """Whether every prompt must begin with the first-token marker."""
        self._own()
        return bool(lib.llama_vocab_get_add_bos(self.vocab))

    def marker_texts(self) -> tuple[str, str]:
        """Return the texts of the first-token and the end marker."""
        self._own()
        texts: list[str] = []
        for marker in (lib.llama_vocab_bos, lib.llama_vocab_eos):
            token = int(marker(self.vocab))
            # A vocabulary without it returns -1.
            known = token >= 0
            text = bytes(lib.llama_vocab_get_text(self.vocab, token)) if known else b""
            texts.append(text.decode(errors="replace"))
        return texts[0], texts[1]

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """Return the tokens of a text, without any marker added.

        Args:
            text: must have a UTF-8 form.
            special: allow control tokens; only for template text.

        Raises:
            NativeError: the library refuses; without the text.
        """
        self._own()
        data = text.encode()
        room = len(data) + 16
        tokens = (lib.llama_token * room)()
        try:
            count = lib.llama_tokenize(
                self.vocab, data, len(data), tokens, room, False, special
            )
            if count < 0:
                raise NativeError("llama_tokenize", count)
            return tokens[:count]
        finally:
            ctypes.memset(tokens, 0, ctypes.sizeof(tokens))

    def is_control(self, token: int) -> bool:
        """Whether a token controls the model, or ends an answer."""
        self._own()
        control = bool(lib.llama_vocab_is_control(self.vocab, token))
        return control or self.is_end(token)

    def is_end(self, token: int) -> bool:
        """Whether a token ends the answer."""
        self._own()
        return bool(lib.llama_vocab_is_eog(self.vocab, token))

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token; none for a control token."""
        self._own()
        buffer = ctypes.create_string_buffer(256)
        size = self._piece_into(token, buffer)
        if size < 0:
            # The negated size is the required one.
            buffer = ctypes.create_string_buffer(-size)
            size = self._piece_into(token, buffer)
        if size < 0:
            raise NativeError("llama_token_to_piece", size)
        return buffer.raw[:size]

    def _piece_into(self, token: int, buffer: "ctypes.Array[ctypes.c_char]") -> int:
        size = lib.llama_token_to_piece(
            self.vocab, token, buffer, len(buffer), 0, False
        )
        return int(size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How to draw tokens; see ``SamplingSettings``.

    Attributes:
        temperature: 0 is greedy.
        top_p: nucleus, of the probabilities after temperature.
        seed: 0 to 2^32 - 2.
        frequency_penalty: for each time that the answer has the token.
        presence_penalty: once, if it has it.
        remembered: of how many last tokens of the answer the penalties know.
        logit_bias: tokens of the vocabulary, and what is added to their logits.
        grammar: what the answer must fulfil, in the library's notation, with the rule
            ``root``; empty: any text.
    """

    temperature: float
    top_p: float
    seed: int
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    remembered: int = 0
    logit_bias: tuple[tuple[int, float], ...] = field(default=(), repr=False)
    grammar: str = field(default="", repr=False)


def draw_of(settings: SamplingSettings, grammar: str = "") -> Draw:
    """Return how to draw the tokens of one answer."""
    return Draw(
        temperature=settings.temperature,
        top_p=settings.top_p,
        seed=choose_seed(settings.seed),
        frequency_penalty=settings.frequency_penalty,
        presence_penalty=settings.presence_penalty,
        remembered=settings.max_tokens,
        logit_bias=settings.logit_bias,
        grammar=grammar,
    )


_CANDIDATE: Final = np.dtype(
    [("id", np.int32), ("logit", np.float32), ("p", np.float32)]
)
"""The library's ``llama_token_data``."""

_JUDGED: Final = (128, 1024)
"""How many tokens are compared with a grammar once the first draws do not fulfil it,
then all. To compare 49,152 takes longer than to decode a token of a small model."""


class Sampler(_Owned):
    """One request's chain of samplers; freed with the request.

    With a grammar a token is drawn without it first, which mostly fulfils it; only if
    not, others are compared with it, the likeliest first.

    Args:
        draw: how to draw.
        model: whose tokens.

    Raises:
        RequestError: the vocabulary lacks a token of the bias, or the library refuses
            the grammar.
    """

    def __init__(self, draw: Draw, model: Model) -> None:
        super().__init__()
        self._model = model
        if any(token >= model.vocabulary_size for token, _ in draw.logit_bias):
            raise RequestError("logit_bias names a token that the model lacks")
        self._grammar: lib.llama_sampler_p | None = None
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        if draw.grammar:
            self._grammar = lib.llama_sampler_init_grammar(
                model.vocab, draw.grammar.encode(), b"root"
            )
            # An empty one permits everything; the library's texts end at a NUL.
            if not self._grammar or "\0" in draw.grammar:
                raise RequestError("the library refuses the grammar of the answer")
        params = lib.llama_sampler_chain_default_params()
        self.handle = lib.llama_sampler_chain_init(params)
        self._add_changes(draw)
        if draw.temperature == 0:
            self._add(lib.llama_sampler_init_greedy())
            return
        self._add(lib.llama_sampler_init_temp(draw.temperature))
        if draw.top_p < 1:
            self._add(lib.llama_sampler_init_top_p(draw.top_p, 1))
        self._add(lib.llama_sampler_init_dist(draw.seed))

    def free(self) -> None:
        """Free the chain and the grammar."""
        self._own()
        lib.llama_sampler_free(self.handle)
        if self._grammar:
            lib.llama_sampler_free(self._grammar)
        # It may hold a part of a character.
        self._utf8.reset()

    def draw(self, context: "lib.llama_context_p", row: int) -> int:
        """Draw the next token from a row of a context's logits.

        Args:
            context: has decoded.
            row: as of ``llama_get_logits_ith``.

        Raises:
            RequestError: no token fulfils the grammar. The context is as before.
        """
        self._own()
        if self._grammar is None:
            return int(lib.llama_sampler_sample(self.handle, context, row))
        size = self._model.vocabulary_size
        logits = np.ctypeslib.as_array(lib.llama_get_logits_ith(context, row), (size,))
        candidates = np.zeros(size, _CANDIDATE)
        try:
            token = self._fitting(logits, candidates, self._grammar)
        finally:
            candidates[:] = 0
        # The library ends the program if the grammar does not permit the token; this
        # one it was asked about.
        lib.llama_sampler_accept(self.handle, token)
        lib.llama_sampler_accept(self._grammar, token)
        self._utf8.decode(self._model.piece(token))
        return token

    def _fitting(
        self,
        logits: npt.NDArray[np.float32],
        candidates: npt.NDArray[np.void],
        grammar: "lib.llama_sampler_p",
    ) -> int:
        """Return a token that fulfils the grammar.

        Tokens that do not are left out, and another one is drawn: among those that
        fulfil it each has its probability, however many others are left out before.
        """
        refused = np.zeros(len(logits), np.bool_)
        judged = iter(_JUDGED)
        for _ in range(MAX_DRAWS):
            candidates["id"] = np.arange(len(logits), dtype=np.int32)
            candidates["logit"] = np.where(refused, -np.inf, logits)
            selected = candidates[_apply(self.handle, candidates)]
            token = int(selected["id"])
            if np.isneginf(selected["logit"]):
                break
            if not _fulfil(grammar, np.array([token]))[0]:
                refused[token] = True
                # The likeliest others at once: few draws find one then.
                count = min(next(judged, len(logits)), len(logits))
                left = np.where(refused, -np.inf, logits)
                likely = np.argpartition(left, len(left) - count)[len(left) - count :]
                refused[likely[~_fulfil(grammar, likely)]] = True
            elif self._is_plain(token):
                return token
            else:
                refused[token] = True
        # A vocabulary may lack characters. Other requests of the context go on.
        raise RequestError("no token of the model fulfils the form of the answer")

    def _is_plain(self, token: int) -> bool:
        """Whether a token is the text that the grammar took it for.

        The grammar reads the names of control tokens, which an answer does not have,
        and takes some bytes for characters that are none.
        """
        if self._model.is_end(token):
            return True
        if self._model.is_control(token):
            return False
        state = self._utf8.getstate()
        try:
            self._utf8.decode(self._model.piece(token))
        except UnicodeDecodeError:
            return False
        finally:
            self._utf8.setstate(state)
        return True

    def _add_changes(self, draw: Draw) -> None:
        """Add what changes logits, before those that choose: the library's order."""
        size = self._model.vocabulary_size
        if draw.logit_bias:
            biases = (lib.llama_logit_bias * len(draw.logit_bias))(
                *(lib.llama_logit_bias(token, bias) for token, bias in draw.logit_bias)
            )
            self._add(lib.llama_sampler_init_logit_bias(size, len(biases), biases))
        if draw.frequency_penalty or draw.presence_penalty:
            self._add(
                lib.llama_sampler_init_penalties(
                    size,
                    draw.remembered,
                    1.0,
                    draw.frequency_penalty,
                    draw.presence_penalty,
                )
            )

    def _add(self, link: "lib.llama_sampler_p") -> None:
        lib.llama_sampler_chain_add(self.handle, link)


def _fulfil(
    grammar: "lib.llama_sampler_p", tokens: npt.NDArray[np.intp]
) -> npt.NDArray[np.bool_]:
    """Return which of the tokens the grammar permits next."""
    candidates = np.zeros(len(tokens), _CANDIDATE)
    candidates["id"] = tokens
    _apply(grammar, candidates)
    # In the order of the tokens: this sampler sorts nothing.
    fulfil = ~np.isneginf(candidates["logit"])
    candidates[:] = 0
    return fulfil


def _apply(sampler: "lib.llama_sampler_p", candidates: npt.NDArray[np.void]) -> int:
    """Apply a sampler; return the place of the token that it selected."""
    data = ctypes.cast(candidates.ctypes.data, lib.llama_token_data_p)
    array = lib.llama_token_data_array(data, len(candidates), -1, False)
    one = (lib.llama_token_data_array * 1)(array)
    lib.llama_sampler_apply(sampler, one)
    return int(one[0].selected)


class Row(NamedTuple):
    """One token to be decoded.

    Attributes:
        token: of the vocabulary.
        position: in its sequence.
        sequence: of the context.
        sampled: a token is to be drawn after it, so its logits are computed.
    """

    token: int
    position: int
    sequence: int
    sampled: bool


class Saved:
    """The state of one sequence; its only use is to continue from it.

    Args:
        size: in bytes.
        used: how many positions it holds.
    """

    def __init__(self, size: int, used: int) -> None:
        self.buffer = (ctypes.c_uint8 * size)()
        self.used = used

    @property
    def view(self) -> memoryview:
        """The bytes, to be read and written."""
        return memoryview(self.buffer).cast("B")

    def wipe(self) -> None:
        """Overwrite it."""
        ctypes.memset(self.buffer, 0, ctypes.sizeof(self.buffer))


class Context(_Owned):
    """The memory of several conversations, each in a sequence of its own.

    Sequences share no cell: each has a stream of keys and values of its own. While only
    sequence 0 is used, the context has no other; ``open`` makes room for all of them,
    and for longer ones than ``FIRST_TOKENS``.

    Args:
        model: outlives the context.
        tokens: largest size of each sequence.
        threads: threads of one decode.
        least_tokens: if memory is short, halves of the size are tried, down to
            this; None: no smaller one is accepted.
        sequences: how many there may be.
        kv_type: see ``EngineSettings``.
        flash_attention: likewise.

    Attributes:
        size: how many tokens a sequence may hold; may change with each ``clear``.

    Raises:
        EngineFailedError: the model's keys or values cannot be quantised.
        EngineMemoryError: the library cannot make it; the only known reason is a
            lack of memory.
    """

    def __init__(
        self,
        model: Model,
        *,
        tokens: int,
        threads: int,
        least_tokens: int | None = None,
        sequences: int = 1,
        kv_type: KVType = "f16",
        flash_attention: FlashAttention = "auto",
    ) -> None:
        super().__init__()
        if kv_type != "f16" and any(each % KV_BLOCK for each in model.head_widths()):
            raise EngineFailedError(
                f"the model's keys cannot be held as {kv_type}: use kv_type f16"
            )
        self._kv_type: KVType = kv_type
        self._flash: FlashAttention = flash_attention
        self.size = self._most = self._cells = tokens
        self._least = tokens if least_tokens is None else min(tokens, least_tokens)
        self._sequences = sequences
        self._model = model
        self._threads = threads
        self._vocabulary_size = model.vocabulary_size
        self._room = 1
        self._used = [0] * sequences
        self._with_logits: list[int] = []
        self._touched = self._torn = False
        self._gone = False
        self._cancelled: Callable[[], bool] = _never
        # The library calls it from this thread, while it reads a prompt.
        self._on_abort = lib.ggml_abort_callback(self._asked)
        self._at_once = lib.ggml_abort_callback(_always)
        # Each time from the full size on: memory may be available again.
        self._handle, self._memory = self._made_with_less()
        self._batch = lib.llama_batch_init(PREFILL_CHUNK, 0, 1)
        self._tokens = np.ctypeslib.as_array(self._batch.token, (PREFILL_CHUNK,))

    def _made_with_less(self) -> "tuple[llama_context_p, llama_memory_t]":
        self.size, cells = self._most, min(self._most, FIRST_TOKENS)
        while True:
            try:
                made = self._made(1, cells)
            except EngineMemoryError:
                if cells // 2 < self._least:
                    raise
                self.size = cells = cells // 2
            else:
                self._room, self._cells = 1, cells
                return made

    def _made(self, room: int, cells: int) -> "tuple[llama_context_p, llama_memory_t]":
        params: lib.llama_context_params = lib.llama_context_default_params()
        params.n_batch = params.n_ubatch = PREFILL_CHUNK
        params.n_ctx = cells * room
        params.n_seq_max = room
        # A stream for each sequence: no cell of one is next to another's, and none is
        # ever read for another one.
        params.kv_unified = False
        params.type_k = params.type_v = _KV_TYPES[self._kv_type]
        params.flash_attn_type = _FLASH[self._flash]
        # Explicit: the default is half the CPUs.
        params.n_threads = params.n_threads_batch = self._threads
        params.no_perf = True
        made = lib.llama_init_from_model(self._model.handle, params)
        if not made:
            raise EngineMemoryError(cells)
        memory = lib.llama_get_memory(made)
        if memory is None:
            lib.llama_free(made)
            raise NativeError("llama_get_memory", 0)
        if self._model.adapter is not None:
            # To each new context: one that replaced another would else silently answer
            # without it.
            adapters = (ctypes.POINTER(ctypes.c_void_p) * 1)(self._model.adapter)
            scales = (ctypes.c_float * 1)(1.0)
            code = lib.llama_set_adapters_lora(  # pyright: ignore[reportUnknownMemberType]
                made, adapters, 1, scales
            )
            if code != 0:
                lib.llama_free(made)
                raise NativeError("llama_set_adapters_lora", code)
        return made, memory

    def free(self) -> None:
        """Free the context; the kernel gets its memory back."""
        self._own()
        lib.llama_batch_free(self._batch)
        self._free_handle()

    def _free_handle(self) -> None:
        # Once: if ``clear`` could not make another, it is freed already.
        if not self._gone:
            self._gone = True
            lib.llama_free(self._handle)

    def used(self, sequence: int = 0) -> int:
        """Return how many positions of a sequence hold something."""
        self._own()
        if sequence >= self._room:
            return 0
        return int(lib.llama_memory_seq_pos_max(self._memory, sequence)) + 1

    def open(self, sequence: int, *, tokens: int = 1) -> None:
        """Make room for a sequence.

        Args:
            sequence: its number.
            tokens: how many it will hold, at most ``size``.

        Raises:
            EngineMemoryError: there is too little memory; the others stay as they are.
            NativeError: the library failed, or there is no such sequence.
        """
        self._own()
        if not 0 <= sequence < self._sequences or tokens > self.size:
            raise NativeError("llama_init_from_model", sequence)
        cells = self._cells
        while cells < tokens:
            # Doubled: requests that are a little longer each do not replace it each.
            cells = min(2 * cells, self.size)
        room = self._room if sequence < self._room else self._sequences
        if (room, cells) != (self._room, self._cells):
            self._replace(room, cells)

    def renew(self) -> None:
        """Replace the context, and move each sequence to the new one.

        The library's threads have buffers of their own, which ``flush`` does not reach:
        numbers computed from sequences that have ended may be left in them. They are
        freed. What continues is not changed by it.

        Raises:
            EngineMemoryError: there is too little memory; nothing changed.
            NativeError: the library failed.
        """
        self._own()
        self._replace(self._room, self._cells)

    def decode(
        self, rows: Sequence[Row], *, cancelled: Callable[[], bool] | None = None
    ) -> bool:
        """Read tokens; False when it was stopped.

        Args:
            rows: at most ``PREFILL_CHUNK``; sequences ascending, and in each the
                positions that follow those it holds.
            cancelled: called hundreds of times; must be quick and raise nothing. If
                it stops the decode, all sequences must be cleared.

        Raises:
            NativeError: the library failed.
        """
        self._own()
        self._refuse(rows)
        if cancelled is None:
            return self._decode(rows) != ABORTED
        self._cancelled = cancelled
        lib.llama_set_abort_callback(self._handle, self._on_abort, NULL)
        try:
            return self._decode(rows) != ABORTED
        finally:
            # Removed again: else the context would keep a reference to the caller.
            lib.llama_set_abort_callback(self._handle, lib.ggml_abort_callback(), NULL)
            self._cancelled = _never

    def sample(self, sampler: Sampler, row: int) -> int:
        """Draw the next token after a row of the last ``decode``.

        Raises:
            NativeError: that row was not to be sampled.
        """
        self._own()
        if row not in self._with_logits:
            raise NativeError("llama_sampler_sample", row)
        return sampler.draw(self._handle, row)

    def logits(self, row: int) -> npt.NDArray[np.float32]:
        """View the logits of a row of the last ``decode``; valid until the next call.

        Raises:
            NativeError: that row was not to be sampled.
        """
        self._own()
        if row not in self._with_logits:
            raise NativeError("llama_get_logits_ith", row)
        values = lib.llama_get_logits_ith(self._handle, row)
        return np.ctypeslib.as_array(values, (self._vocabulary_size,))

    def drop_logits(self) -> None:
        """Overwrite the logits of the last ``decode``."""
        self._own()
        for row in self._with_logits:
            self.logits(row)[:] = 0
        self._with_logits = []

    def save(self, sequence: int) -> Saved:
        """Save a sequence; logits are not part of it.

        Raises:
            NativeError: the library refuses.
        """
        self._own()
        size = int(lib.llama_state_seq_get_size(self._handle, _number(sequence)))
        saved = Saved(size, self._used[sequence])
        if (
            lib.llama_state_seq_get_data(
                self._handle, saved.buffer, size, _number(sequence)
            )
            != size
        ):
            saved.wipe()
            raise NativeError("llama_state_seq_get_data", size)
        return saved

    def restore(self, saved: Saved, sequence: int) -> None:
        """Continue from ``save`` in an empty sequence.

        Raises:
            NativeError: the library refuses.
        """
        self._own()
        self._touched = True  # cancelled right after it, it must be cleared
        self._restore_into(self._handle, self._room, saved, sequence)
        self._used[sequence] = saved.used

    def erase(self, sequence: int) -> None:
        """Overwrite keys and values of a sequence; the others continue.

        What the library keeps in other buffers, ``flush`` overwrites.

        Raises:
            NativeError: it could not be done completely; the context must be cleared.
        """
        self._own()
        if self._torn:
            # It may hold more than it knows of.
            raise NativeError("llama_decode", ABORTED)
        if not self._used[sequence]:
            return
        self._tokens[:] = 0
        saved = self.save(sequence)
        try:
            zero(saved.view, _layout(saved))
            # Into the same cells: the sequence's stream has none of another one.
            size = ctypes.sizeof(saved.buffer)
            if (
                lib.llama_state_seq_set_data(
                    self._handle, saved.buffer, size, _number(sequence)
                )
                != size
            ):
                raise NativeError("llama_state_seq_set_data", size)
            if not lib.llama_memory_seq_rm(self._memory, sequence, -1, -1):
                raise NativeError("llama_memory_seq_rm", sequence)
        finally:
            saved.wipe()
        self._used[sequence] = 0

    def flush(self, sequence: int) -> None:
        """Overwrite the library's copies of the tokens read last; the others continue.

        It keeps a batch's tokens until the next batch of the same length, and has them
        as the input of its computation, too. So a whole batch of another token is read,
        up to the first operation, and the buffers of the computation are made anew.

        Args:
            sequence: an erased one; it is empty afterwards, too.

        Raises:
            NativeError: it holds something, or the library failed; the context must be
                cleared.
        """
        self._own()
        if self._torn or not 0 <= sequence < self._room or self._used[sequence]:
            raise NativeError("llama_decode", ABORTED)
        # The library has none afterwards.
        self.drop_logits()
        # There is no control vector. To remove it nevertheless has the library free and
        # allocate those buffers, which no function of it overwrites.
        none = ctypes.POINTER(ctypes.c_float)()
        lib.llama_set_adapter_cvec(self._handle, none, 0, 0, 0, 0)
        count = min(PREFILL_CHUNK, self._cells)
        self._fill([Row(0, at, sequence, False) for at in range(count)])
        lib.llama_set_abort_callback(self._handle, self._at_once, NULL)
        try:
            code = int(lib.llama_decode(self._handle, self._batch))
        finally:
            lib.llama_set_abort_callback(self._handle, lib.ggml_abort_callback(), NULL)
        # A GPU does not ask whether to stop. The others' keys and values are complete
        # either way: of this sequence alone something was to be read.
        if code not in (0, ABORTED):
            self._torn = True
            raise NativeError("llama_decode", code)
        if not lib.llama_memory_seq_rm(self._memory, sequence, -1, -1):
            raise NativeError("llama_memory_seq_rm", sequence)

    def clear(self) -> None:
        """Erase all sequences completely: keys, values, tokens, logits, and all copies.

        The library keeps a prompt's last tokens and its results for them in buffers of
        its own, which no function of it overwrites. So the context is freed and
        replaced by an empty one.

        Raises:
            EngineMemoryError: no other could be made; this one must not be used.
        """
        self._own()
        if not self._touched or self._gone:
            # If the last call could not make another, there is nothing to check.
            return
        self._overwrite()
        self._used = [0] * self._sequences
        self._free_handle()
        self._handle, self._memory = self._made_with_less()
        self._gone = self._touched = self._torn = False

    def _overwrite(self) -> None:
        self.drop_logits()
        self._tokens[:] = 0
        lib.llama_memory_clear(self._memory, True)

    def _replace(self, room: int, cells: int) -> None:
        # First the new one: without memory for it, everything continues in the old one.
        handle, memory = self._made(room, cells)
        try:
            for sequence in [at for at, used in enumerate(self._used) if used]:
                saved = self.save(sequence)
                try:
                    self._restore_into(handle, room, saved, sequence)
                finally:
                    saved.wipe()
        except BaseException:
            lib.llama_free(handle)
            raise
        self._overwrite()
        self._free_handle()
        self._handle, self._memory, self._gone = handle, memory, False
        self._room, self._cells = room, cells
        self._touched = True  # its size is not that of an empty context

    def _restore_into(
        self, handle: "llama_context_p", room: int, saved: Saved, sequence: int
    ) -> None:
        state = moved(saved.view, _layout(saved), streams=room, to=sequence)
        size = len(state)
        buffer = (ctypes.c_uint8 * size).from_buffer(state)
        try:
            if (
                lib.llama_state_seq_set_data(handle, buffer, size, _number(sequence))
                != size
            ):
                raise NativeError("llama_state_seq_set_data", size)
        finally:
            ctypes.memset(buffer, 0, size)

    def _asked(self, _data: object) -> bool:
        return self._cancelled()

    def _refuse(self, rows: Sequence[Row]) -> None:
        # The library does not check: the batch has room for so many, and beyond it is
        # other memory.
        if not 1 <= len(rows) <= PREFILL_CHUNK:
            raise NativeError("llama_decode", len(rows))
        held, last = self._used.copy(), 0
        for row in rows:
            if (
                not last <= row.sequence < self._room
                or row.position != held[row.sequence]
                or row.position >= self._cells
            ):
                raise NativeError("llama_decode", len(rows))
            held[row.sequence] += 1
            last = row.sequence

    def _decode(self, rows: Sequence[Row]) -> int:
        # Before the call: if it fails half way, what it has read is cleared too.
        self._touched = True
        self._with_logits = []
        self._fill(rows)
        code = int(lib.llama_decode(self._handle, self._batch))
        self._torn = code != 0
        if code not in (0, ABORTED):
            raise NativeError("llama_decode", code)
        if code == 0:
            for row in rows:
                self._used[row.sequence] += 1
            self._with_logits = [at for at, row in enumerate(rows) if row.sampled]
        return code

    def _fill(self, rows: Sequence[Row]) -> None:
        batch = self._batch
        batch.n_tokens = len(rows)
        for index, row in enumerate(rows):
            batch.token[index] = row.token
            batch.pos[index] = row.position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = row.sequence
            batch.logits[index] = row.sampled


def _number(sequence: int) -> ctypes.c_int32:
    return ctypes.c_int32(sequence)


def _layout(saved: Saved) -> Layout:
    try:
        return find_layout(saved.view, cells=saved.used)
    except StateError:
        raise NativeError("llama_state_seq_get_data", len(saved.buffer)) from None


def _never() -> bool:
    return False


def _always(_data: object) -> bool:
    return True
