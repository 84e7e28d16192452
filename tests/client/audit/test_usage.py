"""How many questions each application asked, by a log."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from curtilage.client.audit.record import AuditEntry, Outcome, record_of
from curtilage.client.audit.span import Span
from curtilage.client.audit.usage import Usage
from support.audit_logs import ENTRY, NOW


def counted(
    lines: Sequence[tuple[AuditEntry, datetime]],
    since: datetime | None = None,
    until: datetime | None = None,
) -> dict[str, tuple[int, dict[str, int]]]:
    usage = Usage(Span(since=since, until=until))
    for seq, (entry, now) in enumerate(lines):
        usage.see(record_of(entry, seq=seq, prev="", now=now, key=bytes(32)), b"")
    return usage.counted()


def of(application: str, outcome: Outcome, attempt: int = 1) -> AuditEntry:
    return replace(ENTRY, application=application, outcome=outcome, attempt=attempt)


def test_questions_are_counted_once_and_outcomes_each() -> None:
    lines = [
        of("letters", Outcome.ENCLAVE),
        of("letters", Outcome.LOCAL, attempt=2),
        of("letters", Outcome.LOCAL),
        of("triage", Outcome.BLOCKED),
        of("", Outcome.LOCAL),
        # Of no question.
        of("", Outcome.COVER),
        of("", Outcome.CHALLENGE),
    ]
    assert counted([(each, NOW) for each in lines]) == {
        "": (1, {"local": 1}),
        "letters": (2, {"enclave": 1, "local": 2}),
        "triage": (1, {"blocked": 1}),
    }


def test_a_period_is_that_of_the_other_commands() -> None:
    hour = timedelta(hours=1)
    lines = [(of("letters", Outcome.LOCAL), NOW + hour * each) for each in range(6)]
    one = {"letters": (1, {"local": 1})}
    assert counted(lines, NOW + hour, NOW + 2 * hour) == one
    assert counted(lines, NOW + 5 * hour) == one
    assert counted(lines, until=NOW + hour) == one
    assert counted(lines, NOW + 9 * hour) == {}
    # Its time does not place it: the clock went back after it.
    back = [*lines, (of("triage", Outcome.LOCAL), NOW)]
    assert "triage" in counted(back, until=NOW + hour)
