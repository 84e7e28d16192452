"""Detectors from a policy: its patterns, its words, its exact values.

They are built from the plan, in the detectors' process. Patterns are RE2's, so that no
policy can make a text hang. Exact values are known only as HMACs. A detector that
cannot be built fails on every text, so that nothing is sent without it.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NoReturn

from curtilage.client.detection.detectors.patterns import check_digits as checks
from curtilage.client.detection.detectors.patterns.re2 import (
    LinearError,
    LinearPattern,
    encodable,
    linear,
)
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.scanner import (
    AS_WRITTEN,
    EVERY_FORM,
    NOT_COMPACT,
    Detector,
    Equipment,
)
from curtilage.client.detection.spans import MAX_SCORE, Span
from curtilage.client.detection.wordlists import (
    ACRONYMS,
    AMBIGUOUS,
    COMMON,
    GIVEN,
    PROPER,
)
from curtilage.policy.decision.findings import Normalization
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.detection_plan import OwnDetector
from curtilage.policy.document.dictionaries import folded
from curtilage.policy.document.exact_list import ExactList

MAX_WORD_ALARMS: Final = 1  # of 1,000 ordinary words, for an exact list
MAX_TEXT_ALARMS: Final = 1  # of 100 ordinary texts
_DIGEST_CHARS: Final = 64
# A word, or one mark; dashes and underscores join words and are omitted.
_TOKEN = re.compile(r"[^\W_]+|[^\w\s\-\u2010-\u2015]")

Place = tuple[int, int]
Places = Callable[[str], Iterable[Place]]


class BrokenDetector:
    """Replaces a detector that could not be built: it fails on every text."""

    broken = True

    def __init__(self, detector_id: str) -> None:
        self._id = detector_id

    @property
    def id(self) -> str:
        """The name of the replaced detector."""
        return self._id

    def find(self, reading: Reading) -> NoReturn:
        """Raise; the text is not examined."""
        del reading
        raise RuntimeError("a detector of the policy could not be built")


def problem_with(plan: OwnDetector) -> tuple[str, str]:
    """Build a policy's detector and drop it; return what is wrong with it.

    Returns:
        The key of the wrong entry, empty if it is the whole, and the reason; both are
        empty if nothing is wrong.
    """
    try:
        detector = PolicyDetector(plan)
        if plan.kind == "edm" and (problem := _false_alarms(detector)):
            return "file", problem
    except LinearError as error:
        return "pattern", str(error)
    except ImportError:
        return "", "needs the extra 'pii', which is not installed here"
    except (KeyError, ValueError):
        return "", "cannot be built from what it names"
    return "", ""


def pattern_problem(recognizer: str) -> str:
    """Return what is wrong with the patterns of one of the operator's recognizers.

    Args:
        recognizer: as in ``recognizers.recognizers_of``.

    Returns:
        Its name, the pattern's, and the reason; empty if nothing is wrong.
    """
    import regex  # noqa: PLC0415 - Presidio's own dependency

    fields = json.loads(recognizer)
    for each in fields["patterns"]:
        try:
            regex.compile(each["regex"], regex.IGNORECASE)
        except regex.error:
            return f"{fields['name']}, {each['name']}: not a valid pattern"
    return ""


def slow_patterns(recognizer: str) -> tuple[str, ...]:
    """Return the names of patterns that RE2 cannot run; they depend on the deadline.

    Args:
        recognizer: as for ``pattern_problem``.
    """
    fields = json.loads(recognizer)
    return tuple(
        each["name"] for each in fields["patterns"] if linear(each["regex"]) is None
    )


def _false_alarms(detector: "PolicyDetector") -> str:
    """Return how an exact list matches ordinary text; empty if it hardly does.

    A list of a language's words, or of small numbers, is a mistake of its author, and
    would keep every query local.
    """
    # Imported only here, where the policy is loaded: the detectors' process must have
    # neither the code that reads YAML nor the code that verifies signatures.
    from curtilage.policy.cases import shipped_cases  # noqa: PLC0415

    listed = sorted(COMMON | PROPER | GIVEN | AMBIGUOUS | ACRONYMS)
    ordinary = [*listed, *map(str, range(10_000))]
    # More than three characters between two words, so that each is separate.
    apart = Reading(normalization=Normalization.RAW, text=" ~~~ ".join(ordinary))
    alarms = sum(1 for _ in detector.find(apart))
    # Also whole sentences, for entries of several words and very frequent ones.
    texts = [
        "\n".join(turn.content for turn in case.turns)
        for case in shipped_cases("default").cases
        if case.routes.get("default", case.routes.get("else")) is Route.ENCLAVE
    ]
    readings = (Reading(normalization=Normalization.RAW, text=each) for each in texts)
    met = sum(1 for each in readings if any(True for _ in detector.find(each)))
    if alarms * 1000 <= MAX_WORD_ALARMS * len(
        ordinary
    ) and met * 100 <= MAX_TEXT_ALARMS * len(texts):
        return ""
    return (
        f"finds {alarms:,} of {len(ordinary):,} ordinary words and numbers, and "
        f"something in {met} of {len(texts)} harmless texts: almost no query could "
        "be sent; make the list with `curtilage policy list-make`, which omits such "
        "entries"
    )


def or_broken(
    detector_id: str, build: Callable[[], Detector], forms: frozenset[Normalization]
) -> tuple[Detector, frozenset[Normalization]]:
    """Return a detector with the readings it takes, or one that fails instead."""
    try:
        return build(), forms
    except Exception:  # noqa: BLE001 - on any error, nothing may be sent
        return BrokenDetector(detector_id), AS_WRITTEN


def own_detectors(plan: Iterable[OwnDetector]) -> Equipment:
    """Return a policy's own detectors, each with the readings it takes.

    Never raises. The compact reading joins lines and spaces, so a pattern runs on it
    only with a check that separates matches from accidents.
    """
    return tuple(
        or_broken(
            each.id,
            partial(PolicyDetector, each),
            NOT_COMPACT if each.kind == "regex" and not each.validate else EVERY_FORM,
        )
        for each in plan
    )


class PolicyDetector:
    """One detector of a policy."""

    def __init__(self, plan: OwnDetector) -> None:
        """Build the detector.

        Raises:
            KeyError: there is no check of that name.
            ValueError: its pattern or its entries cannot be used.
        """
        self._plan = plan
        self._places = _places_of(plan)
        self._check = checks.NAMED[plan.validate] if plan.validate else None
        self._excluded = frozenset(map(folded, plan.exclude))
        self._context = _words_in_order(plan.context) if plan.context else None

    @property
    def id(self) -> str:
        """The name from the policy."""
        return self._plan.id

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield each hit that its check does not refute."""
        text = reading.text
        context: list[Place] | None = None
        for start, end in self._places(text):
            found = text[start:end]
            if folded(found) in self._excluded:
                continue
            if self._check is not None and not self._check(found):
                continue
            if context is None:
                context = [] if self._context is None else [*self._context(text)]
            yield self._span((start, end), context)

    def _span(self, place: Place, context: Sequence[Place]) -> Span:
        plan = self._plan
        boost = plan.boost if _is_near(place, context, plan.window) else 0
        return Span(
            data_class=plan.data_class,
            detector=plan.id,
            start=place[0],
            end=place[1],
            score=min(plan.base_score + boost, MAX_SCORE),
            validated=self._check is not None,
        )


