"""A table of the conversations that were kept local, which survives restarts.

Two files in the client's state folder, 0600: a key, and a SQLite table of digests under
that key. The rows record which conversations were kept local, and their order; no text,
time or name. If entries are lost, conversations count as kept: when one of the two
files is missing or damaged, or a row had to make room, ``forgot`` reports it from then
on, also after the next restart.

Each caller has space of its own, and takes none from others.
"""

import hmac
import os
import sqlite3
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from secrets import token_bytes
from typing import Final

from typing_extensions import override

from curtilage.client.system.files import (
    locked,
    make_private_folder,
    open_ordinary,
    open_private,
    write_private_atomically,
)

TABLE_NAME: Final = "conversations.db"
KEY_NAME: Final = "conversations.key"
MAX_KEPT: Final = 4096
"""Conversations of one caller."""
MAX_CALLERS: Final = 64
"""Callers with a row of their own; all later ones share one."""
LOST: Final = (
    "the record of conversations that are kept local was lost (conversations.db or "
    "conversations.key is missing or damaged): a request with earlier turns is kept "
    "local unless its conversation began since; to start again, remove both files"
)
UNSAVED: Final = (
    "conversations that must be kept local cannot be saved at the moment; they are "
    "known until this program ends"
)
UNSAVED_AT_END: Final = (
    "conversations that must be kept local could not be saved: after a restart, one "
    "whose later turns do not show it may be sent"
)
_KEY_BYTES: Final = 32
_DIGEST_BYTES: Final = 16
_LOCK_S: Final = 5.0
_CHECK: Final = b"curtilage/kept/v1"
_EVERYBODY: Final = b"*"
_OTHERS: Final = b"+"
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS checks (digest BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS callers (
    name BLOB PRIMARY KEY, forgot INTEGER NOT NULL, content_s INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS kept (
    id INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB NOT NULL, caller BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS by_digest ON kept (digest, caller);
CREATE INDEX IF NOT EXISTS by_caller ON kept (caller, id);
"""


class _LostError(Exception):
    """The existing table is missing or damaged."""


class KeptConversations:
    """Digests of conversations that were kept local, by caller.

    Args:
        folder: of the files, created if missing; None: in memory.
        share: how many conversations of one caller are remembered.
        lasting: whether conversations kept by content matter after a restart; not for
            a command, whose next run continues none of them.
        draw: returns this many random bytes.

    Attributes:
        key: of every digest, 32 bytes.
        advice: a notice for the user, or None.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        share: int = MAX_KEPT,
        lasting: bool = True,
        draw: Callable[[int], bytes] = token_bytes,
    ) -> None:
        self._share = share
        self._lasting = lasting
        self._lock = threading.Lock()
        self._unsaved: dict[tuple[bytes, bytes], None] = {}
        self._contents: dict[bytes, int] = {}
        self._forgotten: set[bytes] = set()  # callers; not on disk yet
        self._wrote: dict[bytes, int] = {}  # content_s of rows written by this object
        self._in_memory = folder is None
        self._lost = False
        self.advice: str | None = None
        self.key = draw(_KEY_BYTES)
        try:
            if folder is None:
                raise FileNotFoundError
            self._table = self._opened(folder)
        except (OSError, sqlite3.Error):
            # Without files it works until the program ends. If files exist and cannot
            # be opened, their whole content is lost to it.
            self._lost = folder is not None and any(
                _may_be_there(folder / each) for each in (KEY_NAME, TABLE_NAME)
            )
            self._in_memory = True
            self._table = _connected(None)
            _prepare(self._table)
            self._table.executescript(_TABLES)
            self.advice = None if folder is None else UNSAVED
        if self._lost:
            self.advice = LOST
        # A table that is not closed causes a warning when it is collected.
        weakref.finalize(self, self._table.close)
        # content_s of rows by others; for a caller without one, the latest of all.
        self._before: dict[bytes, int] = dict(
            self._table.execute("SELECT name, content_s FROM callers")
        )
        self._content_s = max(self._before.values(), default=0)

    @override
    def __repr__(self) -> str:
        """Show only the count; a digest could confirm a guess."""
        return f"<KeptConversations: {self.count()}>"

    def count(self) -> int:
        """Return the number of conversations."""
        with self._lock, suppress(sqlite3.Error):
            (count,) = self._table.execute("SELECT COUNT(*) FROM kept").fetchone()
            return int(count) + len(self._unsaved)
        return len(self._unsaved)

    def add(self, caller: bytes | None, digest: bytes) -> None:
        """Remember a conversation; ``save`` writes it to disk."""
        with self._lock:
            self._unsaved[self._name(caller), digest[:_DIGEST_BYTES]] = None
            while len(self._unsaved) > self._share:
                name, _ = oldest = next(iter(self._unsaved))
                del self._unsaved[oldest]
                self._forgotten.add(name)
                self._lost = True
        if self._in_memory:
            self.save()

    def holds(self, digests: Iterable[bytes]) -> bool:
        """Return whether one of these was kept local, for any caller.

        A table that cannot be read counts as containing all.
        """
        with self._lock:
            unsaved = {digest for _, digest in self._unsaved}
            try:
                return any(
                    short in unsaved
                    or self._table.execute(
                        "SELECT 1 FROM kept WHERE digest = ? LIMIT 1", (short,)
                    ).fetchone()
                    for short in (each[:_DIGEST_BYTES] for each in digests)
                )
            except sqlite3.Error:
                return True

    def forgot(self, caller: bytes | None) -> bool:
        """Return whether a conversation of a caller may have been forgotten.

        An unknown caller may be a known one under another name.
        """
        with self._lock:
            if self._lost:
                return True
            try:
                rows = dict(self._table.execute("SELECT name, forgot FROM callers"))
            except sqlite3.Error:
                return True
        if _EVERYBODY in rows:
            return True
        own = rows.get(self._name(caller))
        return any(rows.values()) if own is None else bool(own)

    def forget(self, caller: bytes | None) -> None:
        """Record that an entry of a caller was forgotten."""
        with self._lock:
            try:
                self._forgot(self._registered(self._name(caller)))
            except sqlite3.Error:
                self._forgotten.add(self._name(caller))
                self._lost = True

    def kept_content(self, caller: bytes | None, now_s: int) -> None:
        """Record when a caller's conversation was last kept by its content."""
        if self._lasting:
            with self._lock:
                self._contents[self._name(caller)] = now_s
            if self._in_memory:
                self.save()

    def content_before(self, caller: bytes | None) -> int:
        """Return when another process last kept contents of a caller.

        An earlier process, or one that runs now. Unix time, to a second or two; 0:
        never. For a caller that was unknown at the start, not before any contents were
        kept until then. A table that cannot be read counts as written just now.
        """
        if not self._lasting:
            return 0
        name = self._name(caller)
        with self._lock:
            try:
                rows: dict[bytes, int] = dict(
                    self._table.execute(
                        "SELECT name, content_s FROM callers WHERE name IN (?, ?)",
                        (name, _OTHERS),
                    )
                )
            except sqlite3.Error:
                return sys.maxsize
            before = self._before.get(name, self._content_s)
            if name not in rows:
                name = _OTHERS
                before = max(before, self._before.get(name, 0))
            row_s = rows.get(name, 0)
            return before if row_s == self._wrote.get(name) else max(before, row_s)

    def save(self) -> bool:
        """Write pending entries to disk; return whether that succeeded."""
        with self._lock:
            if not (self._unsaved or self._contents or self._forgotten):
                return True
            wrote = dict(self._wrote)
            try:
                self._table.execute("BEGIN IMMEDIATE")
                for name, digest in self._unsaved:
                    self._write(self._registered(name), digest)
                for name, now_s in self._contents.items():
                    self._write_content(self._registered(name), now_s, wrote)
                for name in self._forgotten:
                    self._forgot(self._registered(name))
                self._table.execute("COMMIT")
            except sqlite3.Error:
                with suppress(sqlite3.Error):
                    self._table.execute("ROLLBACK")
                return False
            self._unsaved.clear()
            self._contents.clear()
            self._forgotten.clear()
            self._wrote = wrote
            return True

    def close(self) -> bool:
        """Write pending entries to disk, and close; return whether that succeeded."""
        saved = self.save()
        with self._lock:
            self._table.close()
        return saved

    def _name(self, caller: bytes | None) -> bytes:
        data = b"caller\0" + (b"-" if caller is None else b"+" + caller)
        return hmac.digest(self.key, data, "sha256")[:_DIGEST_BYTES]

    def _registered(self, name: bytes) -> bytes:
        """Return the name of a caller's rows; add it if there is room.

        A new caller may be an old one under a new name and inherits what was lost.
        """
        rows = dict(self._table.execute("SELECT name, forgot FROM callers"))
        if name not in rows:
            if len(rows) >= MAX_CALLERS:
                name = _OTHERS
            self._table.execute(
                "INSERT OR IGNORE INTO callers VALUES (?, ?, 0)",
                (name, int(any(rows.values()))),
            )
        return name

    def _write(self, name: bytes, digest: bytes) -> None:
        # Newest last, and for each caller: an entry must not be forgotten first
        # because another caller made the same query.
        self._table.execute(
            "DELETE FROM kept WHERE digest = ? AND caller = ?", (digest, name)
        )
        self._table.execute(
            "INSERT INTO kept (digest, caller) VALUES (?, ?)", (digest, name)
        )
        (count,) = self._table.execute(
            "SELECT COUNT(*) FROM kept WHERE caller = ?", (name,)
        ).fetchone()
        if count > self._share:
            self._table.execute(
                "DELETE FROM kept WHERE id = "
                "(SELECT MIN(id) FROM kept WHERE caller = ?)",
                (name,),
            )
            self._forgot(name)

    def _write_content(self, name: bytes, now_s: int, wrote: dict[bytes, int]) -> None:
        """Write when contents were kept; note what another process wrote there."""
        row_s: int
        (row_s,) = self._table.execute(
            "SELECT content_s FROM callers WHERE name = ?", (name,)
        ).fetchone()
        if row_s == wrote.get(name, 0):
            now_s = max(now_s, row_s)
        else:
            # After this write the row does not show it any more.
            self._before[name] = max(self._before.get(name, self._content_s), row_s)
            if row_s == now_s + 1:
                # Advanced, as below, after a third process wrote in this second: each
                # of them knows of another. A row stays within a second of now.
                return
            # Never the same value: the other process would take it for its own.
            now_s = max(now_s, row_s + 1)
        self._table.execute(
            "UPDATE callers SET content_s = ? WHERE name = ?", (now_s, name)
        )
        wrote[name] = now_s

    def _forgot(self, name: bytes) -> None:
        self._table.execute(
            "INSERT INTO callers VALUES (?, 1, 0) "
            "ON CONFLICT (name) DO UPDATE SET forgot = 1",
            (name,),
        )

    def _opened(self, folder: Path) -> sqlite3.Connection:
        """Open the files, or create them; note if they were lost or damaged.

        Raises:
            OSError: they cannot be opened or created.
            sqlite3.Error: the same.
        """
        make_private_folder(folder)
        key_path, path = folder / KEY_NAME, folder / TABLE_NAME
        with locked(folder / f"{TABLE_NAME}.lock", _LOCK_S):
            there = [os.path.lexists(each) for each in (key_path, path)]
            if any(there):
                try:
                    return self._read(key_path, path)
                except _LostError:
                    self._lost = True
            # In this order: after an interruption, one of the two exists and does not
            # match the other, so that the next start detects the loss.
            with write_private_atomically(key_path) as file:
                file.write(self.key.hex().encode())
            for each in (path, path.with_name(f"{path.name}-journal")):
                each.unlink(missing_ok=True)
            os.close(open_private(path, os.O_RDWR | os.O_CREAT))
            table = _connected(path)
            _prepare(table)
            table.executescript(f"BEGIN IMMEDIATE; {_TABLES}")
            table.execute("INSERT INTO checks VALUES (?)", (self._check(),))
            if self._lost:
                table.execute("INSERT INTO callers VALUES (?, 1, 0)", (_EVERYBODY,))
            table.execute("COMMIT")
            return table

    def _read(self, key_path: Path, path: Path) -> sqlite3.Connection:
        try:
            with open_ordinary(key_path) as file:
                text = file.read(2 * _KEY_BYTES + 1)
            key = bytes.fromhex(text.decode("ascii"))
            os.close(open_private(path, os.O_RDWR))
        except (FileNotFoundError, ValueError):
            raise _LostError from None
        if len(key) != _KEY_BYTES:
            raise _LostError
        self.key = key
        table = _connected(path)
        with ExitStack() as stack:
            stack.callback(table.close)
            if self._fits(table):
                stack.pop_all()
                return table
        raise _LostError

    def _fits(self, table: sqlite3.Connection) -> bool:
        """Return whether a table is intact and belongs to this key."""
        try:
            _prepare(table)
            if table.execute("PRAGMA quick_check").fetchall() != [("ok",)]:
                return False
            checks = table.execute("SELECT digest FROM checks").fetchall()
            lost = table.execute(
                "SELECT 1 FROM callers WHERE name = ?", (_EVERYBODY,)
            ).fetchone()
        except sqlite3.Error as failure:
            # Locked by another process, or an I/O error: it may be intact.
            damaged = failure.sqlite_errorcode & 0xFF in _DAMAGED
            if not damaged and failure.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise
            return False
        self._lost = lost is not None
        return checks == [(self._check(),)]

    def _check(self) -> bytes:
        return hmac.digest(self.key, _CHECK, "sha256")


def _may_be_there(path: Path) -> bool:
    """Return whether a file exists or, in an inaccessible folder, may exist.

    ``os.path.lexists`` would return False for the latter.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _connected(path: Path | None) -> sqlite3.Connection:
    return sqlite3.connect(
        ":memory:" if path is None else path,
        timeout=_LOCK_S,
        isolation_level=None,
        check_same_thread=False,
    )


def _prepare(table: sqlite3.Connection) -> None:
    for pragma in (
        # A single file: the loss of any second one could remain unnoticed.
        "journal_mode=DELETE",
        "synchronous=FULL",
        "secure_delete=ON",
        "temp_store=MEMORY",
    ):
        table.execute(f"PRAGMA {pragma}")
