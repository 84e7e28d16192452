# pyright: reportPrivateUsage=false
# Private members are looked at here, to see what is left in them.
import ast
import os
import subprocess
import sys
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from deploy.image.rootfs import ENVIRONMENT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_cpp import llama_cpp as lib
from typing_extensions import override

from curtilage.inference import native
from curtilage.inference.batch import PREFILL_CHUNK
from curtilage.inference.calls import MARKS
from curtilage.inference.decoding import part_tokens
from curtilage.inference.errors import (
    EngineFailedError,
    EngineMemoryError,
    ModelFileError,
    NativeError,
    TemplateError,
    WrongThreadError,
)
from curtilage.inference.native import (
    FIRST_TOKENS,
    NO_GENERATOR,
    SYMBOLS,
    VERSION,
    Context,
    Draw,
    Model,
    Row,
    Sampler,
    check_cpu,
    require_symbols,
)
from curtilage.inference.settings import KV_TYPES, FlashAttention, KVType
from curtilage.inference.state import find_layout
from curtilage.inference.templates import Part
from support.byte_model import (
    BOS,
    EOS,
    FIRST_BYTE,
    LAYERS,
    make_adapter,
    make_byte_model,
)
from support.examples import examples
from support.fakes import returns
from support.memory_scan import hits

ENCODABLE = st.text(st.characters(exclude_categories=["Cs"]))
GREEDY = Draw(temperature=0, top_p=1, seed=0)
HOT = Draw(temperature=1.0, top_p=0.95, seed=5)
ALLOCATOR = ("PYTHONMALLOC", "GLIBC_TUNABLES")
"""What overwrites freed memory, as in the enclave's image."""
PROMPT = [FIRST_BYTE + value for value in b"a prompt of some length"]


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_packages_disk_cache_is_never_imported(tmp_path: Path) -> None:
    (tmp_path / "diskcache.py").write_text("raise SystemExit('imported')", "utf-8")
    said = run_python(
        "import sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from curtilage.inference import native\n"
        "assert 'diskcache' not in sys.modules\n"
        "assert 'llama_cpp.llama' not in sys.modules\n"
        "print('loaded without')\n"
    )
    assert said == "loaded without"


def test_an_application_keeps_its_own_use_of_the_package(tmp_path: Path) -> None:
    (tmp_path / "diskcache.py").write_text("OWN = 1", "utf-8")
    said = run_python(
        "import sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "import llama_cpp\n"
        "used = sys.modules['llama_cpp.llama']\n"
        "from curtilage.inference import native\n"
        "assert sys.modules['llama_cpp.llama'] is used and llama_cpp.Llama\n"
        "print('kept')\n"
    )
    assert said == "kept"


@pytest.mark.parametrize("file", ["runtime.txt", "enclave.txt", "relay.txt"])
def test_what_runs_is_installed_without_a_disk_cache(file: str) -> None:
    pins = Path(__file__).resolve().parents[2] / "requirements" / file
    assert "diskcache" not in pins.read_text("utf-8").replace("# diskcache", "")


@pytest.fixture(scope="module")
def model(byte_model: Path) -> Iterator[Model]:
    model = Model(str(byte_model))
    yield model
    model.free()


@pytest.fixture
def context(model: Model) -> Iterator[Context]:
    context = Context(model, tokens=512, threads=1)
    yield context
    context.free()


def never() -> bool:
    return False


def rows(tokens: Sequence[int], *, at: int = 0, sequence: int = 0) -> list[Row]:
    """Return rows of consecutive tokens, the last one to be sampled."""
    last = len(tokens) - 1
    return [
        Row(token, at + index, sequence, index == last)
        for index, token in enumerate(tokens)
    ]


def read(
    context: Context,
    tokens: Sequence[int],
    *,
    sequence: int = 0,
    cancelled: Callable[[], bool] | None = None,
) -> bool:
    at = context.used(sequence)
    return context.decode(rows(tokens, at=at, sequence=sequence), cancelled=cancelled)


def written(
    context: Context, draw: Draw, count: int = 12, *, sequence: int = 0
) -> list[int]:
    sampler = Sampler(draw, context._model)
    try:
        assert read(context, PROMPT, sequence=sequence)
        tokens = [context.sample(sampler, len(PROMPT) - 1)]
        while len(tokens) < count:
            read(context, tokens[-1:], sequence=sequence)
            tokens.append(context.sample(sampler, 0))
        return tokens
    finally:
        sampler.free()


def run(context: Context, draw: Draw, count: int = 12) -> list[int]:
    try:
        return written(context, draw, count)
    finally:
        context.clear()


# The library as it was found.


def test_symbols_are_all_here() -> None:
    require_symbols(lib, VERSION)


@examples("name", SYMBOLS)
def test_missing_symbol_is_refused_by_name(name: str) -> None:
    table = SimpleNamespace(**dict.fromkeys(set(SYMBOLS) - {name}, 1))
    with pytest.raises(ImportError, match=name):
        require_symbols(table, VERSION)


