"""The trace: one content-free line for each query.

It shows whether routing pays off, and nothing more: the kind of task, the permitted
tiers, which one answered and why, and how long it took. Every value is a word of a
closed set, a name from the policy, or a class of sizes or times (``length_class``,
``token_class``, ``time_class``). It contains no text, no digest of one, no exact
length, and no identifier that could link two lines.

The file is JSON Lines, readable by its owner only, and bounded: at ``MAX_BYTES`` it is
renamed to ``NAME.1``, which replaces the previous one. Reading and writing are strict:
a line with any other value cannot be created.
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
from curtilage.client.system.files import (
    locked,
    make_private_folder,
    open_ordinary,
    open_private,
)
from curtilage.policy.decision.tiers import RoutingClass

VERSION: Final = 1
TRACE_NAME: Final = "routing.jsonl"
"""Name of a user's own trace, in the client's ``state_folder``."""
MAX_BYTES: Final = 16 * 1024 * 1024
MAX_LINE_BYTES: Final = 8192
# Coarse on purpose: an exact length could identify a text that is known to someone who
# reads the trace.
LENGTHS: Final = tuple(4**power for power in range(3, 13))  # 64 to 16 Mi characters
TOKENS: Final = tuple(2**power for power in range(4, 21))  # 16 to 1 Mi
TIMES_MS: Final = tuple(
    digit * 10**zeros for zeros in (1, 2, 3, 4, 5) for digit in (1, 2, 3, 5, 7)
)  # 10 ms to 700 s

_WAIT_S: Final = 0.05
# Not to the second, or a line could be matched with an entry of another log.
_MINUTE: Final = "%Y-%m-%dT%H:%MZ"
# No spaces and no capitals: no phrase and no name fits, even if a fault passed one
# here.
_WORD: Final = re.compile(r"[a-z][a-z0-9_.-]{0,127}")
_MOST_WORDS: Final = 128


@unique
class TraceOutcome(StrEnum):
    """Result of a query; a closed set.

    ``ANSWERED``: complete. ``INCOMPLETE``: an answer began and was cut. ``REFUSED``:
    no answer. ``GRADED``: not a query, but later feedback on an answer; the line
    repeats the tier, the intent and the routing class of the answer, and nothing else
    (``TraceLine.graded``).
    """

    ANSWERED = "answered"
    INCOMPLETE = "incomplete"
    REFUSED = "refused"
    GRADED = "graded"


def length_class(characters: int) -> int:
    """Return the class of a text's length: the next power of 4 characters."""
    return _class_of(characters, LENGTHS)


def token_class(tokens: int) -> int:
    """Return the class of a number of tokens: the next power of 2, at least 16."""
    return _class_of(tokens, TOKENS)


def time_class(seconds: float) -> int:
    """Return the class of a time in ms: the next of 10, 20, 30, 50, 70, 100, ..."""
    return _class_of(seconds * 1000, TIMES_MS)


def model_tag(sha256: str, adapter: str = "") -> str:
    """Return a model's name in the trace: enough of its digests to distinguish a few.

    Never a file's name, which its user chose freely.
    """
    return "-".join(("m", sha256[:16], *((adapter[:16],) if adapter else ())))


def _class_of(value: float, edges: tuple[int, ...]) -> int:
    return edges[min(bisect_left(edges, value), len(edges) - 1)]


