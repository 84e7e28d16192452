"""The embedded model: the only module that imports onnxruntime and tokenizers.

It reads a folder of three files with their digests, and turns the network's output into
positions in a text. It knows nothing about the policy. It loads only files with the
expected digest, and quotes no word of a text in an error. It disables the runtime's
telemetry; the process's sandbox, which blocks all connections, is set up in
``detectors.__main__``. Needs the extra ``pii``.
"""

import json
import math
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import islice
from operator import itemgetter
from typing import Any, Final, Protocol, cast

import numpy as np
import numpy.typing as npt

from curtilage.client.detection.detectors.model.entity import Entity, Passages
from curtilage.client.telemetry import UNREPORTED

FORMAT: Final = 1
FOLDER: Final = "weights"
MULTILINGUAL: Final = "multilingual"  # inside that folder: for every language
MANIFEST: Final = "guard.json"
NETWORK: Final = "guard.onnx"
VOCABULARY: Final = "tokenizer.json"
OUTSIDE: Final = "O"
BERT_MARKS: Final = ("[CLS]", "[SEP]")
OUTPUTS: Final = ("entities", "topics")
MARGIN_PIECES: Final = 16  # context on either side of the decided pieces of a window
THREADS: Final = 2  # the same CPU time as one, and half the duration if a core is free
# A short row takes up to twice as long alone as in a batch. Longer rows gain nothing
# from a batch, and each is run alone.
SHORT_PIECES: Final = 64
RUN_PIECES: Final = 512  # of all rows in one run: more exceed the processor's cache
PAD_PIECES: Final = 4  # how much shorter than the longest row of its run a row may be
_MAX_MANIFEST_BYTES: Final = 65_536
_MIN_PIECES: Final = 2 * MARGIN_PIECES + 2 + 16
_HIGHEST: Final = 100
# White space to every rule, between joined turns (``turns.JOINT``) and between pages.
# A tokenizer drops it, and two words would be seen as one.
_APART: Final = str.maketrans("\x0b\x0c\x1c\x1d\x1e\x1f\x85", "\n" * 7)
# What may separate two words of one name: O'Neil, J.R.; or nothing.
_GLUE: Final = frozenset(("", *"'\u2019.-_"))

Ids = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float32]


class GuardModelError(Exception):
    """The model cannot be loaded, or its output is invalid.

    Messages name files, fields and sizes, and never quote a text.
    """


class Encoding(Protocol):
    """The part of a tokenizer's result that is used."""

    @property
    def ids(self) -> list[int]:
        """The pieces' numbers."""
        ...

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """The position of each piece in the text, in characters."""
        ...

    @property
    def word_ids(self) -> list[int | None]:
        """The word that each piece belongs to."""
        ...


class Pieces(Protocol):
    """The part of a tokenizer that is used."""

    def encode(self, text: str, *, add_special_tokens: bool) -> Encoding:
        """Split a text into pieces."""
        ...

    def token_to_id(self, token: str) -> int | None:
        """Return a piece's number."""
        ...