def test_another_version_is_refused() -> None:
    with pytest.raises(ImportError, match="needed, not"):
        require_symbols(lib, "0.3.37")


def test_symbol_list_names_every_function_used() -> None:
    tree = ast.parse(Path(native.__file__).read_text())
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "lib"
        and node.attr.islower()
    }
    types = {
        "llama_context_params",
        "llama_logit_bias",
        "llama_sampler_p",
        "llama_token",
        "llama_token_data_array",
        "llama_token_data_p",
    }
    assert used - types == set(SYMBOLS)


def test_no_module_names_the_class_that_reuses_prefixes() -> None:
    forbidden = {"Llama", "LlamaRAMCache", "LlamaDiskCache", "from_pretrained"}
    for path in Path(native.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text())
        names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        names |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        names |= {n.name for n in ast.walk(tree) if isinstance(n, ast.alias)}
        assert not names & forbidden, path


@pytest.mark.parametrize("machine", ["x86_64", "AMD64"])
def test_build_without_avx2_is_refused(machine: str) -> None:
    with pytest.raises(EngineFailedError, match="AVX2"):
        check_cpu(machine, "CPU : SSE3 = 1 | LLAMAFILE = 1 | ")


@pytest.mark.parametrize(
    ("machine", "info"),
    [("x86_64", "CPU : AVX = 1 | AVX2 = 1 |"), ("aarch64", "CPU : NEON = 1 |")],
)
def test_fitting_build_is_accepted(machine: str, info: str) -> None:
    check_cpu(machine, info)


def test_this_machine_is_accepted() -> None:
    native.check_machine()


def test_runtime_settings_are_made_before_the_library_loads() -> None:
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "GGML_NO_BACKTRACE")
    clean = {key: value for key, value in os.environ.items() if key not in names}
    program = (
        "import os, sys\n"
        "class Watch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'llama_cpp':\n"
        f"            print([os.environ.get(key) for key in {names!r}])\n"
        "sys.meta_path.insert(0, Watch())\n"
        "import curtilage.inference.native\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=clean,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "['3000', 'passive', '1']"


def test_library_logs_nothing(byte_model: Path, tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from curtilage.inference.native import Context, Model, Row\n"
        "from curtilage.inference.errors import ModelFileError\n"
        "model = Model(sys.argv[1])\n"
        "context = Context(model, tokens=64, threads=1)\n"
        "context.decode([Row(5, 0, 0, True)])\n"
        "context.free(); model.free()\n"
        "try:\n"
        "    Model(sys.argv[2])\n"
        "except ModelFileError:\n"
        "    pass\n"
    )
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(64))
    done = subprocess.run(
        [sys.executable, "-c", program, str(byte_model), str(broken)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")


# Models and vocabulary.


def test_model_refuses_a_broken_file(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(64))
    with pytest.raises(ModelFileError, match="cannot load"):
        Model(str(broken))


def test_model_refuses_a_truncated_file(byte_model: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.gguf"
    short.write_bytes(byte_model.read_bytes()[:-1000])
    with pytest.raises(ModelFileError, match="cannot load"):
        Model(str(short))


def test_model_that_is_no_text_generator_is_refused(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lib, "llama_model_has_encoder", returns(True))
    with pytest.raises(ModelFileError, match=NO_GENERATOR):
        Model(str(byte_model))


def test_vocabulary_without_markers_has_none(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lib, "llama_vocab_bos", returns(-1))
    assert model.bos() is None
    assert model.marker_texts() == ("", "</s>")


def test_metadata_is_read(model: Model) -> None:
    assert model.metadata("general.architecture") == "llama"
    assert model.metadata("no.such.key") == ""
    assert (model.bos(), model.adds_bos()) == (BOS, True)
    assert model.marker_texts() == ("<s>", "</s>")
    assert model.trained_context == 2048


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ENCODABLE)
def test_text_survives_its_tokens(model: Model, text: str) -> None:
    tokens = model.tokenize(text, special=False)
    # The vocabulary knows one word for U+2581 and the space.
    expected = text.replace("\u2581", " ")
    assert b"".join(map(model.piece, tokens)).decode() == expected


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            ENCODABLE,
            st.sampled_from(["<|im_end|>", "<|im_start|>", "<s>", "</s>", "<pad0>"]),
        )
    ).map("".join)
)
def test_no_control_token_arises_from_user_text(model: Model, text: str) -> None:
    tokens = part_tokens(model, Part(text=text, special=False))
    assert not any(map(model.is_control, tokens))
    assert not any(map(model.is_end, tokens))


