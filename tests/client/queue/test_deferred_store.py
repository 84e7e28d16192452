import multiprocessing
import os
import signal
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from curtilage.client.errors import ConfigError
from curtilage.client.on_premises.reasons import OnPremisesFailure
from curtilage.client.queue.deferred import Deferred, State, refused_as
from curtilage.client.queue.deferred_store import (
    DAMAGED,
    EPOCH_MS,
    KEY_BYTES,
    DeferredStore,
    QueueDamagedError,
    QueueFullError,
    QueueStoreError,
    queue_store,
    read_queue_key,
)
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.routing_settings import Queue

KEY = bytes(range(KEY_BYTES))
SECRET = b"Dr Adalbert Quux has the flu"
HOUR = 3_600_000


def item(number: int = 0, *, put_ms: int = 1000, life_ms: int = HOUR) -> Deferred:
    return Deferred(
        ticket=f"{number:032x}",
        routing_class=RoutingClass.PUBLIC,
        policy="sha256:00",
        cause="busy",
        put_ms=put_ms,
        until_ms=put_ms + life_ms,
    )


def open_at(
    path: Path | None,
    *,
    key: bytes = KEY,
    max_items: int = 9,
    max_bytes: int = 10_000,
) -> DeferredStore:
    return DeferredStore(path, key, max_items=max_items, max_bytes=max_bytes)


