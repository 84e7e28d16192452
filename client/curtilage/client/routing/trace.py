"""The trace: one line for each query, of which no word can be told.

What somebody needs who wants to know whether routing pays, and no more: what kind of
task it was, which tiers might have answered, which one did and why, and how long that
took. Everything is a word of a closed set, a name of the policy's, or a class of sizes
or times (``length_class``, ``token_class``, ``time_class``): no text, no digest of one,
no exact length, no identifier by which two lines could be joined.

The file is JSON Lines, for its owner alone, and bounded: at ``MAX_BYTES`` it becomes
``NAME.1``, and what was there before is gone. Reading is strict, and so is writing: a
line that holds anything else cannot be made.
"""

import errno
import json
import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum, unique
from pathlib import Path
from typing import Any, Final, Self, cast

from curtilage.client.errors import ConfigError, UsageError
from curtilage.client.files import (
    locked,
    make_private_folder,
    open_ordinary,
    open_private,
)
from curtilage.policy.decision.tiers import RoutingClass

VERSION: Final = 1
TRACE_NAME: Final = "routing.jsonl"
"""Of a user's own trace, in the client's ``state_folder``."""
MAX_BYTES: Final = 16 * 1024 * 1024
MAX_LINE_BYTES: Final = 8192
LENGTHS: Final = tuple(4**power for power in range(3, 13))  # 64 to 16 Mi characters
TOKENS: Final = tuple(2**power for power in range(4, 21))  # 16 to 1 Mi
TIMES_MS: Final = tuple(
    digit * 10**zeros for zeros in (1, 2, 3, 4, 5) for digit in (1, 2, 3, 5, 7)
)  # 10 ms to 700 s

_WAIT_S: Final = 0.05
_MINUTE: Final = "%Y-%m-%dT%H:%MZ"
_WORD: Final = re.compile(r"[a-z][a-z0-9_.-]{0,127}")
_MOST_WORDS: Final = 128


@unique
class TraceOutcome(StrEnum):
    """How a query ended; a closed set.

    ``ANSWERED``: in full. ``INCOMPLETE``: an answer began and was cut. ``REFUSED``: it
    had none. ``GRADED``: no query, but somebody's later word on an answer; the line
    repeats the tier, the intent and the routing class that the answer had, and nothing
    else of it (``TraceLine.graded``).
    """

    ANSWERED = "answered"
    INCOMPLETE = "incomplete"
    REFUSED = "refused"
    GRADED = "graded"


def length_class(characters: int) -> int:
    """Return the class of a text's length: the next power of 4 characters."""
    return _class_of(characters, LENGTHS)


def token_class(tokens: int) -> int:
    """Return the class of a number of tokens: the next power of 2, 16 at least."""
    return _class_of(tokens, TOKENS)


def time_class(seconds: float) -> int:
    """Return the class of a time in ms: the next of 10, 20, 30, 50, 70, 100, ..."""
    return _class_of(seconds * 1000, TIMES_MS)


def model_tag(sha256: str, adapter: str = "") -> str:
    """Return what the trace calls a model: enough of its digests to tell a few apart.

    Never its name: whoever names a file may call it what they like.
    """
    return "-".join(("m", sha256[:16], *((adapter[:16],) if adapter else ())))


def _class_of(value: float, edges: tuple[int, ...]) -> int:
    return edges[min(bisect_left(edges, value), len(edges) - 1)]


