"""Storage of queued queries: a sealed table, in a private file or in memory.

Both use the same table, so they have the same properties; in memory, the key is random
and never stored. Several processes may use one file. Each query and answer is encrypted
with the key of its hour (epoch), with the row's other columns as associated data: a row
that was modified, or moved to another place, cannot be decrypted. The epoch keys are in
the same file, encrypted with the key that the policy names. An epoch key is overwritten
when its last row is deleted; after that, no copy of a page that remains in the file
system or in an old journal can be decrypted by anyone.

If the whole file is replaced with an older copy, the file alone cannot show it. A query
answered in the meantime would then be retried, under the rules in force at that time.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from secrets import token_bytes
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from curtilage.client.errors import (
    ClientError,
    ConfigError,
    NotRoutedError,
)
from curtilage.client.local.reasons import LocalFailure
from curtilage.client.queue.deferred import Deferred, State, refusal_of
from curtilage.client.queue.reasons import reason_named
from curtilage.client.system.files import (
    locked,
    make_private_folder,
    open_ordinary,
    open_private,
)
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.routing_settings import Queue

QUEUE_NAME: Final = "queue.db"
KEY_BYTES: Final = 32
EPOCH_MS: Final = 3_600_000
_DAMAGED_LIFE_MS: Final = 24 * EPOCH_MS
_NONCE_BYTES: Final = 12  # RFC 8439, section 2.8
_KEY_TEXT_BYTES: Final = 2 * KEY_BYTES
_BUSY_S: Final = 5.0
_OTHERS: Final = 0o077
_LABEL: Final = b"curtilage/queue/v1\0"
_EPOCH_LABEL: Final = b"curtilage/queue-epoch/v1\0"
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS epochs (
    id INTEGER PRIMARY KEY, began_ms INTEGER NOT NULL, key BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS items (
    ticket TEXT PRIMARY KEY, class TEXT NOT NULL, policy TEXT NOT NULL,
    cause TEXT NOT NULL, put_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL,
    state TEXT NOT NULL, epoch INTEGER NOT NULL, content BLOB NOT NULL
) STRICT;
"""
# Earlier versions made the table without it.
_APPLICATION: Final = (
    "ALTER TABLE items ADD COLUMN application TEXT NOT NULL DEFAULT ''"
)
MOST_OF_ONE: Final = 2
"""An application may fill one part in so many of the queue."""
_LAST_MS: Final = 253_402_300_799_000
"""The end of the year 9999: later times cannot be displayed."""
DAMAGED: Final = "what is stored under this ticket is not what was queued"
_ITEMS: Final = (
    "SELECT ticket, class, policy, cause, put_ms, until_ms, state, application "
    "FROM items "
)


class QueueStoreError(ClientError):
    """The queue cannot be read or written.

    Contains the operating system's message, and no content of the queue.
    """


class QueueDamagedError(QueueStoreError):
    """A row is not what was stored, or cannot be read as that."""


class QueueFullError(NotRoutedError):
    """The queue is as large as the policy permits."""

    def __init__(self, why: str) -> None:
        super().__init__("queue_full", f"{why}; and the queue is full")


def read_queue_key(path: Path) -> bytes:
    """Read the key that seals a queue's file, 32 bytes.

    Raises:
        ConfigError: it cannot be read, is not such a key, or is readable by others.
    """
    make = f"make one with: (umask 077; openssl rand -hex 32 > {path})"
    try:
        with open_ordinary(path) as file:
            # Checked by the descriptor: the path may refer to another file by now.
            readable = os.fstat(file.fileno()).st_mode & _OTHERS
            text = file.read(_KEY_TEXT_BYTES + 2).strip()
    except OSError as failure:
        raise ConfigError(f"{path}: {failure.strerror}; {make}") from None
    if readable:
        raise ConfigError(f"{path}: others on this machine can read it; chmod 600")
    with suppress(ValueError):
        key = bytes.fromhex(text.decode("ascii"))
        if len(key) == KEY_BYTES:
            return key
    raise ConfigError(f"{path}: not 64 hexadecimal digits; {make}")


