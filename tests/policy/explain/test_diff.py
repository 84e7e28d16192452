from curtilage.policy.decision.decide import Decision
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.tiers import Tiering
from curtilage.policy.explain.diff import Compared, Move, difference


def decision(route: Route, rule: str) -> Decision:
    return Decision(
        route=route,
        classes=(),
        rules=(),
        rule=rule,
        reason="",
        uncertain=(),
        policy_digest="sha256:0",
        allowed=None,
        permitted=Tiering().permitted(route, frozenset()),
    )


def compared(line: int, old: tuple[Route, str], new: tuple[Route, str]) -> Compared:
    return Compared(id=f"q{line}", line=line, old=decision(*old), new=decision(*new))


LOCAL, ENCLAVE = Route.LOCAL, Route.ENCLAVE
FOUND = difference(
    [
        compared(1, (LOCAL, "a"), (LOCAL, "b")),
        compared(2, (LOCAL, "a"), (ENCLAVE, "default")),
        compared(3, (ENCLAVE, "default"), (LOCAL, "b")),
        Compared(id=None, line=4, old=None, new=None),
        compared(5, (ENCLAVE, "default"), (LOCAL, "b")),
        compared(6, (LOCAL, "b"), (Route.BLOCK, "c")),
    ]
)


def test_only_another_route_is_a_move() -> None:
    assert [move.line for move in FOUND.moves] == [2, 3, 5, 6]
    assert FOUND.moves[0] == Move(
        id="q2",
        line=2,
        before=LOCAL,
        after=ENCLAVE,
        rule_before="a",
        rule_after="default",
    )


def test_unreadable_lines_are_counted_apart() -> None:
    assert (FOUND.queries, FOUND.unreadable) == (5, 1)


def test_totals_come_most_frequent_first() -> None:
    assert list(FOUND.totals().items()) == [
        ((ENCLAVE, LOCAL), 2),
        ((LOCAL, ENCLAVE), 1),
        ((LOCAL, Route.BLOCK), 1),
    ]


def test_the_stricter_side_names_the_rule() -> None:
    assert FOUND.rules() == {"b": 2, "a": 1, "c": 1}


def test_a_move_has_a_direction() -> None:
    assert [move.more_private for move in FOUND.moves] == [False, True, True, True]