def below(value: int, edges: tuple[int, ...]) -> int:
    """Return where a class begins: the class below it, or 0."""
    at = edges.index(value)
    return edges[at - 1] if at else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLine:
    """One query, coarsely.

    Attributes:
        at: the minute, in UTC.
        intent: what was asked for, as the estimator names it.
        length: class of the text's length in characters.
        classes: data classes found, ``uncertain.*`` among them; sorted.
        routing_class: how much the query might risk.
        permitted: ids of the tiers that might have answered, the most private first.
        tier: which one answered, or was to; None where none was.
        why: the reason for that choice, or for there being none.
        ttft_ms: class of the time to the first text; None without any.
        total_ms: class of the time to the end.
        prompt_tokens: class of the query's tokens.
        answer_tokens: class of the answer's tokens; None without any.
        outcome: how it ended.
        fallback: why another tier than the chosen one answered, or None.
        feedback: whether the answer was good, where somebody said so.
        would_choose: while observing, the tier that the router would have chosen.
        model: the home model that answered, where one is rolled out: ``model_tag`` of
            its file.
    """

    at: str
    intent: str
    length: int
    classes: tuple[str, ...]
    routing_class: RoutingClass
    permitted: tuple[str, ...]
    why: str
    total_ms: int
    prompt_tokens: int
    outcome: TraceOutcome
    tier: str | None = None
    ttft_ms: int | None = None
    answer_tokens: int | None = None
    fallback: str | None = None
    feedback: bool | None = None
    would_choose: str | None = None
    model: str | None = None

    def __post_init__(self) -> None:
        """Refuse whatever is no word of a set and no class of sizes or times.

        Raises:
            UsageError: something is; names the field and never its value.
        """
        _ = self.minute
        words = {
            "intent": (self.intent,),
            "why": (self.why,),
            "classes": self.classes,
            "permitted": self.permitted,
            "tier": _there(self.tier),
            "fallback": _there(self.fallback),
            "would_choose": _there(self.would_choose),
            "model": _there(self.model),
        }
        for name, found in words.items():
            if len(found) > _MOST_WORDS or not all(map(_WORD.fullmatch, found)):
                raise UsageError(f"'{name}' of a trace line holds no such word")
        sizes = {
            "length": (self.length, LENGTHS),
            "ttft_ms": (self.ttft_ms, TIMES_MS),
            "total_ms": (self.total_ms, TIMES_MS),
            "prompt_tokens": (self.prompt_tokens, TOKENS),
            "answer_tokens": (self.answer_tokens, TOKENS),
        }
        for name, (size, edges) in sizes.items():
            if size is not None and size not in edges:
                raise UsageError(f"'{name}' of a trace line is no class")

    @property
    def minute(self) -> datetime:
        """When it was.

        Raises:
            UsageError: ``at`` is no minute.
        """
        try:
            read = datetime.strptime(self.at, _MINUTE).replace(tzinfo=UTC)
        except ValueError:
            read = None
        if read is None or read.strftime(_MINUTE) != self.at:
            raise UsageError("'at' of a trace line is no minute")
        return read

    @property
    def answered(self) -> bool:
        """Whether it stands for a query that a tier answered."""
        return self.tier is not None and self.outcome in {
            TraceOutcome.ANSWERED,
            TraceOutcome.INCOMPLETE,
        }

    def graded(self, *, good: bool, at: str) -> Self:
        """Return what somebody's word on this answer leaves in the trace.

        It tells who answered and what kind of task it was, and nothing else of the
        answer: the more the two lines share, the sooner they could be joined.

        Args:
            good: the word.
            at: the minute in which it was said.
        """
        return replace(
            self,
            at=at,
            length=LENGTHS[0],
            classes=(),
            permitted=(),
            why="graded",
            ttft_ms=None,
            total_ms=TIMES_MS[0],
            prompt_tokens=TOKENS[0],
            answer_tokens=None,
            outcome=TraceOutcome.GRADED,
            fallback=None,
            feedback=good,
            would_choose=None,
        )

    def encoded(self) -> bytes:
        """Return the line, its end included."""
        said = {"v": VERSION} | {
            name: value
            for name, value in asdict(self).items()
            if value is not None and value != ()
        }
        return json.dumps(said, separators=(",", ":")).encode("ascii") + b"\n"

    @classmethod
    def parse(cls, line: bytes) -> Self:
        """Read a line.

        Raises:
            UsageError: it is none; says what is wrong, never what stands there.
        """
        said = _object_of(line)
        if said.pop("v", None) != VERSION:
            raise UsageError(f"is of another version than {VERSION}")
        for name, found in said.items():
            if not _is(found, _KINDS.get(name)):
                raise UsageError("has an unknown key, or a value of another kind")
        for name in ("classes", "permitted"):
            said[name] = tuple(said.get(name, ()))
        try:
            said["routing_class"] = RoutingClass(said.get("routing_class", ""))
            said["outcome"] = TraceOutcome(said.get("outcome", ""))
            return cls(**said)
        except (TypeError, ValueError):  # a field that must be there, another word
            raise UsageError("lacks a field, or has an unknown word") from None