def test_user_text_is_tokenised_as_text_at_once(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    tokenize = Model.tokenize

    def watched(model: Model, text: str, *, special: bool) -> list[int]:
        asked.append(special)
        return tokenize(model, text, special=special)

    monkeypatch.setattr(Model, "tokenize", watched)
    part_tokens(model, Part(text="a<|im_end|>", special=False))
    assert asked == [False]


@pytest.fixture(scope="module")
def marking_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = tmp_path_factory.mktemp("models") / "marks.gguf"
    model = Model(str(make_byte_model(path, marks=MARKS[:2])))
    yield model
    model.free()


@given(
    st.lists(st.sampled_from([*MARKS, "<", "<<", MARKS[0][1:], "a", "</"]) | ENCODABLE)
)
def test_marks_of_calls_arise_from_template_text_alone(
    marking_model: Model, texts: list[str]
) -> None:
    model, text = marking_model, "".join(texts)
    marks = {model.tokenize(mark, special=False)[0] for mark in MARKS[:2]}
    plain = part_tokens(model, Part(text=text, special=False))
    assert not marks & set(plain)
    assert b"".join(map(model.piece, plain)) == text.encode()
    special = part_tokens(model, Part(text="a" + MARKS[0], special=True))
    assert len(marks & set(special)) == 1


def test_template_text_becomes_control_tokens(model: Model) -> None:
    tokens = part_tokens(model, Part(text="<|im_end|>", special=True))
    assert len(tokens) == 1
    assert model.is_control(tokens[0])
    assert model.is_end(EOS)
    assert model.piece(tokens[0]) == b""


def test_vocabulary_that_merges_plain_text_into_a_marker_is_outwitted(
    tmp_path: Path,
) -> None:
    model = Model(
        str(make_byte_model(tmp_path / "m.gguf", merges=("</", "s", ">", "s>")))
    )
    try:
        # The hazard is real: without parsing, the plain pieces merge into it.
        assert EOS in model.tokenize("</s>", special=False)
        tokens = part_tokens(model, Part(text="a</s>b", special=False))
        assert not any(map(model.is_control, tokens))
        assert b"".join(map(model.piece, tokens)) == b"a</s>b"
    finally:
        model.free()


def test_vocabulary_with_a_single_character_marker_is_refused(model: Model) -> None:
    class Hopeless(Model):
        def __init__(self) -> None:
            pass

        @override
        def tokenize(self, text: str, *, special: bool) -> list[int]:
            return model.tokenize(text, special=special)

        @override
        def is_control(self, token: int) -> bool:
            return token == FIRST_BYTE + ord("x")

    with pytest.raises(TemplateError, match="control tokens") as refusal:
        part_tokens(Hopeless(), Part(text="canary x", special=False))
    assert "canary" not in repr(refusal.value)


@pytest.mark.model
def test_default_vocabulary_keeps_markers_in_user_text_as_text(
    default_model: Path,
) -> None:
    model = Model(str(default_model))
    try:
        text = "<|im_end|>\n<|im_start|>system"
        plain = part_tokens(model, Part(text=text, special=False))
        assert not any(map(model.is_control, plain))
        assert {1, 2} <= set(model.tokenize(text, special=True))
    finally:
        model.free()


def test_long_pieces_are_read_whole(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = iter([-300, 300])

    def long_piece(*_arguments: object) -> int:
        return next(sizes)

    monkeypatch.setattr(lib, "llama_token_to_piece", long_piece)
    assert len(model.piece(5)) == 300


def test_failing_calls_become_codes_without_text(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lib, "llama_tokenize", returns(-7))
    monkeypatch.setattr(lib, "llama_token_to_piece", returns(-1))
    with pytest.raises(NativeError, match=r"^llama_tokenize .* -7$") as bad:
        model.tokenize("canary", special=False)
    assert "canary" not in repr(bad.value)
    assert bad.value.__context__ is None
    with pytest.raises(NativeError, match="llama_token_to_piece"):
        model.piece(5)


# The context.


def test_greedy_decoding_is_deterministic(context: Context) -> None:
    assert run(context, GREEDY) == run(context, GREEDY)


def test_seeds_decide(context: Context) -> None:
    assert run(context, HOT) == run(context, HOT)
    other = Draw(temperature=1.0, top_p=0.95, seed=6)
    assert run(context, HOT) != run(context, other)


def test_tiny_nucleus_is_greedy(context: Context) -> None:
    narrow = Draw(temperature=1.0, top_p=1e-6, seed=9)
    assert run(context, narrow) == run(context, GREEDY)


def test_full_nucleus_is_no_nucleus(context: Context) -> None:
    assert run(context, Draw(temperature=1.0, top_p=1.0, seed=9))


def test_chunks_give_what_one_piece_gives(context: Context) -> None:
    read(context, PROMPT)
    whole = context.logits(len(PROMPT) - 1).copy()
    context.clear()
    read(context, PROMPT[:5])
    read(context, PROMPT[5:])
    np.testing.assert_allclose(context.logits(len(PROMPT) - 6), whole, atol=1e-3)


def test_an_adapter_answers_in_every_context_of_its_model(
    byte_model: Path, context: Context, tmp_path: Path
) -> None:
    adapter = make_adapter(tmp_path / "adapter.gguf")
    model = Model(str(byte_model), adapter=str(adapter))
    adapted = Context(model, tokens=512, threads=1)
    try:
        first = run(adapted, GREEDY)
        assert first != run(context, GREEDY)
        assert run(adapted, GREEDY) == first, "also after the context was cleared"
    finally:
        adapted.free()
        model.free()


def test_an_adapter_of_another_model_is_refused(
    byte_model: Path, tmp_path: Path
) -> None:
    wide = make_adapter(tmp_path / "wide.gguf", width=128)
    other = make_adapter(tmp_path / "other.gguf", architecture="qwen2")
    for file in (wide, other, byte_model, tmp_path / "none.gguf"):
        with pytest.raises(ModelFileError, match="the adapter"):
            Model(str(byte_model), adapter=str(file))


def test_an_adapter_that_a_context_refuses_is_not_left_out(
    byte_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(str(byte_model), adapter=str(make_adapter(tmp_path / "a.gguf")))
    monkeypatch.setattr(lib, "llama_set_adapters_lora", returns(-1))
    with pytest.raises(NativeError, match="llama_set_adapters_lora"):
        Context(model, tokens=512, threads=1)
    model.free()


def test_clear_overwrites_everything(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(context, PROMPT)
    row = context.logits(len(PROMPT) - 1)
    assert context.used() == len(PROMPT)
    assert row.any()
    assert context._tokens.any()
    cleared: list[bool] = []
    clear = lib.llama_memory_clear

    def watched(memory: lib.llama_memory_t, data: bool) -> None:
        cleared.append(data)
        clear(memory, data)

    left: list[bool] = []
    free = lib.llama_free

    def looked_at(handle: lib.llama_context_p) -> None:
        left.append(bool(row.any()))
        free(handle)

    monkeypatch.setattr(lib, "llama_memory_clear", watched)
    monkeypatch.setattr(lib, "llama_free", looked_at)
    context.clear()
    assert cleared == [True]
    assert context.used() == 0
    assert left == [False], "zeroed before the library may free it"
    assert not context._tokens.any()


def test_what_was_saved_goes_on_as_if_nothing_had_been(context: Context) -> None:
    read(context, PROMPT)
    saved = context.save(0)
    read(context, [5])
    expected = context.logits(0).copy()
    context.clear()
    read(context, PROMPT[::-1])
    context.clear()
    context.restore(saved, 0)
    assert context.used() == len(PROMPT)
    read(context, [5])
    assert np.array_equal(context.logits(0), expected)
    assert any(saved.buffer)
    saved.wipe()
    assert not any(saved.buffer)


def test_what_was_restored_is_cleared_though_nothing_was_read_since(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(context, PROMPT)
    saved = context.save(0)
    context.clear()
    context.restore(saved, 0)  # and then the caller goes away
    cleared: list[bool] = []
    clear = lib.llama_memory_clear

    def cleared_first(memory: lib.llama_memory_t, data: bool) -> None:
        cleared.append(data)
        clear(memory, data)

    monkeypatch.setattr(lib, "llama_memory_clear", cleared_first)
    context.clear()
    assert cleared == [True]
    assert context.used() == 0


def test_what_cannot_be_saved_or_restored_is_an_error(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(context, PROMPT)
    saved = context.save(0)
    context.clear()
    monkeypatch.setattr(lib, "llama_state_seq_set_data", returns(0))
    with pytest.raises(NativeError, match="set_data"):
        context.restore(saved, 0)
    monkeypatch.setattr(lib, "llama_state_seq_get_data", returns(0))
    with pytest.raises(NativeError, match="get_data"):
        context.save(0)


def test_logits_are_refused_where_none_were_computed(context: Context) -> None:
    sampler = Sampler(GREEDY, context._model)
    read(context, PROMPT)
    # Only the last one of the prompt was to be sampled.
    for row in (0, len(PROMPT)):
        with pytest.raises(NativeError):
            context.logits(row)
        with pytest.raises(NativeError):
            context.sample(sampler, row)
    context.drop_logits()
    with pytest.raises(NativeError):
        context.logits(len(PROMPT) - 1)
    sampler.free()


@pytest.mark.parametrize("count", [0, PREFILL_CHUNK + 1])
def test_chunk_of_a_wrong_size_is_refused(context: Context, count: int) -> None:
    with pytest.raises(NativeError, match="llama_decode"):
        read(context, [5] * count)


def test_context_is_never_overrun(model: Model) -> None:
    context = Context(model, tokens=256, threads=1)
    try:
        for _ in range(2):
            read(context, [5] * 128)
        with pytest.raises(NativeError, match="llama_decode"):
            read(context, [5])
    finally:
        context.free()


def test_prefill_stops_in_the_middle(context: Context) -> None:
    asked = 0

    def soon() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    assert read(context, [5] * 100, cancelled=soon) is False
    assert asked == 4
    context.clear()
    assert run(context, GREEDY) == run(context, GREEDY)


def test_prefill_that_is_not_stopped_checks_and_continues(context: Context) -> None:
    assert context._cancelled() is False
    assert read(context, [5] * 100, cancelled=never)
    assert context._cancelled() is False


def test_failed_decode_is_an_error(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lib, "llama_decode", returns(-3))
    with pytest.raises(NativeError, match=r"^llama_decode .* -3$"):
        read(context, [5])


def test_impossible_context_is_an_error(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lib, "llama_init_from_model", returns(None))
    with pytest.raises(EngineMemoryError, match="64 tokens"):
        Context(model, tokens=64, threads=1)


def test_where_memory_is_short_a_smaller_context_is_made_until_there_is_more(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = lib.llama_init_from_model

    def scarce(
        handle: lib.llama_model_p, params: lib.llama_context_params
    ) -> lib.llama_context_p | None:
        return make(handle, params) if params.n_ctx <= 256 else None

    with monkeypatch.context() as patch:
        patch.setattr(lib, "llama_init_from_model", scarce)
        context = Context(model, tokens=1024, threads=1, least_tokens=256)
        assert context.size == 256
        with pytest.raises(EngineMemoryError, match="512 tokens"):
            Context(model, tokens=1024, threads=1, least_tokens=300)
        with pytest.raises(EngineMemoryError, match="1024 tokens"):
            Context(model, tokens=1024, threads=1)
    read(context, PROMPT)
    context.clear()
    assert context.size == 1024
    context.free()


def test_context_without_memory_is_an_error(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lib, "llama_get_memory", returns(None))
    with pytest.raises(NativeError, match="llama_get_memory"):
        Context(model, tokens=64, threads=1)


def test_every_call_from_another_thread_is_refused(
    model: Model, context: Context
) -> None:
    sampler = Sampler(GREEDY, context._model)
    calls = [
        model.free,
        model.bos,
        model.adds_bos,
        model.chat_template,
        model.marker_texts,
        lambda: model.metadata("general.name"),
        lambda: model.tokenize("a", special=False),
        lambda: model.is_control(1),
        lambda: model.is_end(1),
        lambda: model.piece(1),
        context.free,
        context.clear,
        context.drop_logits,
        context.renew,
        lambda: context.flush(0),
        lambda: context.logits(0),
        lambda: context.used(0),
        lambda: context.open(0),
        lambda: context.erase(0),
        lambda: context.save(0),
        lambda: context.restore(native.Saved(1, 1), 0),
        lambda: context.decode(rows([5])),
        lambda: context.sample(sampler, 0),
        sampler.free,
    ]
    refused: list[object] = []

    def elsewhere() -> None:
        for call in calls:
            try:
                call()
            except WrongThreadError:
                refused.append(call)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert len(refused) == len(calls)
    sampler.free()


def test_context_that_cannot_be_made_anew_is_freed_once(
    model: native.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed: list[object] = []
    free = lib.llama_free

    def counted(handle: lib.llama_context_p) -> None:
        freed.append(handle)
        free(handle)

    context = native.Context(model, tokens=64, threads=1)
    read(context, [3, 4])
    monkeypatch.setattr(lib, "llama_free", counted)
    with monkeypatch.context() as patch:
        patch.setattr(lib, "llama_init_from_model", returns(None))
        with pytest.raises(EngineMemoryError):
            context.clear()
    # A second cleanup must not read freed memory.
    context.clear()
    context.free()
    assert len(freed) == 1


# Several sequences.


@pytest.fixture
def several(model: Model) -> Iterator[Context]:
    context = Context(model, tokens=512, threads=1, sequences=3)
    context.open(2)
    yield context
    context.free()


def test_a_sequence_answers_as_if_it_were_alone(
    several: Context, context: Context
) -> None:
    alone = run(context, GREEDY)
    assert [written(several, GREEDY, sequence=each) for each in (1, 0, 2)] == [
        alone
    ] * 3


def test_sequences_of_one_batch_do_not_mix(several: Context, context: Context) -> None:
    alone = run(context, GREEDY, 6)
    other = PROMPT[::-1]
    batch = [*rows(PROMPT, sequence=0), *rows(other, sequence=1)]
    assert several.decode(batch)
    sampler = Sampler(GREEDY, context._model)
    at = len(PROMPT)
    mine = [several.sample(sampler, at - 1)]
    theirs = [several.sample(sampler, 2 * at - 1)]
    while len(mine) < 6:
        several.decode(
            [
                Row(mine[-1], several.used(0), 0, True),
                Row(theirs[-1], several.used(1), 1, True),
            ]
        )
        mine.append(several.sample(sampler, 0))
        theirs.append(several.sample(sampler, 1))
    sampler.free()
    assert mine == alone
    assert theirs != alone


@pytest.mark.parametrize(
    "batch",
    [
        [Row(5, 1, 0, True)],
        [Row(5, 0, 0, True), Row(5, 0, 0, True)],
        [Row(5, 0, 0, True), Row(5, 2, 0, True)],
        [Row(5, 0, 1, True), Row(5, 0, 0, True)],
        [Row(5, 0, 3, True)],
        [Row(5, 0, -1, True)],
    ],
    ids=["late", "repeated", "skipped", "descending", "no sequence", "below"],
)
def test_rows_out_of_order_are_refused(several: Context, batch: list[Row]) -> None:
    with pytest.raises(NativeError, match="llama_decode"):
        several.decode(batch)
    assert several.used(0) == 0


def test_an_unopened_sequence_is_refused(model: Model) -> None:
    context = Context(model, tokens=64, threads=1, sequences=2)
    try:
        with pytest.raises(NativeError, match="llama_decode"):
            context.decode([Row(5, 0, 1, True)])
        with pytest.raises(NativeError, match="llama_init"):
            context.open(2)
        assert context.used(1) == 0
    finally:
        context.free()


def test_making_room_changes_no_answer(model: Model, context: Context) -> None:
    alone = run(context, GREEDY)
    growing = Context(model, tokens=512, threads=1, sequences=4)
    sampler = Sampler(GREEDY, context._model)
    try:
        read(growing, PROMPT)
        tokens = [growing.sample(sampler, len(PROMPT) - 1)]
        for room in range(1, len(alone)):
            growing.open(min(room, 3))
            growing.renew()
            read(growing, tokens[-1:])
            tokens.append(growing.sample(sampler, 0))
        assert tokens == alone
    finally:
        sampler.free()
        growing.free()


KINDS: list[tuple[KVType, FlashAttention]] = [
    ("f16", "auto"),
    ("f16", "on"),
    ("f16", "off"),
    ("q8_0", "auto"),
    ("q4_0", "on"),
]
"""Each lays out its state in another way: other rows, values transposed or not."""


@pytest.fixture(scope="module")
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """Load one whose heads can be quantised."""
    file = tmp_path_factory.mktemp("wide") / "wide.gguf"
    model = Model(str(make_byte_model(file, head_width=2 * native.KV_BLOCK)))
    yield model
    model.free()


@pytest.mark.parametrize(("kv_type", "flash"), KINDS)
def test_every_kind_of_keys_and_values_is_erased_saved_and_moved(
    wide_model: Model, kv_type: KVType, flash: FlashAttention
) -> None:
    context = Context(
        wide_model,
        tokens=4 * FIRST_TOKENS,
        threads=1,
        sequences=2,
        kv_type=kv_type,
        flash_attention=flash,
    )
    try:
        alone = written(context, GREEDY)
        context.clear()
        context.open(1)
        read(context, PROMPT, sequence=0)
        read(context, PROMPT[::-1], sequence=1)
        saved = context.save(0)
        layout = find_layout(saved.view, cells=saved.used)
        kept = [bytes(saved.view[start:end]) for start, end in layout.payload]
        assert len(kept) == 2 * LAYERS
        assert all(any(each) for each in kept)
        other = bytes(context.save(1).buffer)
        context.erase(0)
        assert context.used(0) == 0
        assert bytes(context.save(1).buffer) == other
        # Into a context of another size, with more sequences.
        context.restore(saved, 0)
        context.open(0, tokens=3 * FIRST_TOKENS)
        context.renew()
        again = context.save(0)
        assert [
            bytes(again.view[start:end])
            for start, end in find_layout(again.view, cells=again.used).payload
        ] == kept
        context.erase(1)
        context.erase(0)
        assert written(context, GREEDY) == alone
    finally:
        context.free()


@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0"])
def test_quantised_keys_take_less_memory(wide_model: Model, kv_type: KVType) -> None:
    sizes: list[int] = []
    for kind in ("f16", kv_type):
        context = Context(wide_model, tokens=64, threads=1, kv_type=kind)
        read(context, PROMPT)
        layout = find_layout(context.save(0).view, cells=len(PROMPT))
        sizes.append(sum(end - start for start, end in layout.payload))
        context.free()
    share = {"q8_0": 34 / 64, "q4_0": 18 / 64}[kv_type]
    assert sizes[1] == sizes[0] * share


def test_a_model_whose_heads_have_no_whole_blocks_is_not_quantised(
    model: Model,
) -> None:
    with pytest.raises(EngineFailedError, match="kv_type f16"):
        Context(model, tokens=64, threads=1, kv_type="q8_0")


def test_a_build_without_gpu_refuses_layers_for_one(byte_model: Path) -> None:
    with pytest.raises(EngineFailedError, match="without GPU support"):
        Model(str(byte_model), gpu_layers=1)


def test_a_build_with_gpu_gets_as_many_layers_as_are_asked_for(
    byte_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    load = lib.llama_model_load_from_file

    def watched(
        path: bytes, params: lib.llama_model_params
    ) -> lib.llama_model_p | None:
        given.append(params.n_gpu_layers)
        return load(path, params)  # type: ignore[no-any-return]

    monkeypatch.setattr(lib, "llama_supports_gpu_offload", returns(True))
    monkeypatch.setattr(lib, "llama_model_load_from_file", watched)
    Model(str(byte_model)).free()
    Model(str(byte_model), gpu_layers=7).free()
    assert given == [0, 7]


def test_a_context_grows_for_a_long_request_and_is_small_again_after_it(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[int, int]] = []
    make = lib.llama_init_from_model

    def watched(
        handle: lib.llama_model_p, params: lib.llama_context_params
    ) -> lib.llama_context_p | None:
        made.append((params.n_ctx, params.n_seq_max))
        return make(handle, params)  # type: ignore[no-any-return]

    monkeypatch.setattr(lib, "llama_init_from_model", watched)
    most = 5 * FIRST_TOKENS
    context = Context(model, tokens=most, threads=1, sequences=2)
    try:
        assert context.size == most
        context.open(0, tokens=FIRST_TOKENS)
        with pytest.raises(NativeError, match="llama_decode"):
            context.decode([Row(5, 0, 1, True)])
        alone = written(context, GREEDY)
        context.clear()
        read(context, PROMPT)
        context.open(1, tokens=FIRST_TOKENS + 1)
        context.open(0, tokens=most)
        context.erase(0)
        assert written(context, GREEDY) == alone
        with pytest.raises(NativeError, match="llama_init"):
            context.open(0, tokens=most + 1)
        context.clear()
    finally:
        context.free()
    assert made == [
        (FIRST_TOKENS, 1),
        (FIRST_TOKENS, 1),
        (4 * FIRST_TOKENS, 2),
        (2 * most, 2),
        (FIRST_TOKENS, 1),
    ]


def test_beyond_its_present_size_nothing_is_read(model: Model) -> None:
    context = Context(model, tokens=2 * FIRST_TOKENS, threads=1)
    try:
        for _ in range(FIRST_TOKENS // PREFILL_CHUNK):
            read(context, [5] * PREFILL_CHUNK)
        # Refused before the library is asked, which would leave a part of it.
        with pytest.raises(NativeError, match="llama_decode"):
            context.decode([Row(5, FIRST_TOKENS, 0, True)])
        assert not context._torn
        context.open(0, tokens=FIRST_TOKENS + 1)
        assert context.decode([Row(5, FIRST_TOKENS, 0, True)])
    finally:
        context.free()


def test_without_memory_for_more_the_others_go_on(
    model: Model, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = run(context, GREEDY)
    growing = Context(model, tokens=512, threads=1, sequences=2)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(lib, "llama_init_from_model", returns(None))
            with pytest.raises(EngineMemoryError):
                growing.open(1)
            with pytest.raises(EngineMemoryError):
                growing.renew()
        assert written(growing, GREEDY) == alone
    finally:
        growing.free()


def test_a_saved_sequence_continues_in_another_one(
    several: Context, context: Context
) -> None:
    read(context, PROMPT)
    read(context, [5])
    expected = context.logits(0).copy()
    read(several, PROMPT, sequence=0)
    saved = several.save(0)
    several.erase(0)
    several.restore(saved, 2)
    assert (several.used(0), several.used(2)) == (0, len(PROMPT))
    read(several, [5], sequence=2)
    assert np.array_equal(several.logits(0), expected)


def test_erasing_a_sequence_leaves_the_others_as_they_are(several: Context) -> None:
    for sequence in range(3):
        read(several, PROMPT[sequence:], sequence=sequence)
    before = [bytes(several.save(each).buffer) for each in (0, 2)]
    assert several._tokens.any()
    several.erase(1)
    assert several.used(1) == 0
    assert not several._tokens.any()
    assert [bytes(several.save(each).buffer) for each in (0, 2)] == before
    assert written(several, GREEDY, sequence=1)


ERASING = """
import sys
import numpy as np
from curtilage.inference.native import Context, Model, Row
from curtilage.inference.state import find_layout

context = Context(
    Model(sys.argv[1]), tokens=512, threads=1, sequences=3, kv_type=sys.argv[2]
)
context.open(2)
# The neighbours have none of its tokens, whose values in layer 0 are the same.
for number, prompt in enumerate(([200, 201], list(range(60, 90)), [202, 203])):
    context.decode([Row(token, at, number, at == 1) for at, token in enumerate(prompt)])
saved = context.save(1)
payload = find_layout(saved.view, cells=saved.used).payload
masked = np.frombuffer(saved.buffer, np.uint8)
masked ^= 0x5A  # in place: so that no copy of it is left
for start, end in payload:
    print(masked[start + 64 : start + 128].tobytes().hex())
saved.wipe()
sys.stdout.flush()
sys.stdin.readline()
getattr(context, sys.argv[3])(*map(int, sys.argv[4:]))
print("erased", flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/PID/mem")
@pytest.mark.parametrize("ends", ["erase 1", "clear"])
@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_keys_and_values_of_an_erased_sequence_are_nowhere(
    tmp_path: Path, kv_type: str, ends: str
) -> None:
    file = make_byte_model(tmp_path / "wide.gguf", head_width=2 * native.KV_BLOCK)
    command = [sys.executable, "-c", ERASING, str(file), kv_type, *ends.split()]
    environment = {**os.environ, **{name: ENVIRONMENT[name] for name in ALLOCATOR}}
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin
        assert child.stdout
        masked = [bytes.fromhex(child.stdout.readline()) for _ in range(4)]
        forms = {
            str(at): bytes(each ^ 0x5A for each in piece)
            for at, piece in enumerate(masked)
        }
        assert len(masked[0]) == 64
        # Of each layer's keys and values: the test sees them while they are there.
        assert hits(child.pid, forms).keys() == forms.keys()
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "erased\n"
        assert hits(child.pid, forms) == {}
        child.stdin.write("\n")


FLUSHING = """
import sys
from curtilage.inference.native import Context, Model, Row

context = Context(Model(sys.argv[1]), tokens=512, threads=1, sequences=2)
context.open(1)
context.decode([Row(200, 0, 0, True)])
prompt = [int(each) for each in sys.argv[2].split(",")]
context.decode([Row(each, at, 1, False) for at, each in enumerate(prompt)])
del prompt
for at in range(1, 5):
    context.decode([Row(200, at, 0, True)])
for step in ("read", "erase", "flush"):
    if step != "read":
        getattr(context, step)(1)
    print(step, flush=True)
    sys.stdin.readline()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/PID/mem")
def test_the_librarys_copies_of_tokens_are_nowhere_while_another_goes_on(
    byte_model: Path,
) -> None:
    prompt = [FIRST_BYTE + at * 37 % 256 for at in range(100)]
    command = [sys.executable, "-c", FLUSHING, str(byte_model)]
    environment = {**os.environ, **{name: ENVIRONMENT[name] for name in ALLOCATOR}}
    # Of the first ones the other sequence's tokens take the place.
    forms = {"tokens": array("i", prompt[40:]).tobytes()}
    seen: dict[str, bool] = {}
    with subprocess.Popen(
        [*command, ",".join(map(str, prompt))],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin
        assert child.stdout
        for _ in range(3):
            step = child.stdout.readline().strip()
            seen[step] = bool(hits(child.pid, forms))
            child.stdin.write("\n")
            child.stdin.flush()
    assert seen == {"read": True, "erase": True, "flush": False}


def test_flushing_changes_no_other_sequence(several: Context, context: Context) -> None:
    read(several, PROMPT, sequence=0)
    read(several, PROMPT[::-1], sequence=1)
    before = bytes(several.save(0).buffer)
    several.erase(1)
    several.flush(1)
    assert (several.used(0), several.used(1)) == (len(PROMPT), 0)
    assert bytes(several.save(0).buffer) == before
    read(several, [5], sequence=0)
    read(context, PROMPT)
    read(context, [5])
    assert np.array_equal(several.logits(0), context.logits(0))
    context.clear()
    assert written(several, GREEDY, sequence=1) == run(context, GREEDY)


def test_only_an_erased_sequence_is_used_to_flush(several: Context) -> None:
    read(several, PROMPT, sequence=1)
    for sequence in (1, 3, -1):
        with pytest.raises(NativeError):
            several.flush(sequence)
    several.flush(0)


@pytest.mark.parametrize(
    ("name", "code"), [("llama_decode", -3), ("llama_memory_seq_rm", False)]
)
def test_a_flush_that_fails_is_an_error(
    several: Context, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    monkeypatch.setattr(lib, name, returns(code))
    with pytest.raises(NativeError, match=name):
        several.flush(0)


def test_the_tokens_of_a_text_are_overwritten_in_the_buffer_of_the_library(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffers: list[Sequence[int]] = []
    tokenize = lib.llama_tokenize

    def watched(*given: object) -> int:
        buffers.append(cast("Sequence[int]", given[3]))
        count = cast("Callable[..., int]", tokenize)(*given)
        assert any(buffers[-1])
        return count

    monkeypatch.setattr(lib, "llama_tokenize", watched)
    assert model.tokenize("some words", special=False)
    assert len(buffers) == 1
    assert not any(buffers[0])


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("llama_state_seq_get_data", 0),
        ("llama_state_seq_set_data", 0),
        ("llama_memory_seq_rm", False),
    ],
)
def test_a_sequence_that_cannot_be_erased_is_an_error(
    several: Context, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    read(several, PROMPT, sequence=1)
    monkeypatch.setattr(lib, name, returns(code))
    with pytest.raises(NativeError, match=name):
        several.erase(1)


def test_a_state_of_another_layout_is_not_taken_for_erased(
    several: Context,
) -> None:
    read(several, PROMPT, sequence=1)
    several._used[1] -= 1  # one cell more than is known of
    with pytest.raises(NativeError, match="get_data"):
        several.erase(1)


def test_after_a_stopped_decode_only_the_whole_context_can_be_erased(
    several: Context,
) -> None:
    read(several, PROMPT, sequence=1)
    assert read(several, [5] * 100, sequence=0, cancelled=lambda: True) is False
    for sequence in (0, 1):
        with pytest.raises(NativeError):
            several.erase(sequence)
    several.clear()
    several.erase(0)
    assert written(several, GREEDY)
