"""Models of random weights in the shapes of known ones: what computing them costs.

A token is a byte, so a text has about four times the tokens that it has for a real
model. An answer hardly ever ends by itself. The weights are blocks of llama.cpp's
quantised formats with random numbers in them; what they say means nothing.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import numpy.typing as npt

from curtilage.inference.default_model import DEFAULT_SHA256, find_default_model
from support.byte_model import BOS, CHAT_TEMPLATE, EOS

SEED: Final = 11
TRAINED_CONTEXT: Final = 32768
HALF: Final = 2
"""Bytes of a number in the context's cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The numbers that a model's speed depends on."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: int


SHAPES: Final[Mapping[str, Shape]] = {
    # Qwen2.5-0.5B and -1.5B, whose output is their embedding.
    "0.5b": Shape(
        width=896,
        layers=24,
        heads=14,
        kv_heads=2,
        feed_forward=4864,
        vocabulary=151936,
    ),
    "1.5b": Shape(
        width=1536,
        layers=28,
        heads=12,
        kv_heads=2,
        feed_forward=8960,
        vocabulary=151936,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The model that is measured.

    Attributes:
        name: for display.
        path: its file.
        sha256: the file's digest, hex.
        token_bytes: of a text, about.
    """

    name: str
    path: Path
    sha256: str
    token_bytes: int = 4

    def arguments(self) -> list[str]:
        """Return it as arguments of a process."""
        return [self.name, str(self.path), self.sha256, str(self.token_bytes)]


def chosen(arguments: list[str]) -> Chosen:
    """Read what ``Chosen.arguments`` wrote."""
    name, path, sha256, token_bytes = arguments
    return Chosen(
        name=name, path=Path(path), sha256=sha256, token_bytes=int(token_bytes)
    )


def embedded() -> Chosen:
    """Return the embedded model."""
    return Chosen(name="embedded", path=find_default_model(), sha256=DEFAULT_SHA256)


def make_model(name: str, folder: Path) -> Chosen:
    """Write a model of one of ``SHAPES``; a file of up to a gigabyte."""
    shape = SHAPES[name]
    path = folder / f"shape-{name}.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(f"random weights in the shape of {name}")
    _add_shape(writer, shape)
    _add_vocabulary(writer, shape.vocabulary)
    writer.add_chat_template(CHAT_TEMPLATE)
    _add_weights(writer, shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Chosen(name=name, path=path, sha256=digest, token_bytes=1)


def token_bytes_read(path: Path, context_tokens: int) -> int:
    """Return how many bytes of weights and context one decoded token reads."""
    reader = gguf.GGUFReader(path)

    def number(key: str) -> int:
        architecture = reader.get_field("general.architecture")
        if architecture is None:
            raise RuntimeError("the model names no architecture")
        found = reader.get_field(f"{architecture.contents()}.{key}")
        if found is None:
            raise RuntimeError(f"the model has no {key}")
        return int(found.contents())

    sizes = {tensor.name: int(tensor.n_bytes) for tensor in reader.tensors}
    if "output.weight" in sizes:
        # Of the embedding one row is read; where it is the output too, all of it.
        del sizes["token_embd.weight"]
    head = number("embedding_length") // number("attention.head_count")
    cells = number("block_count") * number("attention.head_count_kv") * head * 2 * HALF
    return sum(sizes.values()) + context_tokens * cells


def _add_shape(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_context_length(TRAINED_CONTEXT)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_rope_freq_base(1_000_000.0)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)


def _add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    kinds = gguf.TokenType
    tokens = [
        ("<unk>", kinds.UNKNOWN),
        ("<s>", kinds.CONTROL),
        ("</s>", kinds.CONTROL),
        *((f"<0x{value:02X}>", kinds.BYTE) for value in range(256)),
        ("\u2581", kinds.NORMAL),
        ("<|im_start|>", kinds.CONTROL),
        ("<|im_end|>", kinds.CONTROL),
    ]
    # Plain words that no text contains, and none can be joined to.
    tokens += [(f"\u2400{n}", kinds.NORMAL) for n in range(size - len(tokens))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _ in tokens])
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([kind for _, kind in tokens])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)


def _add_weights(writer: gguf.GGUFWriter, shape: Shape) -> None:
    generator = np.random.default_rng(SEED)
    kv_width = shape.width // shape.heads * shape.kv_heads
    _add(writer, generator, "token_embd", (shape.vocabulary, shape.width), wide=True)
    writer.add_tensor("output_norm.weight", np.ones(shape.width, np.float32))
    matrices = {
        "attn_q": (shape.width, shape.width),
        "attn_k": (kv_width, shape.width),
        "attn_v": (kv_width, shape.width),
        "attn_output": (shape.width, shape.width),
        "ffn_gate": (shape.feed_forward, shape.width),
        "ffn_up": (shape.feed_forward, shape.width),
        "ffn_down": (shape.width, shape.feed_forward),
    }
    for layer in range(shape.layers):
        for name, size in matrices.items():
            _add(writer, generator, f"blk.{layer}.{name}", size)
        for name in ("attn_norm", "ffn_norm"):
            ones = np.ones(shape.width, np.float32)
            writer.add_tensor(f"blk.{layer}.{name}.weight", ones)


def _add(
    writer: gguf.GGUFWriter,
    generator: np.random.Generator,
    name: str,
    size: tuple[int, int],
    *,
    wide: bool = False,
) -> None:
    """Add a matrix in the format that ``llama-quantize`` takes for such rows."""
    rows, columns = size
    kinds = gguf.GGMLQuantizationType
    kind = kinds.Q4_K if columns % 256 == 0 else kinds.Q5_0
    kind = kinds.Q8_0 if wide else kind
    values, octets = gguf.GGML_QUANT_SIZES[kind]
    blocks: npt.NDArray[Any] = generator.integers(
        0, 256, (rows * columns // values, octets), np.uint8
    )
    # Each block begins with its scales; any other bytes are numbers.
    deviation = columns**-0.5
    scales = {
        kinds.Q4_K: (deviation / 160, 7.5 * deviation / 160),
        kinds.Q5_0: (deviation / 9,),
        kinds.Q8_0: (deviation / 74,),
    }[kind]
    head = np.asarray(scales, np.float16).view(np.uint8)
    blocks[:, : len(head)] = head
    writer.add_tensor(
        f"{name}.weight",
        blocks.reshape(rows, -1),
        raw_dtype=kind,
    )
