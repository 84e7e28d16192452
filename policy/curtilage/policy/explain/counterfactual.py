"""Counterfactuals: the smallest change that leads to a less private route.

Calls ``assess`` repeatedly with fewer findings and reports the smallest set that
matters. It builds a ``WhatIf`` for that, which never leads to an ``Allowed``. It
knows classes, places and scores, never a text.

Removing a finding never makes a route more private, so three steps find the
smallest set: a finding that keeps the route when everything else is removed must
be in the set; then sets of the rest are tried by size; where that is too much work,
findings are put back one by one while the route is still changed, and the result
says that it may not be the smallest.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, islice
from typing import Final

from curtilage.policy.decision.classes import UNCERTAIN_ERROR, is_uncertain
from curtilage.policy.decision.conditions import MAX_SCORE
from curtilage.policy.decision.decide import WhatIf, assess
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.routes import Route, most_private
from curtilage.policy.decision.rules import (
    DEFAULT,
    FIGURE,
    PERSON,
    STRICT_TOPICS,
    TIERS,
)
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.model import Policy

# Beyond these, places are not distinguished, and sets are not tried by size.
MAX_PLACES: Final = 48
MAX_TRIES: Final = 2000

_HISTORY: Final = -1
_DEFAULT: Final = -2
_FLOOR: Final = -3

_Things = frozenset[int]  # indices of findings, _HISTORY, _DEFAULT, _FLOOR


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A finding without which the route would be different.

    Attributes:
        data_class: what it was found to be.
        where: the text it is in, or None: wherever it was found.
        start: first character, an offset into that text in ``normalization``.
        end: one past the last character.
        normalization: the reading to which the offsets belong.
        score: how surely it was found.
        below: had it been found with less than this, that would have been
            enough; None where no threshold matters.
    """

    data_class: str
    where: Where | None
    start: int
    end: int
    normalization: Normalization
    score: int
    below: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Everything that would have to be different, and the result.

    Attributes:
        absent: findings that would not be there.
        history: the conversation would not have been pinned before.
        default: the policy's ``default.decision`` would be ``enclave``.
        route: where the query could go then.
        rule: what would decide then.
        smallest: no smaller change suffices; if false, no part of it does.
        floor: the sender would not have wanted it kept local.
    """

    absent: tuple[Absent, ...]
    history: bool
    default: bool
    route: Route
    rule: str
    smallest: bool
    floor: bool = False


def smallest_change(policy: Policy, inspection: WhatIf) -> Change | None:
    """Return the smallest change that leads to a less private route.

    Returns:
        None where the route is the least private one already, or where the policy
        keeps such a query whatever is found (``routing``).
    """
    search = _Search(policy, inspection)
    if search.decision.route is Route.ENCLAVE:
        return None
    gone, smallest = search.smallest()
    things = frozenset[int]().union(*gone)
    route, rule = search.outcome(things)
    if route is search.decision.route:
        return None
    return Change(
        absent=tuple(search.described(gone)),
        history=_HISTORY in things,
        default=_DEFAULT in things,
        route=route,
        rule=rule,
        smallest=smallest,
        floor=_FLOOR in things,
    )


def outcome_of(policy: Policy, inspection: WhatIf, change: Change) -> tuple[Route, str]:
    """Return the route and the deciding rule once a change was applied."""
    gone = frozenset(
        index
        for index, finding in enumerate(inspection.findings)
        if any(
            _matches(each, finding, class_of(policy, finding)) for each in change.absent
        )
    )
    others = [_HISTORY] * change.history + [_FLOOR] * change.floor
    return _outcome(
        policy,
        _without(inspection, gone.union(others)),
        default=not change.default,
    )


def _matches(absent: Absent, finding: Finding, name: str) -> bool:
    if absent.data_class != name:
        return False
    return absent.where is None or _place(finding) == (
        absent.where,
        absent.normalization,
        absent.start,
        absent.end,
    )


class _Search:
    """One inspection, and its result without some of its parts."""

    def __init__(self, policy: Policy, inspection: WhatIf) -> None:
        self._policy = policy
        self._inspection = _without(inspection, frozenset())
        self.decision = assess(policy.rulebook, self._inspection)
        self._by_place = True
        self._names = [class_of(policy, each) for each in inspection.findings]

    def outcome(
        self, gone: _Things, scores: Mapping[int, int] | None = None
    ) -> tuple[Route, str]:
        """Return the route and the deciding rule without these.

        Args:
            gone: what is removed.
            scores: the highest score of a finding, by its index; None: its own.
        """
        inspection = self._inspection
        if scores is not None:
            findings = tuple(
                replace(each, score=min(each.score, scores.get(index, MAX_SCORE)))
                for index, each in enumerate(inspection.findings)
            )
            inspection = replace(inspection, findings=findings)
        return _outcome(
            self._policy, _without(inspection, gone), default=_DEFAULT not in gone
        )

    def smallest(self) -> tuple[Sequence[_Things], bool]:
        """Return the fewest units to remove, and whether the set is minimal."""
        units = tuple(self._units())
        # A unit that keeps the route when everything else is removed must be in the
        # set.
        everything = frozenset[int]().union(*units)
        needed = [u for u in units if not self._changes(everything - u)]
        rest = [u for u in units if u not in needed]
        # The rest by size, so the first set that changes the route is a smallest one.
        base = frozenset[int]().union(*needed)
        sizes = range(len(rest) + 1)
        sets = chain.from_iterable(combinations(rest, size) for size in sizes)
        for more in islice(sets, MAX_TRIES):
            if self._changes(base.union(*more)):
                return [*needed, *more], self._by_place
        # Too many sets to try: put back, one by one, what is not needed.
        gone = list(rest)
        for unit in rest:
            without = [each for each in gone if each is not unit]
            if self._changes(base.union(*without)):
                gone = without
        return [*needed, *gone], False

    def described(self, gone: Sequence[_Things]) -> Iterator[Absent]:
        """Describe the findings among what is gone, each with its threshold."""
        away = frozenset[int]().union(*gone)
        scores: dict[int, int] = {}
        for unit in gone:
            if min(unit) < 0:
                continue
            below = self._below(unit, away - unit, scores)
            if below is not None:
                scores |= dict.fromkeys(unit, below - 1)
                away -= unit
            findings = [self._inspection.findings[index] for index in sorted(unit)]
            first = findings[0]
            yield Absent(
                data_class=self._names[min(unit)],
                where=first.where if self._by_place else None,
                start=first.start,
                end=first.end,
                normalization=first.normalization,
                score=max(finding.score for finding in findings),
                below=below,
            )

    def _changes(self, gone: _Things, scores: Mapping[int, int] | None = None) -> bool:
        route, _ = self.outcome(gone, scores)
        return route.privacy < self.decision.route.privacy

    def _units(self) -> Iterator[_Things]:
        """Yield the units that can be removed separately: findings first, by place."""
        relevant = self._relevant()
        groups: dict[object, list[int]] = defaultdict(list)
        named = [(i, name) for i, name in enumerate(self._names) if name in relevant]
        for index, name in named:
            groups[name, _place(self._inspection.findings[index])].append(index)
        # Then by class alone: fewer units, and an answer that may not be the smallest.
        if len(groups) > MAX_PLACES:
            self._by_place = False
            groups.clear()
            for index, name in named:
                groups[name].append(index)
        yield from map(frozenset, groups.values())
        if self._inspection.pinned:
            yield frozenset({_HISTORY})
        if self._inspection.floor is not RoutingClass.PUBLIC:
            yield frozenset({_FLOOR})
        if self._policy.document.default.decision is not Route.ENCLAVE:
            yield frozenset({_DEFAULT})

    def _relevant(self) -> frozenset[str]:
        """Return the classes whose absence can matter.

        Those that a deciding rule names, and those that keep an exclusion from
        taking effect, or a public figure from leaving as it is.
        """
        route = self.decision.route
        deciding = {hit.id for hit in self.decision.rules if hit.route is route}
        named = [r.condition.classes for r in self._policy.rules if r.id in deciding]
        named += [
            each.unless.classes
            for each in self._policy.exclusions
            if each.unless is not None
        ]
        if TIERS in deciding:
            tiering = self._policy.tiering
            named += [tiering.claimed, *(each.classes for each in tiering.demands)]
        if STRICT_TOPICS in deciding:
            named.append(frozenset(n for n in self._names if n.startswith("topic.")))
        if any(PERSON in each for each in named):
            figures = self._policy.rulebook.figures
            named.append(frozenset({FIGURE}))
            if figures is not None:
                named.append(figures.classes)
        return frozenset[str]().union(*named)

    def _below(
        self, unit: _Things, away: _Things, scores: Mapping[int, int]
    ) -> int | None:
        """Return the least score of a unit that would still keep the route."""
        findings = [self._inspection.findings[index] for index in unit]
        if any(is_uncertain(self._names[index]) for index in unit):
            return None
        # Binary search: a lower score never makes a route more private.
        low, high = -1, max(finding.score for finding in findings)
        while high - low > 1:
            middle = (low + high) // 2
            lowered = {**scores, **dict.fromkeys(unit, middle)}
            if self._changes(away, lowered):
                low = middle
            else:
                high = middle
        return high if low >= 0 else None


def _without(inspection: WhatIf, gone: _Things) -> WhatIf:
    kept = (each for index, each in enumerate(inspection.findings) if index not in gone)
    return WhatIf(
        findings=tuple(kept),
        messages=inspection.messages,
        pinned=inspection.pinned and _HISTORY not in gone,
        approved=inspection.approved,
        floor=RoutingClass.PUBLIC if _FLOOR in gone else inspection.floor,
    )


def _outcome(policy: Policy, inspection: WhatIf, *, default: bool) -> tuple[Route, str]:
    decision = assess(policy.rulebook, inspection)
    if default:
        return decision.route, decision.rule
    route = most_private([Route.ENCLAVE, *(hit.route for hit in decision.rules)])
    deciding = (hit.id for hit in decision.rules if hit.route is route)
    return route, next(deciding, DEFAULT)


def _place(finding: Finding) -> tuple[Where, Normalization, int, int]:
    return finding.where, finding.normalization, finding.start, finding.end


def class_of(policy: Policy, finding: Finding) -> str:
    """Return what a finding counts as; an invalid one is ``uncertain.error``."""
    known = finding.data_class in policy.classes
    sensible = known and 0 <= finding.score <= MAX_SCORE
    return finding.data_class if sensible else UNCERTAIN_ERROR