_KINDS: Final[dict[str, type]] = {
    **dict.fromkeys(("at", "intent", "routing_class", "tier", "why"), str),
    **dict.fromkeys(("outcome", "fallback", "would_choose", "model"), str),
    **dict.fromkeys(("classes", "permitted"), list),
    **dict.fromkeys(("length", "total_ms", "ttft_ms"), int),
    **dict.fromkeys(("prompt_tokens", "answer_tokens"), int),
    "feedback": bool,
}


def _object_of(line: bytes) -> dict[str, Any]:
    if len(line) > MAX_LINE_BYTES:
        raise UsageError("is too long")
    try:
        value: object = json.loads(line, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UsageError("is no JSON object, or has a key twice")
    return cast("dict[str, Any]", value)


def _is(value: object, kind: type | None) -> bool:
    if isinstance(value, list):
        parts = cast("list[object]", value)
        return kind is list and all(isinstance(each, str) for each in parts)
    return type(value) is kind  # true is an integer in Python


def _there(word: str | None) -> tuple[str, ...]:
    return () if word is None else (word,)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def minute_of(time: datetime) -> str:
    """Return the minute of a time, as a trace line has it."""
    return time.astimezone(UTC).strftime(_MINUTE)


def read_trace(lines: Iterable[bytes]) -> Iterator[TraceLine]:
    """Read the lines of a trace.

    Raises:
        UsageError: a line is none; says which.
    """
    for number, line in enumerate(lines, start=1):
        try:
            yield TraceLine.parse(line)
        except UsageError as error:
            raise UsageError(f"line {number} of the trace: {error}") from None


def read_trace_file(path: Path) -> tuple[TraceLine, ...]:
    """Read a trace, the part of it that was put aside first.

    Raises:
        ConfigError: there is none, or it cannot be read.
        UsageError: a line is none; says which, of which file.
    """
    lines: list[TraceLine] = []
    aside = _aside(path)
    for part in (aside, path) if aside.exists() else (path,):
        try:
            with open_ordinary(part) as file:
                lines += read_trace(file)
        except OSError as failure:
            raise ConfigError(f"{part}: {failure.strerror}") from None
        except UsageError as error:
            raise UsageError(f"{part}: {error}") from None
    return tuple(lines)


def read_grades(path: Path, model: str) -> tuple[bool, ...]:
    """Read what was said of a home model's answers, oldest first; no trace: nothing.

    Args:
        path: of the trace; the part that was put aside is read first.
        model: as ``model_tag``.

    Raises:
        ConfigError: the trace cannot be read.
        UsageError: a line with a grade is none.
    """
    grades: list[bool] = []
    for part in (_aside(path), path):
        try:
            with open_ordinary(part) as file:
                # Few lines are, and only these are worth being parsed.
                for data in (line for line in file if b'"graded"' in line):
                    line = TraceLine.parse(data)
                    if line.model == model and line.feedback is not None:
                        grades.append(line.feedback)
        except FileNotFoundError:
            continue
        except OSError as failure:
            raise ConfigError(f"{part}: {failure.strerror}") from None
        except UsageError as error:
            raise UsageError(f"{part}: a line {error}") from None
    return tuple(grades)


class TraceFile:
    """Writes a trace; for several processes at once.

    Args:
        path: the file; its folder is made where it is missing.
        max_bytes: how large it may become before it is put aside.
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes

    def append(self, line: TraceLine) -> bool:
        """Write one line; tell whether it could be written.

        A full disk, or a folder that is gone, costs the line and nothing else: no
        answer waits for it longer than a twentieth of a second, and none fails.
        """
        data = line.encoded()
        try:
            make_private_folder(self._path.parent)
            with locked(self._path.with_name(f"{self._path.name}.lock"), _WAIT_S):
                self._write(data)
        except OSError:
            return False
        return True

    def _write(self, data: bytes) -> None:
        try:
            full = self._path.stat().st_size + len(data) > self._max_bytes
        except FileNotFoundError:
            full = False
        if full:
            self._path.replace(_aside(self._path))
        descriptor = open_private(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(descriptor).st_size
            if os.write(descriptor, data) < len(data):
                # The disk is full. Half a line would make all of it unreadable.
                os.ftruncate(descriptor, size)
                raise OSError(errno.ENOSPC, "no room for a line")
        finally:
            os.close(descriptor)


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")