def below(value: int, edges: tuple[int, ...]) -> int:
    """Return the lower limit of a class: the class below it, or 0."""
    at = edges.index(value)
    return edges[at - 1] if at else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLine:
    """One query, in coarse values.

    Attributes:
        at: the minute, in UTC.
        intent: the task, as the estimator names it.
        length: class of the text's length in characters.
        classes: data classes found, including ``uncertain.*``; sorted.
        routing_class: the sensitivity of the query.
        permitted: ids of the permitted tiers, the most private first.
        tier: the one that answered, or was chosen; None if there was none.
        why: the reason for that choice, or for there being none.
        ttft_ms: class of the time to the first text; None without any.
        total_ms: class of the time to the end.
        prompt_tokens: class of the query's tokens.
        answer_tokens: class of the answer's tokens; None without any.
        outcome: how it ended.
        fallback: why another tier than the chosen one answered, or None.
        feedback: whether the answer was good, if there was feedback.
        would_choose: while observing, the tier that the router would have chosen.
        model: the local model that answered, if it belongs to a rollout:
            ``model_tag`` of its file.
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
        """Refuse any value that is not a word of a set or a class of sizes or times.

        Raises:
            UsageError: there is one; names the field and never its value.
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
                raise UsageError(f"'{name}' of a trace line is not a valid word")
        sizes = {
            "length": (self.length, LENGTHS),
            "ttft_ms": (self.ttft_ms, TIMES_MS),
            "total_ms": (self.total_ms, TIMES_MS),
            "prompt_tokens": (self.prompt_tokens, TOKENS),
            "answer_tokens": (self.answer_tokens, TOKENS),
        }
        for name, (size, edges) in sizes.items():
            if size is not None and size not in edges:
                raise UsageError(f"'{name}' of a trace line is not a class")

    @property
    def minute(self) -> datetime:
        """The time, to the minute.

        Raises:
            UsageError: ``at`` is not a minute.
        """
        try:
            read = datetime.strptime(self.at, _MINUTE).replace(tzinfo=UTC)
        except ValueError:
            read = None
        # ``strptime`` also accepts other spellings, such as one digit for the month.
        if read is None or read.strftime(_MINUTE) != self.at:
            raise UsageError("'at' of a trace line is not a minute")
        return read

    @property
    def answered(self) -> bool:
        """Whether it is about a query that a tier answered."""
        return self.tier is not None and self.outcome in {
            TraceOutcome.ANSWERED,
            TraceOutcome.INCOMPLETE,
        }

    def graded(self, *, good: bool, at: str) -> Self:
        """Return the trace line for feedback on this answer.

        It shows which tier answered and the kind of task, and nothing else about the
        answer: the more the two lines have in common, the more easily they are linked.

        Args:
            good: the feedback.
            at: the minute in which it was given.
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
        """Return the line, including its end."""
        said = {"v": VERSION} | {
            name: value
            for name, value in asdict(self).items()
            if value is not None and value != ()
        }
        return json.dumps(said, separators=(",", ":")).encode("ascii") + b"\n"

    @classmethod
    def parse(cls, line: bytes) -> Self:
        """Parse a line.

        Raises:
            UsageError: it is invalid; says why, and never repeats its content.
        """
        said = _object_of(line)
        if said.pop("v", None) != VERSION:
            raise UsageError(f"is not of version {VERSION}")
        for name, found in said.items():
            if not _is(found, _KINDS.get(name)):
                raise UsageError("has an unknown key, or a value of the wrong type")
        for name in ("classes", "permitted"):
            said[name] = tuple(said.get(name, ()))
        try:
            said["routing_class"] = RoutingClass(said.get("routing_class", ""))
            said["outcome"] = TraceOutcome(said.get("outcome", ""))
            return cls(**said)
        except (TypeError, ValueError):  # a missing field, or an unknown word
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
    # Before parsing: the file may have been changed by another program.
    if len(line) > MAX_LINE_BYTES:
        raise UsageError("is too long")
    try:
        value: object = json.loads(line, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UsageError("is not a JSON object, or has a key twice")
    return cast("dict[str, Any]", value)


def _is(value: object, kind: type | None) -> bool:
    if isinstance(value, list):
        parts = cast("list[object]", value)
        return kind is list and all(isinstance(each, str) for each in parts)
    return type(value) is kind  # the exact type: in Python, ``True`` is an ``int``


def _there(word: str | None) -> tuple[str, ...]:
    return () if word is None else (word,)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def minute_of(time: datetime) -> str:
    """Return the minute of a time, in the format of a trace line."""
    return time.astimezone(UTC).strftime(_MINUTE)


def read_trace(lines: Iterable[bytes]) -> Iterator[TraceLine]:
    """Parse the lines of a trace.

    Raises:
        UsageError: a line is invalid; says which.
    """
    for number, line in enumerate(lines, start=1):
        try:
            yield TraceLine.parse(line)
        except UsageError as error:
            raise UsageError(f"line {number} of the trace: {error}") from None


def read_trace_file(path: Path) -> tuple[TraceLine, ...]:
    """Read a trace; the older, renamed part first.

    Raises:
        ConfigError: there is none, or it cannot be read.
        UsageError: a line is invalid; says which, and in which file.
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
    """Read the feedback on a local model's answers, oldest first; empty without trace.

    Args:
        path: of the trace; its older, renamed part is read first.
        model: as ``model_tag``.

    Raises:
        ConfigError: the trace cannot be read.
        UsageError: a line with feedback is invalid.
    """
    grades: list[bool] = []
    for part in (_aside(path), path):
        try:
            with open_ordinary(part) as file:
                # Only these few lines need to be parsed.
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
    """Writes a trace; several processes may write to the same one.

    Args:
        path: the file; its folder is created if missing.
        max_bytes: size at which it is renamed.
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes

    def append(self, line: TraceLine) -> bool:
        """Write one line; return whether it was written.

        A full disk or a missing folder costs only the line: no answer is delayed by
        more than 50 ms, and none fails.
        """
        data = line.encoded()
        try:
            make_private_folder(self._path.parent)
            # The lock is a file of its own: a lock on the trace would stay with the
            # renamed file, and another process could write to the new one unlocked.
            with locked(self._path.with_name(f"{self._path.name}.lock"), _WAIT_S):
                self._write(data)
        except OSError:
            return False
        return True

    def _write(self, data: bytes) -> None:
        try:
            # Inside the lock: two processes that both saw a full file would rename it
            # twice, and lose the first half.
            full = self._path.stat().st_size + len(data) > self._max_bytes
        except FileNotFoundError:
            full = False
        if full:
            self._path.replace(_aside(self._path))
        # ``O_APPEND``, so that a writer that ignores the lock cannot overwrite a line
        # either.
        descriptor = open_private(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(descriptor).st_size
            if os.write(descriptor, data) < len(data):
                # The disk is full. A partial line would make the whole file invalid.
                os.ftruncate(descriptor, size)
                raise OSError(errno.ENOSPC, "no room for a line")
        finally:
            os.close(descriptor)


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")