@pytest.fixture(params=["memory", "file"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "state" / "queue.db" if request.param == "file" else None


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


def everything(file: Path) -> bytes:
    """All bytes of the table and its journals."""
    return b"".join(each.read_bytes() for each in file.parent.glob("queue.db*"))


def test_what_is_put_is_there(path: Path | None) -> None:
    store = open_at(path)
    store.put(item(1), SECRET, "")
    assert store.items(1001) == (item(1),)
    assert store.content(item(1)) == SECRET


def test_the_oldest_comes_first(path: Path | None) -> None:
    store = open_at(path)
    store.put(item(2, put_ms=20), b"b", "")
    store.put(item(1, put_ms=10), b"a", "")
    assert [each.put_ms for each in store.items(30)] == [10, 20]


def test_a_file_outlives_who_wrote_it(file: Path) -> None:
    store = open_at(file)
    store.put(item(1), SECRET, "")
    store.close()
    assert open_at(file).content(item(1)) == SECRET


def test_what_an_older_version_queued_opens(file: Path) -> None:
    """The name of its cause has changed, and is sealed with the content."""
    old = replace(item(1), cause="house_busy")
    open_at(file).put(old, SECRET, "")
    store = open_at(file)
    (found,) = store.items(1001)
    assert store.content(found) == SECRET
    assert found.reason is OnPremisesFailure.BUSY


@pytest.mark.parametrize(("max_items", "max_bytes"), [(1, 10_000), (9, 80)])
def test_so_much_may_wait_and_no_more(
    path: Path | None, max_items: int, max_bytes: int
) -> None:
    store = open_at(path, max_items=max_items, max_bytes=max_bytes)
    store.put(item(1), SECRET, "")
    with pytest.raises(QueueFullError, match=r"^why it waits; ") as full:
        store.put(item(2), SECRET, "why it waits")
    assert full.value.code == "queue_full"
    assert len(store.items(1001)) == 1
    store.drop(item(1).ticket)
    store.put(item(2), SECRET, "")


@pytest.mark.parametrize(("max_items", "max_bytes"), [(4, 10_000), (9, 150)])
def test_one_application_does_not_fill_it(
    path: Path | None, max_items: int, max_bytes: int
) -> None:
    store = open_at(path, max_items=max_items, max_bytes=max_bytes)
    first = replace(item(1), application="letters")
    store.put(first, SECRET, "")
    if max_items == 4:
        store.put(replace(item(2), application="letters"), SECRET, "")
    with pytest.raises(QueueFullError):
        store.put(replace(item(3), application="letters"), SECRET, "")
    store.put(replace(item(4), application="triage"), SECRET, "")
    assert store.content(first) == SECRET


def test_the_application_is_bound_to_the_content(file: Path) -> None:
    store = open_at(file)
    store.put(replace(item(1), application="letters"), SECRET, "")
    store.close()
    with closing(sqlite3.connect(file)) as table, table:
        table.execute("UPDATE items SET application = 'triage'")
    (found,) = open_at(file).items(1001)
    with pytest.raises(QueueDamagedError):
        open_at(file).content(found)


def test_a_table_of_an_earlier_version_gets_the_column(file: Path) -> None:
    store = open_at(file)
    store.put(item(1), SECRET, "")
    store.close()
    with closing(sqlite3.connect(file)) as table, table:
        table.execute("ALTER TABLE items DROP COLUMN application")
    store = open_at(file)
    assert store.content(item(1)) == SECRET
    assert [each.application for each in store.items(1001)] == [""]
    store.put(replace(item(2), application="letters"), SECRET, "")


def test_an_expired_item_is_forgotten_and_reported_once_more(
    path: Path | None,
) -> None:
    store = open_at(path)
    store.put(item(1), SECRET, "")
    (left,) = store.items(1000 + HOUR)
    assert left.state is State.EXPIRED
    assert store.content(left) == b""
    assert store.items(1000 + 2 * HOUR) == ()


def test_an_uncollected_item_is_forgotten_at_once(path: Path | None) -> None:
    store = open_at(path)
    store.put(item(1), SECRET, "")
    assert store.items(1000 + 9 * HOUR) == ()


def test_a_question_has_one_outcome(path: Path | None) -> None:
    store = open_at(path)
    store.put(item(1), SECRET, "")
    assert store.settle(item(1), State.ANSWERED, b"first", now_ms=5000)
    assert not store.settle(item(1), State.ANSWERED, b"second", now_ms=5001)
    settled = store.item(item(1).ticket, 5002)
    # As long again as it might have waited.
    assert settled is not None
    assert settled == replace(item(1), state=State.ANSWERED, until_ms=5000 + HOUR)
    assert store.content(settled) == b"first"


def test_what_was_dropped_meanwhile_gets_no_outcome(path: Path | None) -> None:
    store = open_at(path)
    store.put(item(1), SECRET, "")
    assert store.drop(item(1).ticket)
    assert not store.drop(item(1).ticket)
    assert not store.settle(item(1), State.ANSWERED, b"late", now_ms=5000)
    assert store.items(5000) == ()
    with pytest.raises(QueueStoreError, match="nothing is queued"):
        store.content(item(1))


def test_a_file_says_nothing_of_what_waits(file: Path) -> None:
    store = open_at(file)
    store.put(item(1), SECRET, "")
    store.put(item(2), b"other", "")
    store.settle(item(1), State.ANSWERED, b"It is " + SECRET, now_ms=5000)
    assert b"Quux" not in everything(file)
    assert b"busy" in everything(file)


def test_only_its_owner_can_read_it(file: Path) -> None:
    usual = os.umask(0)
    try:
        store = open_at(file)
        store.put(item(1), SECRET, "")
    finally:
        os.umask(usual)
    for each in file.parent.glob("queue.db*"):
        assert each.stat().st_mode & 0o077 == 0


def test_the_folders_that_it_makes_are_private(tmp_path: Path) -> None:
    open_at(tmp_path / "state" / "curtilage" / "queue.db").close()
    for made in (tmp_path / "state", tmp_path / "state" / "curtilage"):
        assert made.stat().st_mode & 0o777 == 0o700


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "queue.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError):
        open_at(tmp_path / "queue.db")
    assert not (tmp_path / "elsewhere").exists()


def test_another_key_opens_nothing_and_loses_nothing(file: Path) -> None:
    store = open_at(file)
    store.put(item(1), SECRET, "")
    store.close()
    with pytest.raises(ConfigError, match="another key"):
        open_at(file, key=bytes(KEY_BYTES))
    assert open_at(file).content(item(1)) == SECRET


def test_a_file_that_is_no_table_is_refused(file: Path) -> None:
    file.write_bytes(b"no table" * 1000)
    with pytest.raises(ConfigError, match="not a database"):
        open_at(file)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE items SET class = 'restricted' WHERE ticket = ?",
        "UPDATE items SET policy = 'sha256:11' WHERE ticket = ?",
        "UPDATE items SET cause = 'timeout' WHERE ticket = ?",
        "UPDATE items SET until_ms = until_ms + 1 WHERE ticket = ?",
        "UPDATE items SET content = zeroblob(60) WHERE ticket = ?",
        "UPDATE items SET content = zeroblob(5) WHERE ticket = ?",
        "UPDATE items SET epoch = 99 WHERE ticket = ?",
    ],
)
def test_what_was_changed_in_the_file_does_not_open(file: Path, change: str) -> None:
    store = open_at(file)
    store.put(item(1), SECRET, "")
    store.put(item(2), b"other", "")
    with sqlite3.connect(file) as table:
        table.execute(change, (item(1).ticket,))
    (changed, _) = store.items(1001)
    with pytest.raises(QueueDamagedError, match=DAMAGED):
        store.content(changed)