class Network(Protocol):
    """The part of an inference session that is used."""

    def run(self, names: Sequence[str], feeds: Mapping[str, Ids]) -> Sequence[Numbers]:
        """Return the outputs of these names."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The description of the network in ``guard.json``.

    Attributes:
        entities: the labels of a piece, in the order of the output: ``O``,
            ``B-`` and ``I-`` for each kind.
        topics: the topics, in the order of the output.
        max_pieces: the longest input, including the two marks at its ends.
        digests: SHA-256 of the other two files, hex.
        thresholds: the probability from which a topic counts, between 0 and 1; the
            default is 0.5.
        marks: the tokenizer's names for the pieces at the two ends of an input.
        rows_apart: whether the output for a row is independent of the other rows in
            its run; only then are short rows run together.
    """

    entities: tuple[str, ...]
    topics: tuple[str, ...]
    max_pieces: int
    digests: Mapping[str, str]
    thresholds: Mapping[str, float]
    marks: tuple[str, ...] = BERT_MARKS
    rows_apart: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """``O``, then every kind of entity, in the order of the labels."""
        named = (label[2:] for label in self.entities if label != OUTSIDE)
        return (OUTSIDE, *dict.fromkeys(named))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The model's opinion on one text.

    Attributes:
        entities: the entities, in the text's order, not overlapping.
        topics: for each topic a score from 0 to 100 that the text discloses a person's
            affairs of this kind, not that it mentions the subject; 50 is the threshold.
    """

    entities: tuple[Entity, ...]
    topics: Mapping[str, int]
    _places: tuple[tuple[int, int], ...] = field(repr=False)
    _kinds: tuple[str, ...] = field(repr=False)
    _chances: Numbers = field(repr=False)

    def likelihood(self, kind: str, start: int, end: int) -> int:
        """Return how likely a word at a position is of a kind, in thousandths.

        For several words, the likeliest counts; 0 if there is none.
        """
        column = self._kinds.index(kind)
        # Words are sorted and do not overlap; a long list of names calls this for each.
        low = bisect_right(self._places, start, key=itemgetter(1))
        high = bisect_left(self._places, end, lo=low, key=itemgetter(0))
        if low == high:
            return 0
        return round(float(self._chances[low:high, column].max()) * 1000)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A text in pieces, and the windows in which they are examined."""

    text: str = field(repr=False)
    encoding: Encoding = field(repr=False)
    ids: list[int] = field(repr=False)
    windows: list[tuple[int, int, int, int]]

    @property
    def rows(self) -> list[list[int]]:
        """The pieces of each window."""
        return [self.ids[low:high] for low, high, _, _ in self.windows]


