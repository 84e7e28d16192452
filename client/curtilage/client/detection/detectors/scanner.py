"""Runs detectors over all readings of texts, and turns their failures into findings.

It knows no detector, but how to run any. One that raises, or returns something invalid,
causes a finding of its own, ``uncertain.error``. It does not know where a text goes,
and never quotes one: no message and no finding contains a word of it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Protocol, runtime_checkable

from curtilage.client.detection.detectors.cache import FindingsCache, Found
from curtilage.client.detection.detectors.patterns.prefilter import (
    OPEN,
    Prefilters,
    prefilter_named_by,
)
from curtilage.client.detection.detectors.readings import (
    Reading,
    readings,
    stretches,
    undone,
    words_of,
)
from curtilage.client.detection.spans import Span, checked, merge, whole
from curtilage.policy.decision.classes import UNFINISHED, is_uncertain
from curtilage.policy.decision.findings import Normalization
from curtilage.policy.document.detection_plan import ExclusionList
from curtilage.policy.document.dictionaries import folded

EVERY_FORM = frozenset(Normalization)
AS_WRITTEN = frozenset({Normalization.RAW})
NOT_COMPACT = EVERY_FORM - {Normalization.COMPACT}
_DIGIT = re.compile(r"\d")


class Detector(Protocol):
    """Searches one reading of one text.

    A detector may have further attributes; a missing one means that it does not apply:

    - ``prefilter``: a text that it excludes contains nothing for this detector.
    - ``numeric``: it searches for numbers only, and is slow.
    - ``beyond_ascii``: it searches for things that no ASCII text contains.
    - ``broken``: it replaces a detector that could not be built, and always fails.
    - ``preload``: makes what it would make at first use, so that no text waits for it.
    - ``ahead``: it is faster for several readings in one batch; it gets all readings
      that ``find`` will be called with, and returns no findings yet.
    """

    @property
    def id(self) -> str:
        """A fixed name: letters, digits, dot, dash, underscore."""
        ...

    def find(self, reading: Reading) -> Iterable[Span]:
        """Return the findings, with offsets into the reading's text."""
        ...


@runtime_checkable
class LooksAhead(Protocol):
    """A detector that is faster for several readings in one batch."""

    def ahead(self, readings: Sequence[Reading]) -> None:
        """Prepare, in one batch, readings that ``find`` will be called with."""
        ...


@runtime_checkable
class LoadsAtFirstUse(Protocol):
    """A detector that makes something when a text first needs it."""

    def preload(self) -> object:
        """Make it now."""
        ...


Equipment = tuple[tuple[Detector, frozenset[Normalization]], ...]
Detectors = Sequence[tuple[Detector, frozenset[Normalization]]]


# --- the scan -------------------------------------------------------------------


class Scanner:
    """All detectors of one policy, in two stages; for one caller at a time.

    The second stage finds names and is slow. It is skipped if a finding of the first
    stage already keeps the query local, whatever else is found.
    """

    def __init__(
        self,
        first: Detectors,
        last: Detectors = (),
        *,
        exits: Iterable[str] = (),
        lists: Iterable[ExclusionList] = (),
        cache: FindingsCache | None = None,
    ) -> None:
        """Take the detectors.

        Args:
            first: run over every text.
            last: run over every text, unless ``exits`` prevents it.
            exits: classes of which one finding, validated or uncertain, settles the
                route; empty: everything is run.
            lists: texts whose findings are marked.
            cache: for texts seen before; None: nothing is cached.
        """
        self._first = _Stage(first, lists)
        self._last = _Stage(last, lists, follows=bool(first))
        self._broken = tuple(
            each.id for each, _ in (*first, *last) if _says(each, "broken")
        )
        self._preloads = tuple(
            each.preload
            for each, _ in (*first, *last)
            if isinstance(each, LoadsAtFirstUse)
        )
        self._exits = frozenset(exits)
        self._cache = FindingsCache(b"", most=0) if cache is None else cache

    @property
    def broken(self) -> tuple[str, ...]:
        """Detectors that could not be built, for which every text is uncertain."""
        return self._broken

    @property
    def preloads(self) -> tuple[Callable[[], object], ...]:
        """Functions that load now what a text would otherwise wait for."""
        return self._preloads

    def scan(self, texts: Sequence[str]) -> list[tuple[Span, ...]]:
        """Return the findings of all detectors in each text of one conversation."""
        return self.scan_all([texts])[0]

    def scan_all(
        self, conversations: Sequence[Sequence[str]], *, application: str = ""
    ) -> list[list[tuple[Span, ...]]]:
        """Return the same for each text of several conversations, in less time.

        Args:
            conversations: the texts of each.
            application: whose they are; nothing of another one's makes it faster.
        """
        name_of = partial(self._cache.name_of, application=application)
        named = [list(map(name_of, texts)) for texts in conversations]
        # A repeated text is examined once.
        read = {
            name: _Readings(text)
            for names, texts in zip(named, conversations, strict=True)
            for name, text in zip(names, texts, strict=True)
        }
        known = {
            name: self._cache.recall(name)
            or Found(first=merge(self._first.spans(each)))
            for name, each in read.items()
        }
        # A finding that settles the route settles it for the whole conversation, so no
        # text in it needs a search for names.
        asked = dict.fromkeys(
            name
            for names in named
            if not any(self._settles(span) for at in names for span in known[at].first)
            for name in names
            if known[name].last is None
        )
        self._last.ahead([read[name] for name in asked])
        for name in asked:
            spans = tuple(self._last.spans(read[name]))
            known[name] = replace(known[name], last=spans)
        for name, each in known.items():
            spans = (*each.first, *(each.last or ()))
            # A failure may be temporary, so its findings are not cached.
            if UNFINISHED.isdisjoint(span.data_class for span in spans):
                self._cache.keep(name, each)
        return [[_joined(known[name]) for name in names] for names in named]

    def _settles(self, span: Span) -> bool:
        return span.data_class in self._exits and (
            span.validated or is_uncertain(span.data_class)
        )


