"""Spans, the detectors' output: positions in a text, merged; never the text itself.

A span becomes a ``Finding`` of the policy once its place is known. Input from another
process is parsed here, and anything unexpected in it is refused.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from curtilage.policy.decision.classes import is_class
from curtilage.policy.decision.findings import Finding, Normalization, Where

MAX_SCORE = 100
MAX_SPANS_PER_CLASS = 64  # of one text and reading; more would change no decision
MAX_DETECTOR_CHARS = 64
MAX_OFFSET = 2**31
_FIELDS = 9

SpanFields = tuple[int, str, str, int, int, int, bool, str, tuple[str, ...]]


class GarbageError(Exception):
    """A detector's result is not a list of spans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One finding in one text; ``Finding`` without the place.

    Attributes:
        data_class: a name of the class tree.
        detector: its fixed name, never content.
        start: first character, an offset into the text in this form.
        end: one past the last character.
        score: 0 to 100.
        validated: a check digit or checksum held.
        normalization: the reading of the text to which the offsets belong.
        listed: the policy's lists that contain the found text.
    """

    data_class: str
    detector: str
    start: int
    end: int
    score: int
    validated: bool = False
    normalization: Normalization = Normalization.RAW
    listed: tuple[str, ...] = ()

    def at(self, where: Where) -> Finding:
        """Return the finding: this span at its place."""
        return Finding(
            data_class=self.data_class,
            detector=self.detector,
            start=self.start,
            end=self.end,
            score=self.score,
            validated=self.validated,
            normalization=self.normalization,
            where=where,
            listed=self.listed,
        )


def whole(data_class: str, detector: str, length: int) -> Span:
    """Return a span over a whole text: a statement about it, not a position in it."""
    return Span(
        data_class=data_class,
        detector=detector,
        start=0,
        end=length,
        score=MAX_SCORE,
    )


def failure(data_class: str, detector: str, where: Where) -> Finding:
    """Return the finding for a detector that gave no result."""
    return whole(data_class, detector, 0).at(where)


def checked(spans: Iterable[object], *, length: int) -> tuple[Span, ...]:
    """Return a detector's findings, or refuse them as a whole.

    Args:
        spans: the detector's own result, of any shape.
        length: of the text that it got.

    Raises:
        GarbageError: one of them is not a span of this text; the message says no more.
    """
    found = tuple(spans)
    if not found:
        return ()
    good = tuple(each for each in found if isinstance(each, Span))
    if len(good) != len(found) or not all(_fits(each, length) for each in good):
        raise GarbageError("a detector's answer is not a list of spans")
    return good


def _fits(span: Span, length: int) -> bool:
    return (
        is_class(span.data_class)
        and _is_number(span.start, length)
        and _is_number(span.end, length)
        and _is_number(span.score, MAX_SCORE)
        and span.start <= span.end
    )


def _is_number(value: object, most: int) -> bool:
    # ``type``: in Python, True is an int.
    return type(value) is int and 0 <= value <= most


def merge(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Join overlapping spans of one class and drop redundant ones.

    The best of overlapping spans of one class in one reading is kept: a validated one
    first, then the highest score, then the longest. A span of another reading is kept
    only if the raw text shows fewer of its class.
    """
    by_form: dict[tuple[str, Normalization], list[Span]] = defaultdict(list)
    for span in spans:
        by_form[span.data_class, span.normalization].append(span)
    kept = {key: _best_apart(group) for key, group in by_form.items()}
    raw = {
        name: len(each)
        for (name, form), each in kept.items()
        if form is Normalization.RAW
    }
    return tuple(
        span
        for (name, form), group in sorted(kept.items())
        if form is Normalization.RAW or len(group) > raw.get(name, 0)
        for span in group[:MAX_SPANS_PER_CLASS]
    )


