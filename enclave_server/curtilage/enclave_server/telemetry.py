"""The enclave's metrics: counts of events from a closed list, never their content.

Numbers only, and no way out: nothing here opens a connection, a file or a log. The
enclave's operator reads the counts through the launcher; ``StateLog`` writes lines
about changes of state, which contain nothing of any request. This is the only module of
the enclave server that may use ``logging``, and it does so to silence it.

Client, relay and enclave each have such a module: the parties share no code, so that
no change for one of them can affect another.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum, unique
from types import MappingProxyType
from typing import Final

LOUDER_THAN_ANYTHING: Final = logging.CRITICAL + 1
LIBRARY_LOGGERS: Final = (
    "aiohttp.access",
    "aiohttp.client",
    "aiohttp.internal",
    "aiohttp.server",
    "aiohttp.web",
    "aiohttp.websocket",
    "asyncio",
    "concurrent.futures",
)


@unique
class Event(StrEnum):
    """The events that may be counted, coarsely.

    ``FRAMES_SENT`` counts in units of the shortest answer's frames, and
    ``ANSWER_LATE`` counts answers, however many of their frames were late.
    """

    ANSWER_CANCELLED = "answer_cancelled"
    ANSWER_FAILED = "answer_failed"
    ANSWER_LATE = "answer_late"
    ANSWERED = "answered"
    BUNDLE_MADE = "bundle_made"
    BUNDLE_REFUSED = "bundle_refused"
    BUSY = "busy"
    CHALLENGE_FAILED = "challenge_failed"
    CHALLENGED = "challenged"
    COVERED = "covered"
    DATE_REFUSED = "date_refused"
    ENGINE_ENDED = "engine_ended"
    EVIDENCE_FAILED = "evidence_failed"
    FRAMES_SENT = "frames_sent"
    INNER_REFUSED = "inner_refused"
    INTERNAL_ERROR = "internal_error"
    KEY_MADE = "key_made"
    KEY_UNKNOWN = "key_unknown"
    MALFORMED_HTTP = "malformed_http"
    OPENED = "opened"
    OUTER_REFUSED = "outer_refused"
    REPLAYED = "replayed"
    UNOPENABLE = "unopenable"


@unique
class LogForm(StrEnum):
    """The format of a line about a change of state."""

    TEXT = "text"
    JSON = "json"


@unique
class State(StrEnum):
    """The state of a part in a line."""

    LOADED = "loaded"
    REFRESHED = "refreshed"
    DEGRADED = "degraded"
    FAILING = "failing"


@unique
class Part(StrEnum):
    """The part that a line is about."""

    MODEL = "model"
    EVIDENCE = "evidence"


@unique
class Reason(StrEnum):
    """Reason for a state that is less than ready; a closed set."""

    NOT_RENEWED = "evidence_not_renewed"
    EXPIRED = "evidence_expired"
    ENGINE_CRASHED = "engine_crashed"
    ENGINE_HUNG = "engine_hung"
    MODEL_UNAVAILABLE = "model_unavailable"


WORDS: Final[Mapping[Reason | State, str]] = {
    Reason.NOT_RENEWED: "new evidence is not available; the served one is still valid",
    Reason.EXPIRED: "the evidence has expired: no requests are accepted",
    Reason.ENGINE_CRASHED: "the engine's process ended and is started again",
    Reason.ENGINE_HUNG: "the engine's process hung and is started again",
    Reason.MODEL_UNAVAILABLE: "the model is not available; tried at intervals",
    State.LOADED: "the model is loaded",
    State.REFRESHED: "new evidence is served",
}


HOLD_S: Final = 30.0
"""The shortest time between two lines about one part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The state of a part; a different ``why`` is not a different state."""

    state: State
    reason: Reason | None = None
    until: datetime | None = None
    why: str = field(default="", compare=False)


@dataclass(slots=True)
class _Told:
    """What is known of one part, and what was written."""

    now: _Known | None = None
    written: _Known | None = None
    written_s: float = -HOLD_S
    waiting: bool = False


class StateLog:
    """Writes one line for each change of state; never about a request.

    A part that flaps gets a line every ``HOLD_S`` at most; when that time is over, the
    current state is written if it differs from the last one written.

    Args:
        form: the format of a line.
        write: takes a line.
        clock: the time, aware.
        monotonic: the time in seconds, of a clock that does not jump.
        later: schedules a call after so many seconds.
    """

    def __init__(
        self,
        form: LogForm,
        write: Callable[[str], object],
        clock: Callable[[], datetime],
        *,
        monotonic: Callable[[], float],
        later: Callable[[float, Callable[[], object]], object],
    ) -> None:
        self._form = form
        self._write = write
        self._clock = clock
        self._monotonic = monotonic
        self._later = later
        self._told = {part: _Told() for part in Part}

    def loaded(self) -> None:
        """Record that the model is loaded, and answers."""
        self._note(Part.MODEL, _Known(state=State.LOADED))

    def unloaded(self, reason: Reason, why: str) -> None:
        """Record that no model answers, and why."""
        known = _Known(state=State.FAILING, reason=reason, why=why)
        self._note(Part.MODEL, known)

    def refreshed(self, until: datetime) -> None:
        """Record that new evidence is served; happens once per renewal interval."""
        self._note(Part.EVIDENCE, _Known(state=State.REFRESHED, until=until))

    def failed(self, reason: Reason, why: str) -> None:
        """Record what is wrong with the evidence, and why; written once."""
        state = State.FAILING if reason is Reason.EXPIRED else State.DEGRADED
        self._note(Part.EVIDENCE, _Known(state=state, reason=reason, why=why))

    def _note(self, part: Part, known: _Known) -> None:
        self._told[part].now = known
        if not self._told[part].waiting:
            self._report(part)

    def _report(self, part: Part) -> None:
        told, now_s = self._told[part], self._monotonic()
        now, told.waiting = told.now, False
        if now is None or now == told.written:
            return
        wait_s = 0.0 if told.written is None else told.written_s + HOLD_S - now_s
        if wait_s > 0:
            told.waiting = True
            self._later(wait_s, lambda: self._report(part))
            return
        told.written, told.written_s = now, now_s
        self._line(part, now.state, now.reason, now.until, now.why)

    def _line(
        self,
        part: Part,
        state: State,
        reason: Reason | None = None,
        until: datetime | None = None,
        why: str = "",
    ) -> None:
        at, words = _seconds(self._clock()), WORDS[state if reason is None else reason]
        if self._form is LogForm.JSON:
            fields: dict[str, str] = {"time": at, "part": part, "state": state}
            if reason is not None:
                fields["reason"] = reason
            if until is not None:
                fields["until"] = _seconds(until)
            if why:
                fields["detail"] = why
            self._write(json.dumps(fields))
            return
        called = "" if reason is None else f" ({reason.value})"
        ends = "" if until is None else f"; until {_seconds(until)}"
        detail = f": {why}" if why else ""
        self._write(f"{at} {part.value}: {state.value}{called}: {words}{ends}{detail}")


def _seconds(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class Counters:
    """Counts of each event since the process began."""

    def __init__(self) -> None:
        self._counts: Counter[Event] = Counter()

    def count(self, event: Event) -> None:
        """Count one event.

        Raises:
            TypeError: not a member of ``Event``; a string may be content.
        """
        if not isinstance(event, Event):  # pyright: ignore[reportUnnecessaryIsInstance] - the types say so; make sure
            raise TypeError("only members of Event are counted")
        self._counts[event] += 1

    def snapshot(self) -> Mapping[str, int]:
        """Return every event's count, zeros included, in a fixed order.

        Zeros are included so that the shape of a report discloses nothing.
        """
        return MappingProxyType({event.value: self._counts[event] for event in Event})


def silent_logger() -> logging.Logger:
    """Return a logger that belongs to no tree and drops everything.

    For libraries that insist on one; the root logger's level and handlers
    cannot reach it.
    """
    logger = logging.Logger("silent", level=LOUDER_THAN_ANYTHING)  # noqa: LOG001 - outside the tree on purpose
    logger.addHandler(logging.NullHandler())
    logger.disabled = True
    return logger


def silence_libraries() -> None:
    """Silence the loggers of the libraries below us, whatever level is set.

    ``aiohttp.server`` would write a malformed request's bytes, ``asyncio`` the
    representation of objects that a failed task held.
    """
    for name in LIBRARY_LOGGERS:
        logger = logging.getLogger(name)
        logger.disabled = True
        logger.propagate = False
        logger.setLevel(LOUDER_THAN_ANYTHING)
