"""Differences between two policies: queries by their ids, routes, and rules."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from curtilage.policy.decision.decide import Assessment
from curtilage.policy.decision.routes import Route

LineId = str | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A query that takes another route under the new policy.

    Attributes:
        id: the query's, as its line says; None where it says none.
        line: the line's number, from 1.
        before: its route under the old policy.
        after: its route under the new one.
        rule_before: what decides under the old policy.
        rule_after: what decides under the new one.
        approved: SHA-256 of each text in it that either policy approves, sorted.
    """

    id: LineId
    line: int
    before: Route
    after: Route
    rule_before: str
    rule_after: str
    approved: tuple[str, ...] = ()

    @property
    def more_private(self) -> bool:
        """Whether the new policy is stricter here."""
        return self.after.privacy > self.before.privacy


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The results of two policies for the same queries.

    Attributes:
        queries: how many were compared.
        unreadable: how many lines were unreadable; they are kept local either way.
        moves: those that would take another route, in order.
    """

    queries: int
    unreadable: int
    moves: tuple[Move, ...]

    def totals(self) -> Mapping[tuple[Route, Route], int]:
        """Return how many moves there are of each kind, the most frequent first."""
        counted = Counter((move.before, move.after) for move in self.moves)
        return dict(counted.most_common())

    def rules(self) -> Mapping[str, int]:
        """Return how often each rule makes the difference, most often first.

        Where a query becomes more private that is the new policy's deciding
        rule, and otherwise the old one's, which no longer decides.
        """
        deciding = (
            move.rule_after if move.more_private else move.rule_before
            for move in self.moves
        )
        return dict(Counter(deciding).most_common())


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One query under both policies.

    Attributes:
        id: the query's.
        line: the line's number, from 1.
        old: the decision under the old policy, or None: no query was readable.
        new: the decision under the new one, likewise.
        approved: SHA-256 of each text in it that either policy approves, sorted.
    """

    id: LineId
    line: int
    old: Assessment | None
    new: Assessment | None
    approved: tuple[str, ...] = ()


def difference(compared: Iterable[Compared]) -> Difference:
    """Collect what changes."""
    queries, unreadable, moves = 0, 0, list[Move]()
    for each in compared:
        if each.old is None or each.new is None:
            unreadable += 1
            continue
        queries += 1
        if each.old.route is not each.new.route:
            moves.append(
                Move(
                    id=each.id,
                    line=each.line,
                    before=each.old.route,
                    after=each.new.route,
                    rule_before=each.old.rule,
                    rule_after=each.new.rule,
                    approved=each.approved,
                )
            )
    return Difference(queries=queries, unreadable=unreadable, moves=tuple(moves))