def _best_apart(spans: Sequence[Span]) -> list[Span]:
    """Return the best spans that do not overlap, in the text's order."""
    kept: list[Span] = []
    for span in sorted(spans, key=lambda each: (each.start, each.end)):
        if not kept or span.start >= kept[-1].end:
            kept.append(span)
            continue
        last = kept[-1]
        best = max(
            last,
            span,
            key=lambda each: (each.validated, each.score, each.end - each.start),
        )
        # Listed only if both are: an exclusion must not remove a span that absorbed one
        # to which it does not apply.
        if last.listed != span.listed:
            common = tuple(name for name in last.listed if name in span.listed)
            best = replace(best, listed=common)
        kept[-1] = best
    return kept


def to_fields(leaf: int, span: Span) -> SpanFields:
    """Return a span as a JSON array, with the index of its text."""
    return (
        leaf,
        span.data_class,
        span.detector,
        span.start,
        span.end,
        span.score,
        span.validated,
        span.normalization.value,
        span.listed,
    )


def parse_found(
    value: object,
    places: Sequence[Sequence[Where]],
    *,
    lists: frozenset[str] = frozenset(),
) -> list[tuple[Finding, ...]]:
    """Read a worker's result for several conversations; see ``parse_findings``.

    Raises:
        GarbageError: anything unexpected, or another count; the message says no more.
    """
    items = cast("list[object]", value) if isinstance(value, list) else []
    if not isinstance(value, list) or len(items) != len(places):
        raise GarbageError("the worker's answer is for other conversations")
    return [
        parse_findings(each, at, lists=lists)
        for each, at in zip(items, places, strict=True)
    ]


def parse_findings(
    value: object, places: Sequence[Where], *, lists: frozenset[str] = frozenset()
) -> tuple[Finding, ...]:
    """Read a worker's findings in the texts at ``places``.

    Trusts nothing in ``value``: hostile texts may have compromised the worker.
    ``lists`` are the names that are valid in ``listed``.

    Raises:
        GarbageError: anything unexpected; the message says no more.
    """
    if not isinstance(value, list):
        raise GarbageError("the worker's answer is not a list")
    items = cast("list[object]", value)
    return tuple(_parse_one(each, places, lists) for each in items)


def _parse_one(
    value: object, places: Sequence[Where], lists: frozenset[str]
) -> Finding:
    fields = cast("list[object]", value) if isinstance(value, list) else []
    # Exactly these fields and types. In Python, ``true`` matches ``int``; it is refused
    # below, together with values out of range.
    match fields:
        case [
            int(leaf),
            str(name),
            str(detector),
            int(start),
            int(end),
            int(score),
            bool(validated),
            str(form),
            listed,
        ]:
            span = Span(
                data_class=name,
                detector=detector,
                start=start,
                end=end,
                score=score,
                validated=validated,
                normalization=_parse_normalization(form),
                listed=_parse_listed(listed, lists),
            )
        case _:
            raise GarbageError(f"a finding has {_FIELDS} fields of fixed types")
    if type(leaf) is bool or not 0 <= leaf < len(places):
        raise GarbageError("a finding refers to a text that was not sent")
    if not _fits(span, MAX_OFFSET) or not _is_name(detector):
        raise GarbageError("a finding's fields are out of range")
    return span.at(places[leaf])


def _parse_listed(value: object, lists: frozenset[str]) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise GarbageError("the lists of a finding are not a list")
    items = cast("list[object]", value)
    names = tuple(each for each in items if isinstance(each, str) and each in lists)
    if len(names) != len(items):
        raise GarbageError("a finding is in a list that the policy does not have")
    return names


def _parse_normalization(name: str) -> Normalization:
    try:
        return Normalization(name)
    except ValueError:
        raise GarbageError("a finding names no normalization") from None


def _is_name(name: str) -> bool:
    """Return whether a detector's name is valid: it must not carry a text."""
    plain = name.replace("-", "").replace(".", "").replace("_", "")
    return len(name) <= MAX_DETECTOR_CHARS and plain.isascii() and plain.isalnum()