def queue_store(settings: Queue, directory: Path) -> "DeferredStore":
    """Open the queue of a policy.

    Args:
        settings: the policy's; they permit queueing.
        directory: where its file is, if it has one.

    Raises:
        ConfigError: the key is not usable, or does not open the file.
    """
    return DeferredStore(
        directory / QUEUE_NAME if settings.key_file else None,
        read_queue_key(Path(settings.key_file))
        if settings.key_file
        else token_bytes(KEY_BYTES),
        max_items=settings.max_items,
        max_bytes=settings.max_bytes,
    )


class DeferredStore:
    """A table of queued queries; every method blocks until the data are on disk.

    Args:
        path: the file, created if missing; None: in memory.
        key: 32 bytes, with which the epoch keys are encrypted.
        max_items: largest number of rows.
        max_bytes: largest total size of their content.
        draw: returns this many random bytes.

    Raises:
        ConfigError: the file was sealed with another key, or is not a queue.
    """

    def __init__(
        self,
        path: Path | None,
        key: bytes,
        *,
        max_items: int,
        max_bytes: int,
        draw: Callable[[int], bytes] = token_bytes,
    ) -> None:
        self._path = path
        self._seal = ChaCha20Poly1305(key)
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._draw = draw
        # SQLite's own lock works between processes; this one between our threads.
        self._lock = threading.Lock()
        self._draining = False
        self._damaged = 0
        try:
            if path is not None:
                make_private_folder(path.parent)
                # Before SQLite creates it, readable by all; its journals get the same
                # mode.
                os.close(open_private(path, os.O_RDWR | os.O_CREAT))
            self._table = sqlite3.connect(
                ":memory:" if path is None else path,
                timeout=_BUSY_S,
                isolation_level=None,
                check_same_thread=False,
            )
            for pragma in (
                "journal_mode=WAL",
                "synchronous=FULL",  # a ticket must remain valid after a power failure
                "secure_delete=ON",
                "temp_store=MEMORY",
            ):
                self._table.execute(f"PRAGMA {pragma}")
            self._table.executescript(_TABLES)
            self._table.execute("BEGIN IMMEDIATE")  # another process may add it, too
            columns = self._table.execute("SELECT name FROM pragma_table_info('items')")
            if ("application",) not in columns.fetchall():
                self._table.execute(_APPLICATION)
            self._table.execute("COMMIT")
            self._require_key()
        except OSError as failure:
            raise ConfigError(f"{path}: {failure.strerror}") from None
        except sqlite3.Error as failure:
            raise ConfigError(f"{path}: {failure}") from None

    def _require_key(self) -> None:
        """Refuse a file of another key, but not because of one damaged epoch key."""
        sealed = self._table.execute("SELECT key FROM epochs").fetchall()
        for (each,) in sealed:
            with suppress(InvalidTag):
                self._key(each)
                return
        if sealed:
            raise ConfigError(
                f"{self._path}: sealed with another key than routing.queue.key_file "
                "holds; put that key back, or remove the file and what waits in it"
            )

    @property
    def in_memory(self) -> bool:
        """Whether the queue is lost when this process ends."""
        return self._path is None

    def put(self, item: Deferred, content: bytes, why: str) -> None:
        """Queue a query; once this returns, a crash does not lose it.

        Args:
            item: its metadata.
            content: its request.
            why: begins the message of the error if the queue is full.

        Raises:
            QueueFullError: the queue is as large as the policy permits.
            QueueStoreError: it cannot be written.
        """
        with self._changing() as table:
            forgot = self._forget(item.put_ms)
            count, size = table.execute(
                "SELECT COUNT(*), COALESCE(SUM(LENGTH(content)), 0) FROM items"
            ).fetchone()
            if count >= self._max_items or size + len(content) > self._max_bytes:
                raise QueueFullError(why)
            if item.application and not self._has_share(item, len(content)):
                raise QueueFullError(why)
            self._write(item, content, item.put_ms)
        if forgot:
            self._clear_journal()

    def _has_share(self, item: Deferred, more: int) -> bool:
        """Return whether the application of a query may queue it, too."""
        count, size = self._table.execute(
            "SELECT COUNT(*), COALESCE(SUM(LENGTH(content)), 0) FROM items "
            "WHERE application = ?",
            (item.application,),
        ).fetchone()
        most = max(1, self._max_items // MOST_OF_ONE)
        return bool(count < most and size + more <= self._max_bytes // MOST_OF_ONE)

    def items(self, now_ms: int) -> tuple[Deferred, ...]:
        """Return every row, queued or settled; the oldest first.

        Raises:
            QueueStoreError: it cannot be read.
        """
        return self._found(now_ms, "ORDER BY put_ms, rowid")

    def item(self, ticket: str, now_ms: int) -> Deferred | None:
        """Return the row of a ticket, or None if there is none.

        Raises:
            QueueStoreError: it cannot be read.
        """
        return next(iter(self._found(now_ms, "WHERE ticket = ?", ticket)), None)

    def _found(self, now_ms: int, which: str, *said: str) -> tuple[Deferred, ...]:
        with self._changing() as table:
            forgot = self._forget(now_ms)
            rows = table.execute(_ITEMS + which, said).fetchall()
            found = tuple(
                item if (item := _item(row)) is not None else self._settled(row, now_ms)
                for row in rows
            )
        if forgot:
            self._clear_journal()
        return found

    def damaged(self) -> int:
        """Return how many unreadable rows were settled since the last call."""
        with self._lock:
            count, self._damaged = self._damaged, 0
            return count

    def content(self, item: Deferred) -> bytes:
        """Return a query's request or, once it was settled, its outcome.

        Raises:
            QueueDamagedError: it is not what was stored in this state.
            QueueStoreError: there is none, or it cannot be read.
        """
        with self._changing() as table:
            row = table.execute(
                "SELECT key, content FROM items LEFT JOIN epochs ON id = epoch "
                "WHERE ticket = ?",
                (item.ticket,),
            ).fetchone()
            if row is None:
                raise QueueStoreError("nothing is queued under this ticket")
            key, sealed = row
            try:
                # Without a key (NULL), decryption fails as well.
                opener = ChaCha20Poly1305(self._key(key or b""))
                return _open(opener, sealed, _LABEL + item.bound())
            except InvalidTag:
                raise QueueDamagedError(DAMAGED) from None

    def settle(
        self, item: Deferred, state: State, outcome: bytes, *, now_ms: int
    ) -> bool:
        """Replace a query by its outcome; return whether it was still queued.

        Atomic: a query has one outcome, even if several processes retry it.

        Raises:
            QueueStoreError: it cannot be written.
        """
        life_ms = item.until_ms - item.put_ms
        settled = replace(item, state=state, until_ms=now_ms + life_ms)
        with self._changing() as table:
            found = table.execute(
                "DELETE FROM items WHERE ticket = ? AND state = ?",
                (item.ticket, State.WAITING),
            )
            if not found.rowcount:
                return False
            self._write(settled, outcome, now_ms)
            self._shred()
        self._clear_journal()
        return True

    def drop(self, ticket: str) -> bool:
        """Delete a query or its outcome; return whether there was one.

        Raises:
            QueueStoreError: it cannot be written.
        """
        with self._changing() as table:
            found = table.execute("DELETE FROM items WHERE ticket = ?", (ticket,))
            self._shred()
        self._clear_journal()
        return found.rowcount > 0

    @contextmanager
    def draining(self) -> Generator[bool]:
        """Hold the lock for retries; yields False if another process holds it.

        The kernel releases it if the process is killed.
        """
        if self._draining:
            yield False
            return
        self._draining = True
        try:
            with ExitStack() as held:
                alone = True
                if self._path is not None:
                    name = self._path.with_name(f"{self._path.name}.lock")
                    try:
                        held.enter_context(locked(name, 0))
                    except OSError:
                        alone = False
                yield alone
        finally:
            self._draining = False

    def close(self) -> None:
        """Close the file; a queue in memory is lost."""
        with self._lock:
            self._table.close()

    @contextmanager
    def _changing(self) -> Generator[sqlite3.Connection]:
        with self._lock:
            try:
                self._table.execute("BEGIN IMMEDIATE")
                try:
                    yield self._table
                except BaseException:
                    self._table.execute("ROLLBACK")
                    raise
                self._table.execute("COMMIT")
            except sqlite3.Error as failure:
                raise QueueStoreError(f"the queue: {failure}") from None

    def _write(self, item: Deferred, content: bytes, now_ms: int) -> None:
        epoch, key = self._epoch(now_ms)
        nonce = self._draw(_NONCE_BYTES)
        sealed = ChaCha20Poly1305(key).encrypt(nonce, content, _LABEL + item.bound())
        self._table.execute(
            "INSERT INTO items (ticket, class, policy, cause, put_ms, until_ms, state, "
            "epoch, content, application) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                item.ticket,
                item.routing_class,
                item.policy,
                item.cause,
                item.put_ms,
                item.until_ms,
                item.state,
                epoch,
                nonce + sealed,
                item.application,
            ),
        )

    def _settled(self, row: tuple[Any, ...], now_ms: int) -> Deferred:
        """Replace an unreadable row by a refusal, so that the others stay usable.

        Nothing of the row is trusted except its ticket and its application, which must
        both be those of who asks for it.
        """
        self._damaged += 1
        item = Deferred(
            ticket=row[0],
            routing_class=RoutingClass.RESTRICTED,
            policy="",
            cause=LocalFailure.UNAVAILABLE,
            put_ms=now_ms,
            until_ms=now_ms + _DAMAGED_LIFE_MS,
            state=State.REFUSED,
            application=row[-1],
        )
        self._table.execute("DELETE FROM items WHERE ticket = ?", (item.ticket,))
        self._write(item, refusal_of("queue_damaged", DAMAGED), now_ms)
        self._shred()
        return item

    def _epoch(self, now_ms: int) -> tuple[int, bytes]:
        """Return the current epoch and its key; create one if none is usable."""
        row = self._table.execute(
            "SELECT id, key FROM epochs WHERE began_ms > ? AND began_ms <= ? "
            "ORDER BY id DESC",
            (now_ms - EPOCH_MS, now_ms),
        ).fetchone()
        if row is not None:
            with suppress(InvalidTag):
                return row[0], self._key(row[1])
        key, nonce = self._draw(KEY_BYTES), self._draw(_NONCE_BYTES)
        cursor = self._table.execute(
            "INSERT INTO epochs (began_ms, key) VALUES (?, ?)",
            (now_ms, nonce + self._seal.encrypt(nonce, key, _EPOCH_LABEL)),
        )
        return cursor.lastrowid or 0, key

    def _key(self, sealed: bytes) -> bytes:
        return _open(self._seal, sealed, _EPOCH_LABEL)

    def _forget(self, now_ms: int) -> bool:
        """Delete the content of expired rows; of an expired query, keep its state.

        Returns whether anything was deleted; then the journal must be cleared.
        """
        rows = self._table.execute(_ITEMS + "WHERE until_ms <= ?", (now_ms,)).fetchall()
        for row in rows:
            item = _item(row)
            self._table.execute("DELETE FROM items WHERE ticket = ?", (row[0],))
            if item is None:
                self._damaged += 1
            elif item.state is State.WAITING:
                life_ms = item.until_ms - item.put_ms
                expired = replace(
                    item, state=State.EXPIRED, until_ms=item.until_ms + life_ms
                )
                if expired.until_ms > now_ms:
                    self._write(expired, b"", now_ms)
        if rows:
            self._shred()
        return bool(rows)

    def _shred(self) -> None:
        """Delete the keys that no row uses any more."""
        self._table.execute(
            "DELETE FROM epochs WHERE id NOT IN (SELECT epoch FROM items)"
        )

    def _clear_journal(self) -> None:
        # Until it is checkpointed, the journal contains old pages.
        with self._lock, suppress(sqlite3.Error):
            self._table.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _open(key: ChaCha20Poly1305, sealed: bytes, bound: bytes) -> bytes:
    if len(sealed) < _NONCE_BYTES:
        raise InvalidTag
    return key.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound)


def _item(row: tuple[Any, ...]) -> Deferred | None:
    """Return the metadata of a row, or None if we did not write it."""
    ticket, routing_class, policy, cause, put_ms, until_ms, state, application = row
    if not 0 <= put_ms <= until_ms <= _LAST_MS:
        return None
    try:
        _ = reason_named(cause)
        return Deferred(
            ticket=ticket,
            routing_class=RoutingClass(routing_class),
            policy=policy,
            cause=cause,  # as it was written: the content is sealed with this word
            put_ms=put_ms,
            until_ms=until_ms,
            state=State(state),
            application=application,
        )
    except ValueError:
        return None