def _joined(found: Found) -> tuple[Span, ...]:
    """Return all spans of a text; names in other readings were already compared."""
    if not found.last:
        return found.first
    raw = [each for each in found.last if each.normalization is Normalization.RAW]
    apart = [each for each in found.last if each.normalization is not Normalization.RAW]
    return (*merge((*found.first, *raw)), *merge(apart))


def scan(texts: Sequence[str], equipment: Detectors) -> list[tuple[Span, ...]]:
    """Return the findings of the detectors in each text, in one stage."""
    return Scanner(equipment).scan(texts)


class _Stage:
    """A set of detectors, sorted by the readings that they take."""

    def __init__(
        self,
        equipment: Detectors,
        lists: Iterable[ExclusionList],
        *,
        follows: bool = False,
    ) -> None:
        """Take the detectors.

        Args:
            equipment: each with the readings that it takes.
            lists: texts whose findings are marked.
            follows: whether an earlier stage reports unreadable texts. Then the
                detectors for raw texts also get the parts of a text that differ in
                other readings.
        """
        self._names = follows and all(forms == AS_WRITTEN for _, forms in equipment)
        self._by_form = {
            form: [detector for detector, forms in equipment if form in forms]
            for form in Normalization
        }
        prefilters = {
            form: list(map(prefilter_named_by, detectors))
            for form, detectors in self._by_form.items()
        }
        self._prefilters = {
            form: Prefilters(each)
            if any(prefilter != OPEN for prefilter in each)
            else None
            for form, each in prefilters.items()
        }
        self._plain = {
            form: sum(
                1 << at
                for at, each in enumerate(detectors)
                if not _says(each, "beyond_ascii")
            )
            for form, detectors in self._by_form.items()
        }
        self._marker = _Marker(lists)
        self._empty = not equipment

    def spans(self, read: "_Readings") -> Iterator[Span]:
        """Yield the detectors' findings in one text."""
        if self._empty:
            return
        if self._names:
            yield from self._named(read)
            return
        text = read.text
        digits: list[str] | None = None
        for reading in read.all:
            if reading.cut:
                yield whole("uncertain.oversize", "readings", len(text))
            if isinstance(reading, _Unreadable):
                yield whole("uncertain.error", "readings", len(text))
            same = False
            if reading.normalization is not Normalization.RAW:
                digits = _digit_words(text) if digits is None else digits
                same = _digit_words(reading.text) == digits
            yield from self._found(reading, numbers=not same)

    def ahead(self, read: Sequence["_Readings"]) -> None:
        """Let the detectors that support it prepare all their readings in one batch."""
        if not self._names:
            return
        readings = [
            reading
            for each in read
            for reading in (each.all[0], *(part for _, part in each.parts))
        ]
        for detector in self._by_form[Normalization.RAW] if readings else ():
            if isinstance(detector, LooksAhead):
                # If this fails, it fails again in ``find``, for a single text, and is a
                # finding for that text.
                with suppress(Exception):
                    detector.ahead(readings)

    def _named(self, read: "_Readings") -> Iterator[Span]:
        """Yield findings in a text, and in words that appear only once it is undone.

        These detectors are slow, so of the most undone reading they see only the parts
        with such words: none if only marks, tags or numbers differ. A name that is
        found there has no position in the text as written.
        """
        raw = read.all[0]
        written = _Written(raw.text, tuple(self._found(raw, numbers=True)))
        yield from written.spans
        for start, part in read.parts:
            for detector in self._by_form[Normalization.RAW]:
                for span in self._marker.marked(run(detector, part), part):
                    if written.lacks(span, part.text, read.fresh):
                        yield replace(
                            span, start=start + span.start, end=start + span.end
                        )

    def _found(self, reading: Reading, *, numbers: bool) -> Iterator[Span]:
        """Yield the findings in one reading, with or without numbers."""
        for detector in self._called(reading):
            if (numbers or not _says(detector, "numeric")) and (
                found := run(detector, reading)
            ):
                yield from self._marker.marked(found, reading)

    def _called(self, reading: Reading) -> Iterable[Detector]:
        """Return the detectors whose prefilters the text passes."""
        detectors = self._by_form[reading.normalization]
        prefilters = self._prefilters[reading.normalization]
        if prefilters is None:
            return detectors
        mask = prefilters.passed(reading.text)
        if reading.text.isascii():
            mask &= self._plain[reading.normalization]
        return [each for at, each in enumerate(detectors) if mask >> at & 1]


