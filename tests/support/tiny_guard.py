"""A names model of a few words, made by hand: real files, real libraries.

The network looks every piece up in a table, so what it says of a word is what
the table holds. It is written as the bytes of an ONNX file (onnx.proto3 of
ONNX 1.14: field numbers below), since no library here writes one.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

KINDS = ("PERSON", "LOCATION", "ORGANIZATION", "ADDRESS", "AGE", "DATE", "NRP")
LABELS = ("O", *(f"{mark}-{kind}" for kind in KINDS for mark in "BI"))
TOPICS = ("health", "special", "finance", "legal", "hr")
MAX_PIECES = 64
_FLOAT, _INT64 = 1, 7
# What the network says of each word: logits of labels, logits of topics.
WORDS: Mapping[str, Mapping[str, float]] = {
    "bogdana": {"B-PERSON": 6},
    "ilieva": {"I-PERSON": 6},
    "quendy": {"B-PERSON": 2.2, "O": 3},  # below the knob at 0, above it at 100
    "zorblat": {"B-PERSON": 1, "O": 4},  # a doubt that no knob makes a name
    "python": {"B-PERSON": 1.6, "O": 2},  # unsure, and an ordinary word
    "grace": {"B-PERSON": 1.6, "O": 2},  # unsure, and a name too
    "@": {"B-PERSON": 6},
    "plovdiv": {"B-LOCATION": 6},
    "acme": {"B-ORGANIZATION": 6},
    "elm": {"B-ADDRESS": 6},
    "street": {"I-ADDRESS": 6},
    "93": {"B-AGE": 6},
    "41": {"B-AGE": 6},
    "3rd": {"B-DATE": 6},
    "of": {"I-DATE": 6},
    "may": {"I-DATE": 6},
    "latvian": {"B-NRP": 6},
    "catholic": {"B-NRP": 6},
    "diagnosed": {"health": 3},
    "closeted": {"special": 3},
    "##na": {},
    "'": {},
    "-": {},
    "_": {},
    ".": {},
    "the": {},
    "meets": {},
    "in": {},
    "on": {},
}
_MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def write_guard(folder: Path, **changes: object) -> Path:
    """Write the three files into a folder; ``changes`` are of the manifest."""
    network = tiny_network()
    vocabulary = tiny_tokenizer().encode()
    manifest: dict[str, object] = {
        "format": 1,
        "entities": list(LABELS),
        "topics": list(TOPICS),
        "max_pieces": MAX_PIECES,
        "sha256": {
            "guard.onnx": sha256(network).hexdigest(),
            "tokenizer.json": sha256(vocabulary).hexdigest(),
        },
        "topic_thresholds": {"health": 0.5},
    }
    folder.mkdir(exist_ok=True)
    (folder / "guard.onnx").write_bytes(network)
    (folder / "tokenizer.json").write_bytes(vocabulary)
    (folder / "guard.json").write_text(json.dumps(manifest | changes))
    return folder


def tiny_tokenizer() -> str:
    """Return the tokenizer's file: BERT's way to cut, a few words."""
    vocabulary = {word: at for at, word in enumerate((*_MARKS, *WORDS))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer.to_str()


def tiny_network(*, labels: int = len(LABELS)) -> bytes:
    """Return an ONNX file: two look-ups, and the highest over the pieces."""
    nothing: Mapping[str, float] = {}
    rows = [*(nothing for _ in _MARKS), *WORDS.values()]
    entities = np.array([_row(row, LABELS) for row in rows], np.float32)[:, :labels]
    entities[:, 0] += [0.0 if set(row) & set(LABELS) else 12.0 for row in rows]
    topics = np.array([_row(row, TOPICS) for row in rows], np.float32)
    topics[topics == 0] = -5
    graph = [
        _field(1, _node("Gather", ("entity_table", "ids"), "entities")),
        _field(1, _node("Gather", ("topic_table", "ids"), "about")),
        _field(1, _node("ReduceMax", ("about",), "topics", axes=[1], keepdims=0)),
        _field(2, b"tiny"),
        _field(5, _tensor("entity_table", entities)),
        _field(5, _tensor("topic_table", topics)),
        *(_field(11, _value(name, _INT64, ("b", "s"))) for name in ("ids", "mask")),
        _field(12, _value("entities", _FLOAT, ("b", "s", labels))),
        _field(12, _value("topics", _FLOAT, ("b", len(TOPICS)))),
    ]
    opset = _field(2, 17)
    return _field(1, 8) + _field(8, opset) + _field(7, b"".join(graph))


def _row(word: Mapping[str, float], columns: Sequence[str]) -> list[float]:
    return [float(word.get(column, 0)) for column in columns]


# --- protocol buffers: a number, or bytes behind their length ------------------


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _node(
    kind: str,
    inputs: Sequence[str],
    output: str,
    *,
    axes: Sequence[int] = (),
    keepdims: int | None = None,
) -> bytes:
    node = [_field(1, name.encode()) for name in inputs]
    node += [_field(2, output.encode()), _field(4, kind.encode())]
    if axes:
        many = b"".join(_field(8, axis) for axis in axes)
        node.append(_field(5, _field(1, b"axes") + many + _field(20, 7)))
    if keepdims is not None:
        one = _field(3, keepdims)
        node.append(_field(5, _field(1, b"keepdims") + one + _field(20, 2)))
    return b"".join(node)


def _tensor(
    name: str, values: "np.ndarray[tuple[int, int], np.dtype[np.float32]]"
) -> bytes:
    dims = b"".join(_field(1, size) for size in values.shape)
    return (
        dims
        + _field(2, _FLOAT)
        + _field(8, name.encode())
        + _field(9, values.tobytes())
    )


def _value(name: str, kind: int, shape: Sequence[str | int]) -> bytes:
    sizes = b"".join(
        _field(
            1, _field(1, size) if isinstance(size, int) else _field(2, size.encode())
        )
        for size in shape
    )
    tensor = _field(1, kind) + _field(2, sizes)
    return _field(1, name.encode()) + _field(2, _field(1, tensor))