class GuardModel:
    """The loaded model; for one caller at a time."""

    def __init__(self, manifest: Manifest, pieces: Pieces, network: Network) -> None:
        self._manifest = manifest
        self._pieces = pieces
        self._network = network
        self._kinds = manifest.kinds
        self._first, self._last = (_mark(pieces, each) for each in manifest.marks)
        self._begins = _columns(manifest, "B-")
        self._inside = _columns(manifest, "I-")
        self._outside = manifest.entities.index(OUTSIDE)
        # Threads start only when there are two runs, so none of them inherits the
        # priority of the thread that builds this object.
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="model")

    @property
    def manifest(self) -> Manifest:
        """The model's description of itself."""
        return self._manifest

    def judge_all(
        self, asked: Sequence[Passages], *, recall: int
    ) -> tuple[Judgement, ...]:
        """Return the entities and topics of each text, as if each were judged alone.

        Args:
            asked: the texts.
            recall: hundredths that are subtracted from the logit of "no entity"; 0 is
                the model as it was trained, 300 finds far too much.

        Raises:
            GuardModelError: the network's output has the wrong shape.
        """
        cuts = [
            [self._cut(text) for text in (each.text, *each.excerpts)] for each in asked
        ]
        rows = [row for each in cuts for cut in each for row in cut.rows]
        # In the order of the rows, so each text takes the results of its windows.
        answers = iter(self._run(rows))
        made: list[Judgement] = []
        for each, (whole, *others) in zip(asked, cuts, strict=True):
            looks = list(islice(answers, len(whole.windows)))
            more = islice(answers, sum(len(cut.windows) for cut in others))
            topics = np.max([about for _, about in (*looks, *more)], axis=0)
            seen = [entities for entities, _ in looks]
            made.append(self._judgement(each.text, whole, seen, topics, recall))
        return tuple(made)

    def _judgement(
        self,
        text: str,
        cut: _Cut,
        seen: Sequence[Numbers],
        topics: Numbers,
        recall: int,
    ) -> Judgement:
        heads = _heads(cut.text, cut.encoding)
        # One row for each word: of its first piece, from the window that decides it.
        logits = np.concatenate(
            [
                entities[[1 + head - low for head in heads if begin <= head < end]]
                for entities, (low, _, begin, end) in zip(
                    seen, cut.windows, strict=True
                )
            ]
        ).astype(np.float64)
        logits[:, self._outside] -= recall / 100
        shares = _softmax(logits)
        chances = self._by_kind(shares)
        places = _places(cut.text, cut.encoding, heads)
        return Judgement(
            entities=tuple(self._mentions(text, places, shares, chances)),
            topics={
                topic: _calibrated(logit, self._manifest.thresholds.get(topic, 0.5))
                for topic, logit in zip(
                    self._manifest.topics, map(float, topics), strict=True
                )
            },
            _places=tuple(places),
            _kinds=self._kinds,
            _chances=chances.astype(np.float32),
        )

    def _cut(self, text: str) -> _Cut:
        # A lone surrogate cannot be encoded; its replacement has the same length.
        readable = text.encode("utf-8", "replace").decode("utf-8").translate(_APART)
        encoding = self._pieces.encode(readable, add_special_tokens=False)
        ids = encoding.ids  # rebuilt on every access
        room = self._manifest.max_pieces - 2  # the marks at both ends
        return _Cut(readable, encoding, ids, list(_windows(len(ids), room)))

    def _run(self, rows: Sequence[Sequence[int]]) -> list[tuple[Numbers, Numbers]]:
        """Return the network's output for each row of pieces, in order."""
        lengths = [len(row) for row in rows]
        # If 8-bit numbers are scaled by everything in a run, other texts would affect
        # the result for a text: then every row is run alone.
        apart = self._manifest.rows_apart
        runs = list(_runs(lengths)) if apart else [[at] for at in range(len(rows))]
        found: dict[int, tuple[Numbers, Numbers]] = {}

        def look(run: Sequence[int]) -> None:
            entities, topics = self._run_once([rows[at] for at in run])
            found.update(zip(run, zip(entities, topics, strict=True), strict=True))

        # The network releases the interpreter's lock while it works.
        if len(runs) > 1 and sum(lengths) > SHORT_PIECES:
            list(self._threads.map(look, runs))
        else:
            list(map(look, runs))
        return [found[at] for at in range(len(rows))]

    def _run_once(self, rows: Sequence[Sequence[int]]) -> tuple[Numbers, Numbers]:
        width = 2 + max(map(len, rows))
        ids = np.full((len(rows), width), self._last, dtype=np.int64)
        mask = np.zeros_like(ids)
        for at, row in enumerate(rows):
            ids[at, : len(row) + 1] = [self._first, *row]
            mask[at, : len(row) + 2] = 1
        entities, topics = self._network.run(OUTPUTS, {"ids": ids, "mask": mask})
        labels, subjects = len(self._manifest.entities), len(self._manifest.topics)
        if entities.shape != (*ids.shape, labels) or topics.shape != (
            len(rows),
            subjects,
        ):
            raise GuardModelError("the network's outputs have other sizes than said")
        if not (np.isfinite(entities).all() and np.isfinite(topics).all()):
            raise GuardModelError("the network's outputs are no numbers")
        return entities, topics

    def _by_kind(self, shares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Add up ``B-`` and ``I-``: either is a word of a name."""
        kinds = shares[:, self._begins] + shares[:, self._inside]
        return np.concatenate([shares[:, [self._outside]], kinds], axis=1)

    def _mentions(
        self,
        text: str,
        places: Sequence[tuple[int, int]],
        shares: npt.NDArray[np.float64],
        chances: npt.NDArray[np.float64],
    ) -> Iterator[Entity]:
        begun: list[int] | None = None  # the kind's column, first word, last word
        for row, column in enumerate(chances.argmax(axis=1).tolist()):
            if column == 0:
                continue
            if begun is not None and begun[0] == column:
                opens = shares[row, self._begins[column - 1]]
                goes_on = opens <= shares[row, self._inside[column - 1]]
                between = text[places[begun[2]][1] : places[row][0]]
                near = row == begun[2] + 1 and (goes_on or between == " ")
                if near or between in _GLUE:
                    begun[2] = row
                    continue
            if begun is not None:
                yield self._entity(begun, places, chances)
            begun = [column, row, row]
        if begun is not None:
            yield self._entity(begun, places, chances)

    def _entity(
        self,
        begun: Sequence[int],
        places: Sequence[tuple[int, int]],
        chances: npt.NDArray[np.float64],
    ) -> Entity:
        column, first, last = begun
        return Entity(
            kind=self._kinds[column],
            start=places[first][0],
            end=places[last][1],
            score=_percent(float(_odds(chances[first : last + 1], column).max())),
        )


def load_guard(folder: Traversable | None = None) -> GuardModel:
    """Load the model that ships with this package, or one in a folder.

    ``guard.json`` is trusted for the digests of the other files. Each file is read
    once, so that the bytes that were hashed are those that are loaded.

    Raises:
        GuardModelError: a file is missing, broken or not the expected one, or the extra
            is not installed.
    """
    folder = _shipped() if folder is None else folder
    manifest = read_manifest(folder)
    network = _verified(folder, NETWORK, manifest)
    vocabulary = _verified(folder, VOCABULARY, manifest)
    try:
        return GuardModel(manifest, _open_pieces(vocabulary), _open_network(network))
    except GuardModelError:
        raise
    except Exception:  # noqa: BLE001 - the libraries raise anything
        raise GuardModelError("the model's files cannot be opened") from None


def read_manifest(folder: Traversable) -> Manifest:
    """Read the description of the model in a folder, without loading the model.

    Raises:
        GuardModelError: the file is missing or invalid.
    """
    return parse_manifest(_read(folder, MANIFEST))


def multilingual() -> Traversable:
    """Return the folder of the shipped model for languages other than English."""
    return _shipped().joinpath(MULTILINGUAL)


def _shipped() -> Traversable:
    package = "curtilage.client.detection.detectors.model"
    return resources.files(package).joinpath(FOLDER)


def parse_manifest(data: bytes) -> Manifest:
    """Read ``guard.json``.

    Raises:
        GuardModelError: it is invalid; the message names the field.
    """
    if len(data) > _MAX_MANIFEST_BYTES:
        raise GuardModelError(f"{MANIFEST} is too long")
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        raise GuardModelError(f"{MANIFEST} is no JSON") from None
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if fields.get("format") != FORMAT:
        raise GuardModelError(f"{MANIFEST}: format is not {FORMAT}")
    manifest = Manifest(
        entities=_names(fields, "entities"),
        topics=_names(fields, "topics"),
        max_pieces=_size(fields.get("max_pieces")),
        digests=_digests(fields.get("sha256")),
        thresholds=_thresholds(fields.get("topic_thresholds", {})),
        marks=_names(fields, "marks") if "marks" in fields else BERT_MARKS,
        rows_apart=fields.get("rows_apart", False) is True,
    )
    if len(manifest.marks) != len(BERT_MARKS):
        raise GuardModelError(f"{MANIFEST}: marks are two")
    paired = {f"{mark}-{kind}" for kind in manifest.kinds[1:] for mark in "BI"}
    if {OUTSIDE, *paired} != set(manifest.entities):
        raise GuardModelError(f"{MANIFEST}: entities are O and pairs of B- and I-")
    return manifest


def _names(fields: Mapping[str, object], name: str) -> tuple[str, ...]:
    value = fields.get(name)
    items = cast("list[object]", value) if isinstance(value, list) else []
    names = tuple(each for each in items if isinstance(each, str) and each)
    if not names or len(set(names)) != len(items):
        raise GuardModelError(f"{MANIFEST}: {name} are different names")
    return names


def _size(value: object) -> int:
    if type(value) is not int or not _MIN_PIECES <= value <= 512:  # noqa: PLR2004 - BERT's positions
        raise GuardModelError(f"{MANIFEST}: max_pieces is out of range")
    return value


def _digests(value: object) -> dict[str, str]:
    items = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    digests = {name: each for name, each in items.items() if isinstance(each, str)}
    if not digests.keys() >= {NETWORK, VOCABULARY}:
        raise GuardModelError(f"{MANIFEST}: sha256 names {NETWORK} and {VOCABULARY}")
    return digests


def _thresholds(value: object) -> dict[str, float]:
    items = cast("dict[str, object]", value) if isinstance(value, dict) else None
    if items is None or not all(_is_share(each) for each in items.values()):
        raise GuardModelError(f"{MANIFEST}: topic_thresholds are over 0 and below 1")
    return {name: float(cast("float", each)) for name, each in items.items()}


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and 0 < value < 1


def _read(folder: Traversable, name: str) -> bytes:
    try:
        return folder.joinpath(name).read_bytes()
    except OSError:
        raise GuardModelError(f"the model's {name} cannot be read") from None


def _verified(folder: Traversable, name: str, manifest: Manifest) -> bytes:
    data = _read(folder, name)
    if sha256(data).hexdigest() != manifest.digests[name]:
        raise GuardModelError(f"the model's {name} is not the one that was named")
    return data


def _open_pieces(data: bytes) -> Pieces:
    """Open the tokenizer for whole texts: nothing added, nothing cut."""
    from tokenizers import Tokenizer  # noqa: PLC0415 - needs the extra

    tokenizer = Tokenizer.from_str(data.decode())
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return cast("Pieces", tokenizer)


def _open_network(data: bytes) -> Network:
    # Versions after the pinned one send telemetry from native code once they are
    # loaded, whatever is called afterwards; only the environment prevents it.
    os.environ.update(UNREPORTED)
    import onnxruntime  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs]

    runtime: Any = onnxruntime
    runtime.disable_telemetry_events()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1  # ``THREADS`` runs are made in parallel
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # fatal only: a message may show a shape or more
    return cast(
        "Network",
        runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"]),
    )


def _mark(pieces: Pieces, token: str) -> int:
    number = pieces.token_to_id(token)
    if number is None:
        raise GuardModelError(f"the tokenizer has no {token}")
    return number


def _columns(manifest: Manifest, mark: str) -> list[int]:
    return [manifest.entities.index(mark + kind) for kind in manifest.kinds[1:]]


def _heads(text: str, encoding: Encoding) -> list[int]:
    """Return the first piece of each word, except for pieces of white space alone."""
    heads: list[int] = []
    last: int | None = None
    for at, (word, (start, end)) in enumerate(
        zip(encoding.word_ids, encoding.offsets, strict=True)
    ):
        if word is not None and word != last and not text[start:end].isspace():
            heads.append(at)
            last = word
    return heads


def _places(
    text: str, encoding: Encoding, heads: Sequence[int]
) -> list[tuple[int, int]]:
    offsets = encoding.offsets  # rebuilt on every access
    ends = [*heads[1:], len(offsets)] if heads else []
    places: list[tuple[int, int]] = []
    for head, end in zip(heads, ends, strict=True):
        start, stop = offsets[head][0], offsets[end - 1][1]
        # In some tokenizers, the first piece of a word includes the space before it.
        found = text[start:stop]
        start += len(found) - len(found.lstrip())
        places.append((start, stop - (len(found) - len(found.rstrip()))))
    return places


def _windows(length: int, room: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield windows, and the pieces that each of them decides.

    Every piece is decided once, if possible with a margin on either side.
    """
    begin = 0
    while True:
        low = max(0, begin - MARGIN_PIECES)
        high = min(length, low + room)
        end = length if high == length else high - MARGIN_PIECES
        yield low, high, begin, end
        if end == length:
            return
        begin = end


def _runs(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the rows to run together: short ones of similar length."""
    run: list[int] = []
    longest = 0
    for at in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if run and (
            longest > SHORT_PIECES
            or longest - lengths[at] > PAD_PIECES
            or (len(run) + 1) * (longest + 2) > RUN_PIECES
        ):
            yield run
            run = []
        if not run:
            longest = lengths[at]
        run.append(at)
    if run:
        yield run


def _odds(chances: npt.NDArray[np.float64], column: int) -> npt.NDArray[np.float64]:
    """Return the share of one kind relative to it and "no entity" alone."""
    odds: npt.NDArray[np.float64] = chances[:, column]
    return odds / (odds + chances[:, 0])


def _softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    powers: npt.NDArray[np.float64] = np.exp(logits - logits.max(axis=1, keepdims=True))
    total: npt.NDArray[np.float64] = powers.sum(axis=1, keepdims=True)
    return powers / total


def _calibrated(logit: float, threshold: float) -> int:
    """Return a score from odds, scaled so that the threshold is 50."""
    shifted = logit - math.log(threshold / (1 - threshold))
    return _percent(1 / (1 + math.exp(-max(-50.0, min(50.0, shifted)))))


def _percent(share: float) -> int:
    return min(_HIGHEST, max(0, round(share * _HIGHEST)))
