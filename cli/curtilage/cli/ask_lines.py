"""Batches of questions: JSON lines in, a line for each answer as soon as it exists.

A line in is an object with ``id`` (text or integer, once), either ``text`` (one user
message) or ``messages``, and options as in the library's ``chat``. A line out has the
id and either ``answer`` or, for a permanent refusal, ``error``. Lines out are in order
of completion. A question with a temporary failure has no line: the next run with the
same file retries it, and asks those that were never asked.
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
from curtilage.client.chat.answer import Answer
from curtilage.client.chat.openai_chat import MAX_REQUEST_BYTES, OPTIONS, query_from
from curtilage.client.chat.options import ROUTING_FIELDS
from curtilage.client.chat.query import Query
from curtilage.client.endpoint.openai_answers import error_object
from curtilage.client.errors import (
    BlockedError,
    ClientError,
    ConfigError,
    NotRoutedError,
    UsageError,
)
from curtilage.client.system.files import locked, open_unshared

LINE_OPTIONS: Final = (OPTIONS | ROUTING_FIELDS) - {"consent", "defer"}
"""Options of a line; consent is not one: a file cannot give it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One input line.

    Attributes:
        id: unique among the lines.
        query: the question.
    """

    id: LineId
    query: Query = field(repr=False)


@dataclass(slots=True)
class Tally:
    """Progress of a batch.

    Attributes:
        asked: number of questions to ask.
        by: answers by tier.
        refused: number of permanent refusals.
        failed: temporary failures by reason.
    """

    asked: int
    by: Counter[str] = field(default_factory=Counter[str])
    refused: int = 0
    failed: Counter[str] = field(default_factory=Counter[str])

    @property
    def done(self) -> int:
        """Number of questions asked so far."""
        return self.by.total() + self.refused + self.failed.total()

    def summary(self) -> str:
        """Return the counts as one line for people."""
        by = ", ".join(f"{count} by {who}" for who, count in sorted(self.by.items()))
        parts = [f"{self.by.total()} answered{f' ({by})' if by else ''}"]
        if self.refused:
            parts.append(f"{self.refused} refused")
        if self.failed:
            why = ", ".join(f"{word}: {n}" for word, n in sorted(self.failed.items()))
            parts.append(f"{self.failed.total()} without an answer ({why})")
        return "; ".join(parts)


def read_questions(
    lines: Iterable[bytes], usual: Mapping[str, object], *, system: str | None
) -> Iterator[Question]:
    """Parse the questions.

    Args:
        lines: JSON in UTF-8; blank ones are skipped.
        usual: default options.
        system: a system message to put before each ``text``.

    Raises:
        UsageError: a line is invalid or repeats an id; the message names the line.
    """
    seen: dict[LineId, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            question = _question(line, usual, system)
        except UsageError as error:
            # The number and not the line, which is a question.
            raise UsageError(f"line {number}: {error}") from None
        # With one id for two questions, the next run would find a line for one of them
        # and never ask the other.
        first = seen.setdefault(question.id, number)
        if first != number:
            raise UsageError(f"line {number}: line {first} has the same id")
        yield question


def _question(line: bytes, usual: Mapping[str, object], system: str | None) -> Question:
    fields = object_of(line) if len(line) <= MAX_REQUEST_BYTES else None
    if fields is None:
        raise UsageError("is not a JSON object, repeats a key, or is too long")
    line_id, text, messages = (fields.pop(key, None) for key in _OWN)
    if (text is None) == (messages is None) or not fields.keys() <= LINE_OPTIONS:
        raise UsageError(
            "accepts id, text or messages, and only these options: "
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
    # The same parser as for the endpoint, so that a line cannot ask for more than a
    # program there.
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
    """The output file, locked for one process; ``results`` opens it.

    Attributes:
        known: ids that have a line, with whether each was refused.
    """

    def __init__(self, descriptor: int, known: dict[LineId, bool]) -> None:
        self._descriptor = descriptor
        self.known = known

    def append(self, line: Mapping[str, object]) -> None:
        """Write one complete line.

        Raises:
            OSError: it cannot be written; no part of it remains in the file.
        """
        # An answer may end with half of a character, which UTF-8 cannot encode.
        data = json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace")
        data += b"\n"
        size = os.fstat(self._descriptor).st_size
        try:
            while data:
                # A disk that is nearly full writes a part only, without an error.
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            # The next line would be appended to half of one, and the file could not be
            # continued.
            os.ftruncate(self._descriptor, size)
            raise


@contextmanager
def results(path: Path) -> Generator[Results]:
    """Open an output file to continue it; create it if it is missing.

    Raises:
        ConfigError: it cannot be opened, another process writes it, or its content is
            not this command's; then it is unchanged.
    """
    with ExitStack() as held:
        try:
            # Two runs on the same file would ask every question twice.
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
                break  # the process that wrote it was killed there
            if not fields or not ours:
                raise ConfigError(
                    f"{path}: line {number} was not written by `ask --jsonl`; name "
                    "another file, or move this one away"
                )
            known[cast("LineId", fields["id"])] = "error" in fields
            whole += len(line)
        else:
            return known
    # Nothing is cut off unless the file is this command's: a wrong name for ``--out``
    # must not destroy a file.
    begun = os.pread(descriptor, len(_START), 0)
    if not whole and begun != _START[: os.fstat(descriptor).st_size]:
        raise ConfigError(
            f"{path}: not an output file of `ask --jsonl`; name another file"
        )
    os.ftruncate(descriptor, whole)
    return known


_START: Final = b'{"id": '


async def ask_lines(
    questions: Sequence[Question],
    ask: Callable[[Query], Awaitable[Answer]],
    out: Results,
    *,
    parallel: int,
    progress: Callable[[Tally], None],
) -> Tally:
    """Ask the questions that have no line yet.

    Args:
        questions: the whole batch.
        ask: function that answers one question.
        out: the output file.
        parallel: number of questions in flight.
        progress: called with the tally after each question.

    Raises:
        OSError: a line cannot be written; the remaining questions are not asked.
    """
    left = [each for each in questions if each.id not in out.known]
    tally = Tally(len(left))
    # One iterator for all workers: each question is taken exactly once, and no queue
    # has to be filled.
    waiting = iter(left)

    async def one_after_the_other() -> None:
        """Take questions until none is left; several workers share them."""
        for question in waiting:
            try:
                answer = await ask(question.query)
            except ClientError as failed:
                _, body = error_object(failed)
                # A policy's refusal is permanent: without a line, every later run would
                # ask it again.
                final = isinstance(failed, BlockedError | UsageError)
                if final or (isinstance(failed, NotRoutedError) and failed.final):
                    out.append({"id": question.id, **body})
                    tally.refused += 1
                else:
                    error = cast("Mapping[str, object]", body["error"])
                    tally.failed[str(error["code"])] += 1
            else:
                out.append({"id": question.id, "answer": answer_object(answer)})
                tally.by[answer.provenance.tier or answer.route.value] += 1
            progress(tally)

    askers = [asyncio.ensure_future(one_after_the_other()) for _ in range(parallel)]
    try:
        # The first error, such as a full disk, ends all: further answers could not be
        # written, and would be paid for.
        await asyncio.gather(*askers)
    finally:
        # ``gather`` does not cancel the others when one fails.
        for each in askers:
            each.cancel()
        await asyncio.gather(*askers, return_exceptions=True)
    return tally
