"""A file with the answers of an interrupted run, which the next run continues."""

import json
import os
from collections import deque
from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Generic

from curtilage.cli.json_lines import object_of
from curtilage.cli.terminal import err, plural
from curtilage.client.errors import ConfigError, UsageError
from curtilage.client.system.files import PRIVATE_FILE, locked, open_unshared
from curtilage.lab.commands.graded_file import Row

USED_AGAIN: Final = "of an earlier run will be used again"
KEPT: Final = "keeps what is answered; the same command goes on with it"
OTHER_SETTINGS: Final = (
    "begun with another model or other settings; go on with those, or remove it"
)
IN_USE: Final = "another process writes it"


class Begun(Generic[Row]):
    """The results of earlier runs; ``begun`` opens the file.

    Attributes:
        path: the file, next to the one that the run writes at the end.
        found: how many lines an earlier run left in it.
        kept: how many lines this run has added.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.found = 0
        self.kept = 0
        self._descriptor = descriptor
        self._rows: dict[Hashable, deque[Row]] = {}

    def put(self, key: Hashable, row: Row) -> None:
        """Add a line of an earlier run."""
        self.found += 1
        self._rows.setdefault(key, deque()).append(row)

    def take(self, key: Hashable) -> Row | None:
        """Return a line of an earlier run and forget it; None: there is none."""
        left = self._rows.get(key)
        return left.popleft() if left else None

    def append(self, line: bytes) -> None:
        """Append one line."""
        self.kept += 1
        self.write(line)

    def write(self, data: bytes) -> None:
        """Append bytes, unbuffered, so that an interruption loses at most one line."""
        while data:
            data = data[os.write(self._descriptor, data) :]

    def remove(self) -> None:
        """Remove the file: the final file has its contents, or there were none."""
        self.path.unlink(missing_ok=True)


@contextmanager
def begun(
    wanted: Path,
    how: Mapping[str, object],
    row_of: Callable[[dict[str, object]], Row | None],
    key_of: Callable[[Row], Hashable],
) -> Generator[Begun[Row]]:
    """Open the file of an interrupted run, or create one.

    Args:
        wanted: the file that the run writes at the end.
        how: how the lines are made; lines made in another way are not used.
        row_of: parses a line's object; None: it is invalid.
        key_of: the key that a line is a result for.

    Raises:
        ConfigError: it cannot be opened, or another process writes it.
        UsageError: it was begun in another way, or is not such a file.
    """
    path = wanted.with_name(f"{wanted.name}.partial")
    head = json.dumps({"unfinished": how}).encode() + b"\n"
    with ExitStack() as held:
        try:
            held.enter_context(locked(path, 0))
            descriptor = open_unshared(path, os.O_RDWR | os.O_APPEND)
            held.callback(os.close, descriptor)
            before = Begun[Row](path, descriptor)
            _read(before, descriptor, head, row_of, key_of)
            os.fchmod(descriptor, PRIVATE_FILE)
        except TimeoutError:
            raise ConfigError(f"{path}: {IN_USE}") from None
        except OSError as failure:
            raise ConfigError(f"{path}: {failure.strerror}") from None
        if before.found:
            answers = plural(before.found, "answer")
            err(f"{before.found} {answers} {USED_AGAIN}")
        try:
            yield before
        except BaseException:  # including Ctrl-C
            if not before.found and not before.kept:
                before.remove()
                raise
            err(f"{path} {KEPT}")
            raise


def _read(
    before: Begun[Row],
    descriptor: int,
    head: bytes,
    row_of: Callable[[dict[str, object]], Row | None],
    key_of: Callable[[Row], Hashable],
) -> None:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        first = file.readline()
        whole = len(first)
        no_answer = _is_head(first) and not file.readline().endswith(b"\n")
        if no_answer or (not first.endswith(b"\n") and head.startswith(first)):
            os.ftruncate(descriptor, 0)
            before.write(head)
            return
        if first != head:
            raise UsageError(f"{before.path}: {OTHER_SETTINGS}")
        file.seek(whole)
        for number, line in enumerate(file, start=2):
            if not line.endswith(b"\n"):
                break  # the run was killed here
            value = object_of(line)
            row = None if value is None else row_of(value)
            if row is None:
                raise UsageError(f"{before.path}, line {number}: not of such a run")
            before.put(key_of(row), row)
            whole += len(line)
    os.ftruncate(descriptor, whole)


def _is_head(line: bytes) -> bool:
    """Return whether a line is the first line of such a file, of any run."""
    return (object_of(line) or {}).keys() == {"unfinished"}
