"""A model's memory needs, read from its file's header: no library, no weights.

A GGUF file begins with pairs of a name and a value. Those with the model's size precede
its vocabulary, which alone has megabytes; reading stops there.
The file is untrusted: every length in it is checked against the data read.

Source: the format's specification, ggml-org/ggml, ``docs/gguf.md``, version 3.
"""

import struct
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from curtilage.inference.settings import FlashAttention, KVType

MAX_HEAD_BYTES: Final = 1 << 18
"""Bytes to read. The relevant values are in the first few hundred bytes."""

GRAMMARS_BYTES: Final = 32 << 20
"""Memory for the grammars of all requests together, those that wait included. The
largest one takes 14 MiB, one of a hundred properties half a MiB."""
CONVERSION_BYTES: Final = 48 << 20
"""Memory for the conversion of a request's schemas; one at a time is converted. The
largest that was found takes 47 MiB."""
WORKING_BYTES: Final = (80 << 20) + GRAMMARS_BYTES + CONVERSION_BYTES
"""Memory of a loaded model besides weights and context. Without grammars 29 to 62 MiB
were measured with two of the catalogue's models (docs/costs.md)."""

_SCALARS: Final = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?",
    10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_STRING, _LIST = 8, 9

_QUANTISATIONS: Final = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1",
    10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S",
    15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 25: "IQ4_NL",
    30: "IQ4_XS", 32: "BF16",
}  # fmt: skip
"""``general.file_type``, as llama.cpp numbers it (``enum llama_ftype``)."""


_BYTES_OF_32: Final[dict[KVType, int]] = {"f16": 64, "q8_0": 34, "q4_0": 18}
"""Of 32 numbers, with their factor."""
READ_AT_ONCE: Final = 128
"""Tokens of a prompt that are decoded together."""


def kv_bytes(
    layers: int, kv_heads: int, head_dim: int, tokens: int, kv_type: KVType = "f16"
) -> int:
    """Return the memory for keys and values of a context.

    Args:
        layers: of the model.
        kv_heads: number of heads of keys and values, in each layer.
        head_dim: numbers in one head.
        tokens: of the context, question and answer together.
        kv_type: how they are held.
    """
    return 2 * layers * kv_heads * head_dim * tokens * _BYTES_OF_32[kv_type] // 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A model's dimensions, apart from its file size.

    Attributes:
        layers: of the model.
        kv_heads: number of heads of keys and values, in each layer.
        head_dim: numbers in one head.
        trained_context: tokens that it was trained to read and write together.
        quantisation: llama.cpp's name for it; empty if the file does not state it.
        heads: number of heads of queries, in each layer; 0: unknown.
    """

    layers: int
    kv_heads: int
    head_dim: int
    trained_context: int
    quantisation: str = ""
    heads: int = field(default=0, compare=False)

    def context_bytes(self, tokens: int, kv_type: KVType = "f16") -> int:
        """Return the memory for a context of this many tokens."""
        return kv_bytes(self.layers, self.kv_heads, self.head_dim, tokens, kv_type)

    def memory_bytes(
        self,
        file_bytes: int,
        tokens: int,
        *,
        contexts: int = 1,
        kv_type: KVType = "f16",
        flash_attention: FlashAttention = "off",
    ) -> int:
        """Return the approximate memory in use: weights, contexts, rest.

        Args:
            file_bytes: the model's size.
            tokens: of one context.
            contexts: how many there are at the same time.
            kv_type: how keys and values are held.
            flash_attention: without it, a piece of a prompt is compared with the whole
                context at once.
        """
        rest = WORKING_BYTES
        if flash_attention == "off":
            rest += 4 * self.heads * READ_AT_ONCE * tokens
        return file_bytes + contexts * self.context_bytes(tokens, kv_type) + rest


def parse_shape(head: bytes) -> ModelShape | None:
    """Return the shape from the first bytes of a model file, or None if it has none.

    A file of another format, or with unusual values, is not an error: it is detected
    when it is loaded.

    Args:
        head: up to ``MAX_HEAD_BYTES``.
    """
    try:
        return _shape(_values(head))
    except (KeyError, TypeError, ValueError, ZeroDivisionError, struct.error):
        return None


def _shape(values: dict[str, int | str]) -> ModelShape:
    """Build it; raises KeyError or TypeError for missing or invalid values."""
    kind = values["general.architecture"]

    def number(name: str) -> int:
        value = values[f"{kind}.{name}"]
        if not isinstance(value, int) or value <= 0:
            raise TypeError
        return value

    heads = number("attention.head_count")
    return ModelShape(
        layers=number("block_count"),
        # Both are optional; the defaults are llama.cpp's.
        kv_heads=number("attention.head_count_kv")
        if f"{kind}.attention.head_count_kv" in values
        else heads,
        head_dim=number("attention.key_length")
        if f"{kind}.attention.key_length" in values
        else number("embedding_length") // heads,
        trained_context=number("context_length"),
        quantisation=_QUANTISATIONS.get(int(values.get("general.file_type", -1)), ""),
        heads=heads,
    )


def _values(head: bytes) -> dict[str, int | str]:
    """Return numbers and texts by name, up to the end of the header.

    Raises:
        ValueError: not a GGUF file of a known version.
        struct.error: it is too short for a header.
    """
    reader = _Reader(head)
    magic, version, _tensors, count = reader.take("<4sIQQ")
    if magic != b"GGUF" or version not in {2, 3}:
        raise ValueError
    values: dict[str, int | str] = {}
    # The values before the end of the data, in the vocabulary, may suffice.
    with suppress(ValueError, KeyError, struct.error):
        for _ in range(count):
            name = reader.text()
            value = reader.value(*reader.take("<I"))
            if isinstance(value, int | str):
                values[name] = value
    return values


class _Reader:
    """Reads one value after another; reading beyond the end is an error."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, form: str) -> tuple[Any, ...]:
        """Return a value; raises struct.error if it is incomplete."""
        taken = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return taken

    def text(self) -> str:
        """Return a text; raises ValueError if it is incomplete."""
        (length,) = self.take("<Q")
        # A length of 2**63 is a claim, not a text.
        if length > len(self._data) - self._at:
            raise ValueError
        self._at += length
        return self._data[self._at - length : self._at].decode("utf-8", "replace")

    def value(self, kind: int) -> object:
        """Return a number or a text; None for a list, which is skipped."""
        if kind == _STRING:
            return self.text()
        if kind != _LIST:
            return self.take(f"<{_SCALARS[kind]}")[0]
        kind, length = self.take("<IQ")
        # No nested lists: deep nesting would exceed Python's recursion limit.
        if kind == _LIST:
            raise ValueError
        for _ in range(length):
            self.value(kind)
        return None
