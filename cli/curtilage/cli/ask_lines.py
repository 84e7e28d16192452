"""Ask many questions, a line each, and write each answer down as soon as it is there.

A line in is an object with ``id`` (text or integer, once), either ``text`` (one user
message) or ``messages``, and options as the library's ``chat`` has them. A line out has
the id and either ``answer`` or ``error``, that of a question which is refused however
often it is asked. Lines out are in the order in which the answers came. A question
that could not be answered for now has no line: the next run with the same file asks
it and those that were never asked, and no other.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import (
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from curtilage.cli.json_lines import MAX_ID_CHARS, LineId, is_id, object_of
from curtilage.cli.provenance import answer_object
from curtilage.client.answer import Answer
from curtilage.client.errors import (
    BlockedError,
    ClientError,
    ConfigError,
    NotRoutedError,
    UsageError,
)
from curtilage.client.files import locked, open_unshared
from curtilage.client.openai_chat import (
    MAX_REQUEST_BYTES,
    OPTIONS,
    error_object,
    query_from,
)
from curtilage.client.options import ROUTING_FIELDS
from curtilage.client.query import Query

LINE_OPTIONS: Final = (OPTIONS | ROUTING_FIELDS) - {"consent", "defer"}
"""What a line may say of its own question; a file consents to nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One line in.

    Attributes:
        id: which no other line has.
        query: what is asked.
    """

    id: LineId
    query: Query = field(repr=False)


@dataclass(slots=True)
class Tally:
    """How far it is.

    Attributes:
        asked: so many were to be asked.
        by: of those that have an answer, how many by whom.
        refused: so many were refused for good.
        failed: of those without an answer, how many for which reason.
    """

    asked: int
    by: Counter[str] = field(default_factory=Counter[str])
    refused: int = 0
    failed: Counter[str] = field(default_factory=Counter[str])

    @property
    def done(self) -> int:
        """So many were asked."""
        return self.by.total() + self.refused + self.failed.total()

    def told(self) -> str:
        """Say it for people."""
        by = ", ".join(f"{count} by {who}" for who, count in sorted(self.by.items()))
        told = [f"{self.by.total()} answered{f' ({by})' if by else ''}"]
        if self.refused:
            told.append(f"{self.refused} refused")
        if self.failed:
            why = ", ".join(f"{word}: {n}" for word, n in sorted(self.failed.items()))
            told.append(f"{self.failed.total()} without an answer ({why})")
        return "; ".join(told)


def read_questions(
    lines: Iterable[bytes], usual: Mapping[str, object], *, system: str | None
) -> Iterator[Question]:
    """Read the questions; all of them, before the first is asked.

    Args:
        lines: JSON in UTF-8; blank ones are passed over.
        usual: options of lines that do not say them.
        system: a system message that goes before each ``text``.

    Raises:
        UsageError: a line is none, or an id stands twice; says which line.
    """
    seen: dict[LineId, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            question = _question(line, usual, system)
        except UsageError as error:
            raise UsageError(f"line {number}: {error}") from None
        first = seen.setdefault(question.id, number)
        if first != number:
            raise UsageError(f"line {number}: line {first} has the same id")
        yield question


def _question(line: bytes, usual: Mapping[str, object], system: str | None) -> Question:
    fields = object_of(line) if len(line) <= MAX_REQUEST_BYTES else None
    if fields is None:
        raise UsageError("is no JSON object, has a key twice, or is too long")
    line_id, text, messages = (fields.pop(key, None) for key in _OWN)
    if (text is None) == (messages is None) or not fields.keys() <= LINE_OPTIONS:
        raise UsageError(
            "has id, text or messages, and of options only "
            + ", ".join(sorted(LINE_OPTIONS))
        )
    if isinstance(text, str) and not text.strip():
        raise UsageError("text is empty")
    turns = messages
    if messages is None:
        before = [] if system is None else [{"role": "system", "content": system}]
        turns = [*before, {"role": "user", "content": text}]
    if not isinstance(turns, list) or not all(
        isinstance(each, dict) for each in cast("list[object]", turns)
    ):
        raise UsageError("messages must be a list of objects")
    query = query_from(
        cast("list[dict[str, object]]", turns), {**usual, **fields}, stream=False
    )
    if not is_id(line_id):
        raise UsageError(
            f"id must be an integer, or text up to {MAX_ID_CHARS} characters"
        )
    return Question(id=line_id, query=query)


_OWN: Final = ("id", "text", "messages")


class Results:
    """The file of the lines out, of one process at a time; ``results`` opens it.

    Attributes:
        known: the ids that have a line, each with whether it was refused.
    """

    def __init__(self, descriptor: int, known: dict[LineId, bool]) -> None:
        self._descriptor = descriptor
        self.known = known

    def append(self, line: Mapping[str, object]) -> None:
        """Write one line, whole.

        Raises:
            OSError: it cannot be written; then nothing of it stands there.
        """
        data = json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace")
        data += b"\n"
        size = os.fstat(self._descriptor).st_size
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            os.ftruncate(self._descriptor, size)
            raise


@contextmanager
def results(path: Path) -> Generator[Results]:
    """Open a file of lines out, made where it is missing, to go on with it.

    Raises:
        ConfigError: it cannot be opened, another process writes it, or it holds
            something else; then nothing of it was changed.
    """
    with ExitStack() as held:
        try:
            held.enter_context(locked(path, 0))
            descriptor = open_unshared(path, os.O_RDWR | os.O_APPEND)
            held.callback(os.close, descriptor)
            opened = Results(descriptor, _known(path, descriptor))
        except TimeoutError:
            raise ConfigError(f"{path}: another process writes it") from None
        except OSError as failure:
            raise ConfigError(f"{path}: {failure.strerror}") from None
        yield opened


def _known(path: Path, descriptor: int) -> dict[LineId, bool]:
    known = dict[LineId, bool]()
    whole = 0
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        for number, line in enumerate(file, start=1):
            fields = object_of(line)
            ours = fields and "id" in fields and fields.keys() & {"answer", "error"}
            if not line.endswith(b"\n") and (fields is None or ours):
                break  # whoever wrote it was killed there
            if not fields or not ours:
                raise ConfigError(
                    f"{path}: line {number} is no answer of `ask --jsonl`; name "
                    "another file, or move this one away"
                )
            known[cast("LineId", fields["id"])] = "error" in fields
            whole += len(line)
        else:
            return known
    if not whole and not _begins_like_ours(descriptor):
        raise ConfigError(f"{path}: holds something else; name another file")
    os.ftruncate(descriptor, whole)
    return known


def _begins_like_ours(descriptor: int) -> bool:
    return (
        os.pread(descriptor, len(_START), 0) == _START[: os.fstat(descriptor).st_size]
    )


_START: Final = b'{"id": '


def _is_final(error: ClientError) -> bool:
    if isinstance(error, NotRoutedError):
        return error.final
    return isinstance(error, BlockedError | UsageError)


async def ask_lines(
    questions: Sequence[Question],
    ask: Callable[[Query], Awaitable[Answer]],
    out: Results,
    *,
    parallel: int,
    told: Callable[[Tally], None],
) -> Tally:
    """Ask those that have no line yet.

    Args:
        questions: all of them.
        ask: answers one.
        out: where the lines go.
        parallel: so many are asked side by side.
        told: is told after each how far it is.

    Raises:
        OSError: a line cannot be written; what was not asked yet is not asked.
    """
    left = [each for each in questions if each.id not in out.known]
    tally = Tally(len(left))
    waiting = iter(left)

    async def one_after_the_other() -> None:
        """Ask what is left, beside others who do."""
        for question in waiting:
            try:
                answer = await ask(question.query)
            except ClientError as failed:
                _, body = error_object(failed)
                # What the policy forbids stays forbidden: asked again with the same
                # command, it would be asked for ever.
                if _is_final(failed):
                    out.append({"id": question.id, **body})
                    tally.refused += 1
                else:
                    error = cast("Mapping[str, object]", body["error"])
                    tally.failed[str(error["code"])] += 1
            else:
                out.append({"id": question.id, "answer": answer_object(answer)})
                tally.by[answer.provenance.tier or answer.route.value] += 1
            told(tally)

    askers = [asyncio.ensure_future(one_after_the_other()) for _ in range(parallel)]
    try:
        await asyncio.gather(*askers)
    finally:
        for each in askers:
            each.cancel()
        await asyncio.gather(*askers, return_exceptions=True)
    return tally