def _is_near(place: Place, context: Sequence[Place], window: int) -> bool:
    """Return whether a context word is in the window around a place."""
    return any(
        max(place[0], start) - min(place[1], end) <= window for start, end in context
    )


def _places_of(plan: OwnDetector) -> Places:
    if plan.kind == "regex":
        return LinearPattern(plan.pattern).spans
    if plan.kind == "dictionary":
        return _words_in_order(plan.entries)
    salt = bytes.fromhex(plan.salt)
    if not salt or not (plan.table or plan.entries):
        raise ValueError("exact values need digests and a salt")
    if any(len(each) != _DIGEST_CHARS for each in plan.entries):
        raise ValueError("an exact value is known by a digest of 32 bytes")
    exact = (
        ExactList.parse(plan.table, salt=salt)
        if plan.table
        else ExactList.of_digests(plan.entries)
    )
    return lambda text: exact.places(encodable(text), salt=salt)


# --- words ---------------------------------------------------------------------


@dataclass(slots=True)
class _Node:
    """A node in the tree of entries; ``ends`` if an entry ends here."""

    after: dict[str, "_Node"] = field(default_factory=dict["str", "_Node"], repr=False)
    ends: bool = False


def _words_in_order(entries: Iterable[str]) -> Places:
    """Return a function that finds many entries, ignoring case and spacing.

    Raises:
        ValueError: an entry has no word.
    """
    root = _Node()
    for entry in entries:
        tokens = [token for token, _ in _tokens(folded(entry))]
        if not tokens:
            raise ValueError("an entry of a dictionary has no word")
        node = root
        for token in tokens:
            node = node.after.setdefault(token, _Node())
        node.ends = True
    if not root.after:
        raise ValueError("a dictionary has no entry")
    return partial(_entries_in, root)


def _entries_in(root: _Node, text: str) -> Iterator[Place]:
    """Yield the longest entry at each word, whole words only."""
    tokens = list(_tokens(text))
    for at in range(len(tokens)):
        end = _end_of_entry(root, tokens, at)
        if end is not None:
            yield tokens[at][1][0], end


def _end_of_entry(
    root: _Node, tokens: Sequence[tuple[str, Place]], at: int
) -> int | None:
    node, end = root.after.get(tokens[at][0]), None
    while node is not None:
        if node.ends:
            end = tokens[at][1][1]
        at += 1
        node = node.after.get(tokens[at][0]) if at < len(tokens) else None
    return end


def _tokens(text: str) -> Iterator[tuple[str, Place]]:
    """Yield words and marks, folded, with their positions."""
    for match in _TOKEN.finditer(text):
        word = match[0]
        if word.isascii():
            yield word.lower(), match.span()
        else:
            # Folding can make several words of one character.
            for part in _TOKEN.findall(folded(word)):
                yield part, match.span()