def test_a_key_that_was_changed_in_the_file_opens_nothing(file: Path) -> None:
    store = open_at(file)
    store.put(item(1), SECRET, "")
    with sqlite3.connect(file) as table:
        table.execute("UPDATE epochs SET key = zeroblob(60)")
    with pytest.raises(QueueDamagedError, match=DAMAGED):
        store.content(item(1))
    # What comes later lies under a key of its own, and is not lost with it.
    store.put(item(2), SECRET, "")
    assert store.content(item(2)) == SECRET
    store.settle(item(1), State.REFUSED, b"{}", now_ms=2000)
    store.close()
    assert open_at(file).content(item(2)) == SECRET


@pytest.mark.parametrize(
    "change",
    [
        "class = 'xx'",
        "cause = 'xx'",
        "state = 'xx'",
        "put_ms = -1",
        "until_ms = 9223372036854775807",
        "put_ms = until_ms + 1",
    ],
)
def test_a_row_that_cannot_be_read_is_settled_and_the_others_go_on(
    file: Path, change: str
) -> None:
    store = open_at(file)
    store.put(item(1), SECRET, "")
    store.put(item(2), b"other", "")
    with sqlite3.connect(file) as table:
        table.execute(f"UPDATE items SET {change} WHERE ticket = ?", (item(1).ticket,))  # noqa: S608
    by_ticket = {each.ticket: each for each in store.items(1001)}
    assert by_ticket[item(2).ticket] == item(2)
    settled = by_ticket[item(1).ticket]
    assert settled.state is State.REFUSED
    assert settled.routing_class is RoutingClass.RESTRICTED
    assert refused_as(store.content(settled)) == ("queue_damaged", DAMAGED)
    assert b"Quux" not in everything(file)
    assert (store.damaged(), store.damaged()) == (1, 0)
    # It was settled: a second look finds nothing that is damaged.
    assert store.item(item(1).ticket, 1002) == settled
    assert store.damaged() == 0
    assert store.items(1000 + 99 * HOUR) == ()


def test_a_row_that_cannot_be_read_is_forgotten_in_its_time(file: Path) -> None:
    store = open_at(file)
    store.put(item(1), SECRET, "")
    with sqlite3.connect(file) as table:
        table.execute("UPDATE items SET class = 'xx'")
    store.put(item(2, put_ms=1000 + 9 * HOUR), b"other", "")
    assert [each.ticket for each in store.items(1001 + 9 * HOUR)] == [item(2).ticket]


def test_one_content_does_not_open_in_the_place_of_another(file: Path) -> None:
    store = open_at(file)
    store.put(item(1), SECRET, "")
    store.put(item(2), b"other", "")
    with sqlite3.connect(file) as table:
        rows = table.execute("SELECT content FROM items ORDER BY ticket").fetchall()
        for number, (content,) in zip((2, 1), rows, strict=True):
            table.execute(
                "UPDATE items SET content = ? WHERE ticket = ?",
                (content, item(number).ticket),
            )
    for each in (item(1), item(2)):
        with pytest.raises(QueueDamagedError):
            store.content(each)


