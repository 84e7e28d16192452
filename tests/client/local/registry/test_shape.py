import re
import struct
from pathlib import Path

import gguf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.client.errors import ConfigError
from curtilage.client.local.registry.shape import read_shape
from curtilage.client.system.files import NOT_ORDINARY
from curtilage.inference.batch import PREFILL_CHUNK
from curtilage.inference.shape import (
    MAX_HEAD_BYTES,
    READ_AT_ONCE,
    WORKING_BYTES,
    ModelShape,
    kv_bytes,
)
from support.byte_model import (
    HEADS,
    KV_HEADS,
    LAYERS,
    TRAINED_CONTEXT,
    WIDTH,
    make_byte_model,
)

HEAD = struct.pack("<4sIQQ", b"GGUF", 3, 0, 1 << 60)
SHAPE = ModelShape(
    layers=LAYERS,
    kv_heads=KV_HEADS,
    head_dim=WIDTH // HEADS,
    trained_context=TRAINED_CONTEXT,
    quantisation="F32",
    heads=HEADS,
)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def number(name: str, value: int) -> bytes:
    return text(name) + struct.pack("<II", 4, value)


SMALL = (
    text("general.architecture") + struct.pack("<I", 8) + text("tiny"),
    number("tiny.block_count", 2),
    number("tiny.context_length", 512),
    number("tiny.embedding_length", 64),
    number("tiny.attention.head_count", 4),
)


@pytest.fixture(scope="session")
def byte_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_byte_model(tmp_path_factory.mktemp("shapes") / "byte.gguf")


def shape_of(folder: Path, content: bytes) -> ModelShape | None:
    path = folder / "some.gguf"
    path.write_bytes(content)
    return read_shape(path)


def test_context_of_a_known_model_takes_what_its_layers_say() -> None:
    # SmolLM2-135M: 30 layers, 3 heads of 64 numbers, two octets each, keys and values.
    assert kv_bytes(30, 3, 64, 1) == 23_040
    assert kv_bytes(28, 2, 128, 1000) == 28_672_000
    assert kv_bytes(28, 2, 128, 1000, "q8_0") == 15_232_000
    assert kv_bytes(28, 2, 128, 1000, "q4_0") == 8_064_000


def test_head_of_a_file_says_what_the_model_needs(byte_model: Path) -> None:
    assert read_shape(byte_model) == SHAPE


def test_memory_is_weights_context_and_the_rest() -> None:
    found = SHAPE.memory_bytes(1000, 10, flash_attention="on")
    assert found == 1000 + SHAPE.context_bytes(10) + WORKING_BYTES


def test_without_flash_attention_a_piece_meets_the_whole_context_at_once() -> None:
    usual = SHAPE.memory_bytes(0, 1000, flash_attention="on")
    more = SHAPE.memory_bytes(0, 1000) - usual
    assert more == 4 * HEADS * READ_AT_ONCE * 1000


def test_what_is_read_at_once_is_what_the_engine_reads() -> None:
    assert READ_AT_ONCE == PREFILL_CHUNK


def test_left_out_heads_are_those_of_the_questions(tmp_path: Path) -> None:
    shape = shape_of(tmp_path, HEAD + b"".join(SMALL))
    assert shape == ModelShape(
        layers=2, kv_heads=4, head_dim=16, trained_context=512, heads=4
    )


def test_heads_may_have_a_size_of_their_own(tmp_path: Path) -> None:
    more = number("tiny.attention.key_length", 32)
    more += number("tiny.attention.head_count_kv", 1)
    shape = shape_of(tmp_path, HEAD + b"".join(SMALL) + more)
    assert shape is not None
    assert (shape.kv_heads, shape.head_dim) == (1, 32)


def test_lists_are_passed_over(tmp_path: Path) -> None:
    words = struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    numbers = struct.pack("<IIQ", 9, 4, 3) + bytes(12)
    lists = text("general.tags") + words + text("general.numbers") + numbers
    assert shape_of(tmp_path, HEAD + lists + b"".join(SMALL)) is not None


@pytest.mark.parametrize("missing", range(len(SMALL)))
def test_missing_values_are_unknown(tmp_path: Path, missing: int) -> None:
    rest = b"".join(each for at, each in enumerate(SMALL) if at != missing)
    assert shape_of(tmp_path, HEAD + rest) is None


@pytest.mark.parametrize(
    "hostile",
    [
        struct.pack("<Q", 1 << 63),
        text("x") + struct.pack("<IQ", 8, (1 << 64) - 1),
        text("x") + struct.pack("<IIQ", 9, 8, (1 << 64) - 1),
        text("x") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 20_000,
        text("x") + struct.pack("<I", 77),
        number("tiny.attention.head_count", 0),
    ],
    ids=["name", "text", "list", "lists in lists", "kind", "no heads"],
)
def test_hostile_heads_are_unknown(tmp_path: Path, hostile: bytes) -> None:
    assert shape_of(tmp_path, HEAD + hostile + b"".join(SMALL[:-1])) is None


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"GGUF",
        struct.pack("<4sIQQ", b"GGML", 3, 0, 9),
        struct.pack("<4sIQQ", b"GGUF", 1, 0, 9),
        struct.pack("<4sIQQ", b"GGUF", 4, 0, 9),
    ],
    ids=["empty", "cut", "magic", "old", "new"],
)
def test_other_forms_are_unknown(tmp_path: Path, head: bytes) -> None:
    assert shape_of(tmp_path, head + b"".join(SMALL)) is None


def test_any_cut_is_the_shape_or_unknown(tmp_path: Path, byte_model: Path) -> None:
    content = byte_model.read_bytes()[:1500]
    found = {shape_of(tmp_path, content[:end]) for end in range(0, len(content), 7)}
    assert {each and each.layers for each in found} == {None, LAYERS}


@settings(max_examples=200)
@given(st.binary(max_size=400))
def test_any_bytes_are_at_worst_unknown(
    tmp_path_factory: pytest.TempPathFactory, octets: bytes
) -> None:
    folder = tmp_path_factory.getbasetemp()
    assert shape_of(folder, HEAD + octets) is None


def test_vocabulary_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("tokenizer.ggml.tokens", ["x" * 100] * (MAX_HEAD_BYTES // 100))
    writer.add_block_count(2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert path.stat().st_size > MAX_HEAD_BYTES
    assert read_shape(path) is None


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_shape(tmp_path / "none.gguf")
    with pytest.raises(ConfigError, match=re.escape(NOT_ORDINARY)):
        read_shape(Path("/dev/zero"))
