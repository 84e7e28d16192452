"""Where questions wait: a sealed table, in a file of ours or in memory.

One table for both, so that what holds for one holds for the other; in memory it is
sealed with a key that nobody keeps. Several processes may use one file. What a question
says, and its answer, lie under the key of their hour (an epoch), together with all that
the table says of them: a row that was changed, or put in another's place, does not
open. An epoch's key lies in the same file, under the key that the policy names. It is
overwritten as soon as nothing lies under it; then no copy of a page that the file
system or an old journal still holds opens for anybody.

That the whole file is put back as it once was shows to nobody who holds only the file.
A question that was answered since would be asked again then, by the rules of that day.
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
    FailureReason,
    NotRoutedError,
)
from curtilage.client.files import (
    locked,
    make_private_folder,
    open_ordinary,
    open_private,
)
from curtilage.client.queue.deferred import Deferred, State, refusal_of
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.routing_plan import QueuePlan

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
_LAST_MS: Final = 253_402_300_799_000
"""The end of the year 9999: no later time can be shown."""
DAMAGED: Final = "what waits under this ticket is not what was put there"
_ITEMS: Final = (
    "SELECT ticket, class, policy, cause, put_ms, until_ms, state FROM items "
)


class QueueStoreError(ClientError):
    """The queue cannot be read or written.

    Says what the system said; never a word of what waits.
    """


class QueueDamagedError(QueueStoreError):
    """What waits is not what was put there, or cannot be read as that."""


class QueueFullError(NotRoutedError):
    """So much waits already as may; the policy says how much."""

    def __init__(self, why: str) -> None:
        super().__init__("queue_full", f"{why}; and no more questions may wait")


def read_queue_key(path: Path) -> bytes:
    """Read the key that seals a queue's file, 32 bytes.

    Raises:
        ConfigError: it cannot be read, is no such key, or others can read it.
    """
    make = f"make one with: (umask 077; openssl rand -hex 32 > {path})"
    try:
        with open_ordinary(path) as file:
            # Of the file that was opened, not of what has its name by now.
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


def queue_store(plan: QueuePlan, directory: Path) -> "DeferredStore":
    """Open the queue of a policy.

    Args:
        plan: what the policy says of it; it lets questions wait.
        directory: where its file lies, if it has one.

    Raises:
        ConfigError: the key cannot be used, or the file not be opened with it.
    """
    in_file = plan.store == "file"
    return DeferredStore(
        directory / QUEUE_NAME if in_file else None,
        read_queue_key(Path(plan.key_file)) if in_file else token_bytes(KEY_BYTES),
        max_items=plan.max_items,
        max_bytes=plan.max_bytes,
    )


class DeferredStore:
    """A table of questions that wait; every method blocks until it is on the disk.

    Args:
        path: the file, made where it is missing; None: in memory.
        key: 32 bytes, under which the epochs' keys lie.
        max_items: how many rows there may be.
        max_bytes: how much they may hold.
        draw: randomness, so many bytes of it.

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
        # SQLite's own lock holds between processes; this one between our threads.
        self._lock = threading.Lock()
        self._draining = False
        self._damaged = 0
        try:
            if path is not None:
                make_private_folder(path.parent)
                # Before SQLite makes it, for everybody; its journals are as this is.
                os.close(open_private(path, os.O_RDWR | os.O_CREAT))
            self._table = sqlite3.connect(
                ":memory:" if path is None else path,
                timeout=_BUSY_S,
                isolation_level=None,
                check_same_thread=False,
            )
            for pragma in (
                "journal_mode=WAL",
                "synchronous=FULL",  # a ticket is a promise, also through a power cut
                "secure_delete=ON",
                "temp_store=MEMORY",
            ):
                self._table.execute(f"PRAGMA {pragma}")
            self._table.executescript(_TABLES)
            self._require_key()
        except OSError as failure:
            raise ConfigError(f"{path}: {failure.strerror}") from None
        except sqlite3.Error as failure:
            raise ConfigError(f"{path}: {failure}") from None

    def _require_key(self) -> None:
        """Refuse a file of another key, though not for a single damaged hourly key."""
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
        """Whether what waits here is gone when this process ends."""
        return self._path is None

    def put(self, item: Deferred, content: bytes, why: str) -> None:
        """Put a question by; once this returned, no crash loses it.

        Args:
            item: of it.
            content: what it says.
            why: told where there is no room.

        Raises:
            QueueFullError: as much waits already as may.
            QueueStoreError: it cannot be written.
        """
        with self._changing() as table:
            forgot = self._forget(item.put_ms)
            count, size = table.execute(
                "SELECT COUNT(*), COALESCE(SUM(LENGTH(content)), 0) FROM items"
            ).fetchone()
            if count >= self._max_items or size + len(content) > self._max_bytes:
                raise QueueFullError(why)
            self._write(item, content, item.put_ms)
        if forgot:
            self._clear_journal()

    def items(self, now_ms: int) -> tuple[Deferred, ...]:
        """Return what waits, and what became of the rest; the oldest first.

        Raises:
            QueueStoreError: it cannot be read.
        """
        return self._found(now_ms, "ORDER BY put_ms, rowid")

    def item(self, ticket: str, now_ms: int) -> Deferred | None:
        """Return one of them, or None where there is none of this ticket.

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
        """Return how many unreadable rows were settled since this was last asked."""
        with self._lock:
            count, self._damaged = self._damaged, 0
            return count

    def content(self, item: Deferred) -> bytes:
        """Return what a question says; once it was settled, what became of it.

        Raises:
            QueueDamagedError: it is not what was put there in this state.
            QueueStoreError: there is none, or it cannot be read.
        """
        with self._changing() as table:
            row = table.execute(
                "SELECT key, content FROM items LEFT JOIN epochs ON id = epoch "
                "WHERE ticket = ?",
                (item.ticket,),
            ).fetchone()
            if row is None:
                raise QueueStoreError("nothing waits under this ticket")
            key, sealed = row
            try:
                # Without a key (nothing) it does not open, either.
                opener = ChaCha20Poly1305(self._key(key or b""))
                return _open(opener, sealed, _LABEL + item.bound())
            except InvalidTag:
                raise QueueDamagedError(DAMAGED) from None

    def settle(
        self, item: Deferred, state: State, outcome: bytes, *, now_ms: int
    ) -> bool:
        """Put what became of a question in its place; tell whether it still waited.

        In one step: a question has one outcome, whoever asks it how often.

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
        """Forget a question, or what became of it; tell whether there was one.

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
        """Be the only one who asks again; yields False where somebody else is.

        A process that is killed lets go of it.
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
        """Close the file; what waits in memory is gone."""
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
            "INSERT INTO items VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
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
            ),
        )

    def _settled(self, row: tuple[Any, ...], now_ms: int) -> Deferred:
        """Put a refusal in the place of a row that cannot be read; the others go on.

        Nothing of the row is believed but its ticket, by which its owner asks.
        """
        self._damaged += 1
        item = Deferred(
            ticket=row[0],
            routing_class=RoutingClass.RESTRICTED,
            policy="",
            cause=FailureReason.LOCAL_UNAVAILABLE,
            put_ms=now_ms,
            until_ms=now_ms + _DAMAGED_LIFE_MS,
            state=State.REFUSED,
        )
        self._table.execute("DELETE FROM items WHERE ticket = ?", (item.ticket,))
        self._write(item, refusal_of("queue_damaged", DAMAGED), now_ms)
        self._shred()
        return item

    def _epoch(self, now_ms: int) -> tuple[int, bytes]:
        """Return the epoch of now and its key; begins one where none can be used."""
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
        """Forget what waited too long; of a question that did, remember that.

        Tells whether anything was; then the journal is to be cleared.
        """
        rows = self._table.execute(_ITEMS + "WHERE until_ms <= ?", (now_ms,)).fetchall()
        for row in rows:
            item = _item(row)
            self._table.execute("DELETE FROM items WHERE ticket = ?", (row[0],))
            if item is None:
                self._damaged += 1
            elif item.state is State.WAITING:
                life_ms = item.until_ms - item.put_ms
                told = replace(
                    item, state=State.EXPIRED, until_ms=item.until_ms + life_ms
                )
                if told.until_ms > now_ms:
                    self._write(told, b"", now_ms)
        if rows:
            self._shred()
        return bool(rows)

    def _shred(self) -> None:
        """Drop the keys under which nothing lies any more."""
        self._table.execute(
            "DELETE FROM epochs WHERE id NOT IN (SELECT epoch FROM items)"
        )

    def _clear_journal(self) -> None:
        # Pages of before lie in the journal until it is written back.
        with self._lock, suppress(sqlite3.Error):
            self._table.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _open(key: ChaCha20Poly1305, sealed: bytes, bound: bytes) -> bytes:
    if len(sealed) < _NONCE_BYTES:
        raise InvalidTag
    return key.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound)


def _item(row: tuple[Any, ...]) -> Deferred | None:
    """Return what a row says, or None where we did not write it."""
    ticket, routing_class, policy, cause, put_ms, until_ms, state = row
    if not 0 <= put_ms <= until_ms <= _LAST_MS:
        return None
    try:
        return Deferred(
            ticket=ticket,
            routing_class=RoutingClass(routing_class),
            policy=policy,
            cause=FailureReason(cause),
            put_ms=put_ms,
            until_ms=until_ms,
            state=State(state),
        )
    except ValueError:
        return None
