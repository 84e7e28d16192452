"""Run detectors over all readings of texts, whatever a detector does.

Knows no detector, but how any is run: one that raises, or answers nonsense, is a
finding of its own, ``uncertain.error``. Refuses to know where a text goes, and
never repeats one: no message and no finding holds a word of it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
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
    """Something that looks at one reading of one text.

    It may say more of itself; what it does not say is not so:

    - ``prefilter``: no text that this keeps out holds anything for it.
    - ``numeric``: it looks at numbers only, and takes its time.
    - ``beyond_ascii``: what it looks for no ASCII text has.
    - ``broken``: it stands for one that could not be built, and always fails.
    - ``preload``: makes what it makes at first use, so that no text waits for it.
    - ``ahead``: it takes less for several readings in one go; it is given all that
      it will be asked about, and finds nothing yet.
    """

    @property
    def id(self) -> str:
        """A fixed name: letters, digits, dot, dash, underscore."""
        ...

    def find(self, reading: Reading) -> Iterable[Span]:
        """Return what was found; offsets into the reading's text."""
        ...


@runtime_checkable
class LooksAhead(Protocol):
    """A detector that takes less for several readings in one go."""

    def ahead(self, readings: Sequence[Reading]) -> None:
        """Do what can be done in one go for readings that are about to be found in."""
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

    The second stage is dear: it finds names. It is left out where something
    the first one found keeps the query home whatever else there is.
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
            last: run over every text, unless ``exits`` forbid.
            exits: classes of which one finding, validated or uncertain, settles
                the route; empty: everything is run.
            lists: texts whose findings are to be marked.
            cache: of texts seen before; None: nothing is remembered.
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
        """What may be called to load now what a text would have to wait for."""
        return self._preloads

    def scan(self, texts: Sequence[str]) -> list[tuple[Span, ...]]:
        """Return what all detectors find in each text of one conversation."""
        return self.scan_all([texts])[0]

    def scan_all(
        self, conversations: Sequence[Sequence[str]]
    ) -> list[list[tuple[Span, ...]]]:
        """Return the same for each text of several conversations, in less time."""
        named = [list(map(self._cache.name_of, texts)) for texts in conversations]
        # A text that is said twice is looked at once.
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
        # One finding that settles the route settles it for the whole conversation:
        # then nobody need look for names in any of its texts.
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
            # A failure may pass, so what was found then is not remembered.
            if UNFINISHED.isdisjoint(span.data_class for span in spans):
                self._cache.keep(name, each)
        return [[_joined(known[name]) for name in names] for names in named]

    def _settles(self, span: Span) -> bool:
        return span.data_class in self._exits and (
            span.validated or is_uncertain(span.data_class)
        )


def _joined(found: Found) -> tuple[Span, ...]:
    """Return all spans of a text; names of other readings were compared already."""
    if not found.last:
        return found.first
    raw = [each for each in found.last if each.normalization is Normalization.RAW]
    apart = [each for each in found.last if each.normalization is not Normalization.RAW]
    return (*merge((*found.first, *raw)), *merge(apart))


def scan(texts: Sequence[str], equipment: Detectors) -> list[tuple[Span, ...]]:
    """Return what detectors find in each text, all of them in one stage."""
    return Scanner(equipment).scan(texts)


class _Stage:
    """Some detectors, sorted by the readings they take."""

    def __init__(
        self,
        equipment: Detectors,
        lists: Iterable[ExclusionList],
        *,
        follows: bool = False,
    ) -> None:
        """Take the detectors.

        Args:
            equipment: each with the readings it takes.
            lists: texts whose findings are to be marked.
            follows: whether a stage before has said what could not be read. Then
                those that take texts as they are written are also asked about
                what is written otherwise.
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
        """Yield what the detectors find in one text."""
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
        """Let those that gain by it do in one go what they will be asked for."""
        if not self._names:
            return
        readings = [
            reading
            for each in read
            for reading in (each.all[0], *(part for _, part in each.parts))
        ]
        for detector in self._by_form[Normalization.RAW] if readings else ():
            if isinstance(detector, LooksAhead):
                # What fails here fails again where it is asked for, of one text; there
                # it is a finding of that text.
                with suppress(Exception):
                    detector.ahead(readings)

    def _named(self, read: "_Readings") -> Iterator[Span]:
        """Yield what is found in a text, and in words that it has when undone only.

        These are dear, so of the reading in which most is undone they see the parts
        with such words: none where marks, tags or numbers alone differ. What one of
        them names there stands at no place of the text as it was written.
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
        """Yield what is found in one reading, with or without numbers."""
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
    """What was found in a text as it was written."""

    def __init__(self, text: str, spans: tuple[Span, ...]) -> None:
        self.spans = spans
        self._text = text
        self._words: dict[str, set[str]] = {}

    def lacks(self, span: Span, part: str, fresh: AbstractSet[str]) -> bool:
        """Return whether what was found in a part undone is not among it.

        A topic is news where it is surer; a name where it has a fresh word and was
        not found in its encoding, as the whole of it.
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
        """Return the words of all that was found of one class, once undone."""
        if data_class not in self._words:
            found = (
                undone(_read(self._text[each.start : each.end])).text
                for each in self.spans
                if each.data_class == data_class
            )
            self._words[data_class] = set[str]().union(*map(words_of, found))
        return self._words[data_class]


class _Readings:
    """A text and its readings, made once and not before somebody asks."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def all(self) -> tuple[Reading, ...]:
        return _read(self.text)

    @cached_property
    def fresh(self) -> set[str]:
        """The words that it has when undone only."""
        return words_of(undone(self.all).text) - words_of(self.text)

    @cached_property
    def parts(self) -> tuple[tuple[int, Reading], ...]:
        """Where such words stand, each by its first character in what is undone."""
        other = undone(self.all)
        if other.text == self.text:
            return ()
        return tuple(
            (start, replace(other, text=other.text[start:end], cut=False))
            for start, end in stretches(other.text, self.fresh)
        )


class _Unreadable(Reading):
    """The raw text, where making the other readings failed."""


def _read(text: str) -> tuple[Reading, ...]:
    """Return all readings of a text; one that cannot be read says so."""
    try:
        return tuple(readings(text))
    except Exception:  # noqa: BLE001 - a text that cannot be read is uncertain
        return (_Unreadable(normalization=Normalization.RAW, text=text),)


class _Marker:
    """Notes on findings in which of a policy's lists their texts stand."""

    def __init__(self, lists: Iterable[ExclusionList]) -> None:
        self._lists = [
            (each.name, frozenset(each.classes), frozenset(map(folded, each.entries)))
            for each in lists
        ]

    def marked(self, spans: Iterable[Span], reading: Reading) -> Iterable[Span]:
        """Return the spans, with the names of the lists they stand in."""
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
    """Return what one detector finds; a failure of any kind is a finding.

    The exception is dropped unread: its message may hold the text.
    """
    try:
        spans = checked(detector.find(reading), length=len(reading.text))
    except TimeoutError:
        spans = (whole("uncertain.timeout", "detectors", len(reading.text)),)
    except Exception:  # noqa: BLE001 - whatever went wrong, the text is uncertain
        spans = (whole("uncertain.error", "detectors", len(reading.text)),)
    if not spans or reading.normalization is Normalization.RAW:
        return spans
    return tuple(replace(span, normalization=reading.normalization) for span in spans)