def test_the_key_goes_with_the_last_that_lay_under_it(file: Path) -> None:
    store = open_at(file)
    store.put(item(1), SECRET, "")
    with sqlite3.connect(file) as table:
        ((epoch_key,),) = table.execute("SELECT key FROM epochs").fetchall()
    assert epoch_key in everything(file)
    store.drop(item(1).ticket)
    assert epoch_key not in everything(file)


def test_what_waited_too_long_is_in_no_journal_either(file: Path) -> None:
    store = open_at(file)
    store.put(item(1), SECRET, "")
    with sqlite3.connect(file) as table:
        ((epoch_key, content),) = table.execute(
            "SELECT key, content FROM epochs JOIN items"
        ).fetchall()
    assert content in everything(file)
    store.items(1000 + 9 * HOUR)
    assert content not in everything(file)
    assert epoch_key not in everything(file)


def test_what_waited_too_long_is_in_no_journal_once_another_was_put(
    file: Path,
) -> None:
    store = open_at(file)
    store.put(item(1), SECRET, "")
    with sqlite3.connect(file) as table:
        ((epoch_key,),) = table.execute("SELECT key FROM epochs").fetchall()
    store.put(item(2, put_ms=1000 + 9 * HOUR), b"other", "")
    assert epoch_key not in everything(file)


def test_an_epoch_has_its_own_key(file: Path) -> None:
    store = open_at(file)
    store.put(item(1, put_ms=0, life_ms=9 * HOUR), b"a", "")
    store.put(item(2, put_ms=EPOCH_MS, life_ms=9 * HOUR), b"b", "")
    count = "SELECT COUNT(*) FROM epochs"
    with sqlite3.connect(file) as table:
        assert table.execute(count).fetchone() == (2,)
    store.drop(item(1).ticket)
    with sqlite3.connect(file) as table:
        assert table.execute(count).fetchone() == (1,)


def test_one_asks_again_at_a_time(path: Path | None) -> None:
    store = open_at(path)
    with store.draining() as first, store.draining() as second:
        assert (first, second) == (True, False)
    with store.draining() as later:
        assert later


def test_one_process_asks_again_at_a_time(file: Path) -> None:
    with open_at(file).draining(), open_at(file).draining() as other:
        assert not other


def test_a_closed_queue_says_so(path: Path | None) -> None:
    store = open_at(path)
    store.close()
    with pytest.raises(QueueStoreError):
        store.items(0)


def _put_and_die(file: Path) -> None:
    store = open_at(file)
    store.put(item(1), SECRET, "")
    with store.draining():
        os.kill(os.getpid(), signal.SIGKILL)


def test_what_was_put_survives_who_put_it(file: Path) -> None:
    """Killed between two steps, with the lock in its hand."""
    process = multiprocessing.get_context("spawn").Process(
        target=_put_and_die, args=(file,)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    store = open_at(file)
    assert store.items(1001) == (item(1),)
    assert store.content(item(1)) == SECRET
    with store.draining() as alone:
        assert alone


def key_at(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_key_is_read(tmp_path: Path) -> None:
    assert read_queue_key(key_at(tmp_path / "key", f"{KEY.hex()}\n")) == KEY


@pytest.mark.parametrize("text", ["", "00" * 31, "00" * 33, "zz" * 32, KEY.hex()[:-1]])
def test_what_is_no_key_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"64 hexadecimal digits.*openssl"):
        read_queue_key(key_at(tmp_path / "key", text))


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="chmod 600"):
        read_queue_key(key_at(tmp_path / "key", KEY.hex(), 0o640))


def test_a_missing_key_is_reported_with_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="openssl rand -hex 32"):
        read_queue_key(tmp_path / "key")


def test_a_policy_says_where_it_waits(tmp_path: Path) -> None:
    key = key_at(tmp_path / "key", KEY.hex())
    plan = Queue(store="file", key_file=str(key))
    store = queue_store(plan, tmp_path / "state")
    assert not store.in_memory
    assert (tmp_path / "state" / "queue.db").exists()
    assert queue_store(Queue(store="memory"), tmp_path).in_memory
