"""One line for each change of state, for an operator's log."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum, StrEnum, unique

from curtilage.client.telemetry.lists import label


@unique
class LogForm(StrEnum):
    """Format of a line about a change of state."""

    TEXT = "text"
    JSON = "json"


class StateLog:
    """Writes one line for each change of state; never about a query.

    Every word of a line is a member of a closed list, or is in ``words``.

    Args:
        form: the format.
        write: takes a line; its errors are ignored.
        words: the meaning of each reason.
        clock: the time, aware.
    """

    def __init__(
        self,
        form: LogForm,
        write: Callable[[str], object],
        *,
        words: Mapping[str, str],
        clock: Callable[[], datetime],
    ) -> None:
        self._form = form
        self._write = write
        self._words = words
        self._clock = clock

    def changed(
        self,
        part: Enum,
        state: Enum,
        *,
        tier: Enum | None = None,
        reason: Enum | None = None,
        until: datetime | None = None,
    ) -> None:
        """Write a line about a change.

        Args:
            part: the part.
            state: its new state, or the event.
            tier: if there are several of its kind.
            reason: the problem.
            until: expiry of what is in force.

        Raises:
            TypeError: a value is not a member of a closed list.
        """
        fields = {
            "time": _seconds(self._clock()),
            "part": label(part),
            "tier": None if tier is None else label(tier),
            "state": label(state),
            "reason": None if reason is None else label(reason),
            "until": None if until is None else _seconds(until),
        }
        shown = {name: value for name, value in fields.items() if value is not None}
        if self._form is LogForm.JSON:
            line = json.dumps(shown)
        else:
            which = f" {shown['tier']}" if "tier" in shown else ""
            line = f"{shown['time']} {shown['part']}{which}: {shown['state']}"
            words = self._words.get(shown.get("reason", shown["state"]))
            line += f" ({shown['reason']})" if "reason" in shown else ""
            line += f": {words}" if words else ""
            line += f"; until {shown['until']}" if "until" in shown else ""
        # A full disk or a closed pipe must not stop the client.
        with suppress(OSError, ValueError):
            self._write(line)


def _seconds(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
