"""JSON lines for ``route explain --jsonl``: read as they arrive, kept in order."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from curtilage.cli.decide_lines import MAX_LINE_BYTES, problem_of, read_lines
from curtilage.cli.json_lines import LineId
from curtilage.client.chat.query import Query
from curtilage.client.detection.checked import InspectsMany
from curtilage.policy.decision.decide import Inspection

CHUNK_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """One line with its findings.

    Attributes:
        id: the line's id; None if it has no valid one.
        query: the query.
        inspection: the findings.
    """

    id: LineId | None
    query: Query
    inspection: Inspection


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """One line that cannot be read.

    Attributes:
        id: as in ``Inspected``.
        problem: what is wrong with it, without its text.
    """

    id: LineId | None
    problem: str


def inspected(file: BinaryIO, inspector: InspectsMany) -> Iterator[Inspected | Unread]:
    """Yield every line that is not blank, in the order of the file.

    Args:
        file: JSON objects in UTF-8. Available data is processed at once, so that a
            program may write one line and read its result.
        inspector: runs the detectors.
    """
    for lines in _batches(file):
        read = [(line, *each) for line in lines for each in read_lines([line])]
        queries = [query for _, _, query in read if query is not None]
        inspections = inspector.inspect_many(queries)
        for line, line_id, query in read:
            if query is None:
                yield Unread(id=line_id, problem=problem_of(line))
            else:
                found = next(inspections)
                yield Inspected(id=line_id, query=query, inspection=found)


def _batches(file: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the lines that each read completes, and the last one at the end."""
    begun, skipping = b"", False
    # Only what the pipe contains now; `read` would wait for more.
    take: Callable[[int], bytes] = getattr(file, "read1", file.read)
    while chunk := take(CHUNK_BYTES):
        *lines, rest = chunk.split(b"\n")
        if lines:
            # The rest of an overlong line is discarded up to its end.
            first = b"" if skipping else begun + lines[0]
            yield [first, *lines[1:]]
            begun, skipping = b"", False
        if not skipping:
            begun += rest
        if len(begun) > MAX_LINE_BYTES:
            # Reported as too long by its length; no more of it is kept in memory.
            yield [begun]
            begun, skipping = b"", True
    yield [begun]
