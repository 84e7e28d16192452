# pyright: reportPrivateUsage=false
# Private members are looked at here, to see what is left in them.
import ast
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_cpp import llama_cpp as lib
from typing_extensions import override

from curtilage.inference import native
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
    NO_GENERATOR,
    PREFILL_CHUNK,
    SYMBOLS,
    VERSION,
    Context,
    Draw,
    Model,
    Sampler,
    check_cpu,
    require_symbols,
)
from curtilage.inference.templates import Part
from support.byte_model import BOS, EOS, FIRST_BYTE, make_adapter, make_byte_model
from support.examples import examples
from support.fakes import returns

ENCODABLE = st.text(st.characters(exclude_categories=["Cs"]))
GREEDY = Draw(temperature=0, top_p=1, seed=0)
HOT = Draw(temperature=1.0, top_p=0.95, seed=5)
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
        "import llama_cpp.llama_cache as user\n"
        "assert 'diskcache' not in sys.modules\n"
        "assert user.diskcache.__spec__ is None, 'a package and no stand-in'\n"
        "print('loaded without')\n"
    )
    assert said == "loaded without"


def test_an_application_keeps_its_own_disk_cache(tmp_path: Path) -> None:
    (tmp_path / "diskcache.py").write_text("OWN = 1", "utf-8")
    said = run_python(
        "import sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "import diskcache\n"
        "from curtilage.inference import native\n"
        "import llama_cpp.llama_cache as user\n"
        "assert sys.modules['diskcache'] is diskcache and diskcache.OWN\n"
        "assert user.diskcache is not diskcache\n"
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


def run(context: Context, draw: Draw, count: int = 12) -> list[int]:
    sampler = Sampler(draw, context._model)
    try:
        assert context.prefill(PROMPT, last=True, cancelled=never)
        tokens = [context.sample(sampler)]
        while len(tokens) < count:
            context.step(tokens[-1])
            tokens.append(context.sample(sampler))
        return tokens
    finally:
        sampler.free()
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
        "from curtilage.inference.native import Context, Model\n"
        "from curtilage.inference.errors import ModelFileError\n"
        "model = Model(sys.argv[1])\n"
        "context = Context(model, tokens=64, threads=1)\n"
        "context.prefill([5], last=True, cancelled=lambda: False)\n"
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
    context.prefill(PROMPT, last=True, cancelled=never)
    whole = context.logits().copy()
    context.clear()
    context.prefill(PROMPT[:5], last=False, cancelled=never)
    context.prefill(PROMPT[5:], last=True, cancelled=never)
    np.testing.assert_allclose(context.logits(), whole, atol=1e-3)


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
    context.prefill(PROMPT, last=True, cancelled=never)
    row = context.logits()
    assert context.used == len(PROMPT)
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
    assert context.used == 0
    assert left == [False], "zeroed before the library may free it"
    assert not context._tokens.any()


def test_what_was_saved_goes_on_as_if_nothing_had_been(context: Context) -> None:
    context.prefill(PROMPT, last=True, cancelled=never)
    saved = context.save()
    context.step(5)
    expected = context.logits().copy()
    context.clear()
    context.prefill(PROMPT[::-1], last=True, cancelled=never)
    context.clear()
    context.restore(saved)
    assert context.used == len(PROMPT)
    context.step(5)
    assert np.array_equal(context.logits(), expected)
    assert any(saved.buffer)
    saved.wipe()
    assert not any(saved.buffer)


def test_what_was_restored_is_cleared_though_nothing_was_read_since(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    context.prefill(PROMPT, last=True, cancelled=never)
    saved = context.save()
    context.clear()
    context.restore(saved)  # and then the caller goes away
    cleared: list[bool] = []
    clear = lib.llama_memory_clear

    def cleared_first(memory: lib.llama_memory_t, data: bool) -> None:
        cleared.append(data)
        clear(memory, data)

    monkeypatch.setattr(lib, "llama_memory_clear", cleared_first)
    context.clear()
    assert cleared == [True]
    assert context.used == 0


def test_what_cannot_be_saved_or_restored_is_an_error(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    context.prefill(PROMPT, last=True, cancelled=never)
    saved = context.save()
    context.clear()
    monkeypatch.setattr(lib, "llama_state_seq_set_data", returns(0))
    with pytest.raises(NativeError, match="set_data"):
        context.restore(saved)
    monkeypatch.setattr(lib, "llama_state_seq_get_data", returns(0))
    with pytest.raises(NativeError, match="get_data"):
        context.save()


def test_logits_are_refused_before_anything_was_read(
    model: Model, context: Context
) -> None:
    sampler = Sampler(GREEDY, model)
    with pytest.raises(NativeError):
        context.logits()
    with pytest.raises(NativeError):
        context.sample(sampler)
    sampler.free()


@pytest.mark.parametrize("count", [0, PREFILL_CHUNK + 1])
def test_chunk_of_a_wrong_size_is_refused(context: Context, count: int) -> None:
    with pytest.raises(NativeError, match="llama_decode"):
        context.prefill([5] * count, last=True, cancelled=never)


def test_context_is_never_overrun(model: Model) -> None:
    context = Context(model, tokens=256, threads=1)
    try:
        for _ in range(2):
            context.prefill([5] * 128, last=True, cancelled=never)
        with pytest.raises(NativeError, match="llama_decode"):
            context.step(5)
    finally:
        context.free()


def test_prefill_stops_in_the_middle(context: Context) -> None:
    asked = 0

    def soon() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    assert context.prefill([5] * 100, last=True, cancelled=soon) is False
    assert asked == 4
    context.clear()
    assert run(context, GREEDY) == run(context, GREEDY)


def test_prefill_that_is_not_stopped_checks_and_continues(context: Context) -> None:
    assert context._cancelled() is False
    assert context.prefill([5] * 100, last=True, cancelled=never)
    assert context._cancelled() is False


def test_failed_decode_is_an_error(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lib, "llama_decode", returns(-3))
    with pytest.raises(NativeError, match=r"^llama_decode .* -3$"):
        context.step(5)


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
    context.prefill(PROMPT, last=True, cancelled=never)
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
    sampler = Sampler(GREEDY, model)
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
        context.logits,
        lambda: context.used,
        lambda: context.step(5),
        lambda: context.prefill([5], last=True, cancelled=never),
        lambda: context.sample(sampler),
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
    context.prefill([3, 4], last=True, cancelled=bool)
    monkeypatch.setattr(lib, "llama_free", counted)
    with monkeypatch.context() as patch:
        patch.setattr(lib, "llama_init_from_model", returns(None))
        with pytest.raises(EngineMemoryError):
            context.clear()
    # A second cleanup must not read freed memory.
    context.clear()
    context.free()
    assert len(freed) == 1