class _Written:
    """The findings in a text as written."""

    def __init__(self, text: str, spans: tuple[Span, ...]) -> None:
        self.spans = spans
        self._text = text
        self._words: dict[str, set[str]] = {}

    def lacks(self, span: Span, part: str, fresh: AbstractSet[str]) -> bool:
        """Return whether a finding in an undone part is new.

        A topic is new if it is more certain; a name if it has a new word and was not
        found in its encoded form as a whole.
        """
        if is_uncertain(span.data_class):
            return True
        if span.data_class.startswith(("topic.", "marker.")):
            return all(
                each.score < span.score
                for each in self.spans
                if each.data_class == span.data_class
            )
        words = words_of(part[span.start : span.end])
        return not words.isdisjoint(fresh) and not words <= self._known(span.data_class)

    def _known(self, data_class: str) -> set[str]:
        """Return the words of all findings of one class, in the undone reading."""
        if data_class not in self._words:
            found = (
                undone(_read(self._text[each.start : each.end])).text
                for each in self.spans
                if each.data_class == data_class
            )
            self._words[data_class] = set[str]().union(*map(words_of, found))
        return self._words[data_class]


class _Readings:
    """A text and its readings, made once and only when needed."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def all(self) -> tuple[Reading, ...]:
        return _read(self.text)

    @cached_property
    def fresh(self) -> set[str]:
        """The words that it has only in the undone reading."""
        return words_of(undone(self.all).text) - words_of(self.text)

    @cached_property
    def parts(self) -> tuple[tuple[int, Reading], ...]:
        """The parts with such words, with their offsets in the undone reading."""
        other = undone(self.all)
        if other.text == self.text:
            return ()
        return tuple(
            (start, replace(other, text=other.text[start:end], cut=False))
            for start, end in stretches(other.text, self.fresh)
        )


class _Unreadable(Reading):
    """The raw text, if making its other readings failed."""


def _read(text: str) -> tuple[Reading, ...]:
    """Return all readings of a text; an unreadable one is marked as such."""
    try:
        return tuple(readings(text))
    except Exception:  # noqa: BLE001 - a text that cannot be read is uncertain
        return (_Unreadable(normalization=Normalization.RAW, text=text),)


class _Marker:
    """Marks findings with the policy's lists that contain their texts."""

    def __init__(self, lists: Iterable[ExclusionList]) -> None:
        self._lists = [
            (each.name, frozenset(each.classes), frozenset(map(folded, each.entries)))
            for each in lists
        ]

    def marked(self, spans: Iterable[Span], reading: Reading) -> Iterable[Span]:
        """Return the spans with the names of the lists that contain them."""
        if not self._lists:
            return spans
        return [self._mark(span, reading.text) for span in spans]

    def _mark(self, span: Span, text: str) -> Span:
        names = tuple(
            name
            for name, classes, entries in self._lists
            if span.data_class in classes
            and folded(text[span.start : span.end]) in entries
        )
        return replace(span, listed=names) if names else span


def _digit_words(text: str) -> list[str]:
    return [word for word in text.split() if _DIGIT.search(word)]


def _says(detector: Detector, what: str) -> bool:
    return getattr(detector, what, False) is True


def run(detector: Detector, reading: Reading) -> tuple[Span, ...]:
    """Return the findings of one detector; a failure of any kind is a finding.

    The exception is dropped unread: its message may contain the text.
    """
    try:
        spans = checked(detector.find(reading), length=len(reading.text))
    except TimeoutError:
        spans = (whole("uncertain.timeout", "detectors", len(reading.text)),)
    except Exception:  # noqa: BLE001 - after any error, the text is uncertain
        spans = (whole("uncertain.error", "detectors", len(reading.text)),)
    if not spans or reading.normalization is Normalization.RAW:
        return spans
    return tuple(replace(span, normalization=reading.normalization) for span in spans)
