"""Keys of a gateway's applications: of which only digests are stored."""

import pytest

from curtilage.client.endpoint.keys import KeyRecord, Keys, make_key, parse_record
from curtilage.client.errors import UsageError

# Not random: they are in the names of the tests, which every process must know.
KEY, RECORD = make_key("letters", random=lambda size: bytes([1]) * size)


def test_a_key_opens_and_its_record_does_not() -> None:
    keys = Keys([RECORD])
    assert keys.application([f"Bearer {KEY}"]) == "letters"
    assert keys.application([f"bearer  {KEY} "]) == "letters"
    for stored in (RECORD.row(), f"letters.{RECORD.digest.hex()}"):
        assert keys.application([f"Bearer {stored}"]) is None


def test_the_record_has_nothing_of_the_key() -> None:
    secret = KEY.partition(".")[2]
    assert len(secret) == 43
    assert secret not in RECORD.row() + repr(RECORD)
    assert RECORD.digest.hex() not in repr(RECORD)
    assert parse_record(RECORD.row()) == RECORD
    # Another salt each time, or equal keys would have equal records.
    assert make_key("letters")[1].salt != RECORD.salt


OTHER, OTHERS = make_key("triage", random=lambda size: bytes([2]) * size)


@pytest.mark.parametrize(
    "given",
    [
        [],
        [""],
        [f"Basic {KEY}"],
        [KEY],
        [f"Bearer {KEY[:-1]}"],
        [f"Bearer {KEY}A"],
        [f"Bearer {KEY[:-1]}{'A' if KEY[-1] != 'A' else 'B'}"],
        # The secret of another application, or of none.
        [f"Bearer letters.{OTHER.partition('.')[2]}"],
        [f"Bearer unknown.{KEY.partition('.')[2]}"],
        [f"Bearer unknown.{'A' * 43}"],
        # A proxy in front may have looked at either.
        [f"Bearer {KEY}", f"Bearer {KEY}"],
        [f"Bearer {KEY}, Bearer {KEY}"],
        [f"Bearer {KEY}\udc80"],
    ],
)
def test_anything_else_opens_nothing(given: list[str]) -> None:
    assert Keys([RECORD, OTHERS]).application(given) is None


def test_an_application_may_have_two_keys() -> None:
    key, record = make_key("letters")
    keys = Keys([RECORD, OTHERS, record])
    assert keys.applications == ("letters", "triage")
    for each in (KEY, key):
        assert keys.application([f"Bearer {each}"]) == "letters"
    assert Keys([record]).application([f"Bearer {KEY}"]) is None


def test_no_application_is_called_nothing() -> None:
    """The record that an unknown name is compared with opens for none."""
    assert Keys([]).application([f"Bearer letters.{'A' * 43}"]) is None


@pytest.mark.parametrize("name", ["", "-a", "Letters", "a b", "a" * 33, "a.b", "ä"])
def test_a_name_is_plain(name: str) -> None:
    with pytest.raises(UsageError):
        make_key(name)


@pytest.mark.parametrize(
    "row",
    [
        "",
        KEY,
        RECORD.row().upper(),
        f"{RECORD.row()} ",
        f"{RECORD.row()}\n",
        RECORD.row().removeprefix("letters"),
        RECORD.row()[:-1],
    ],
)
def test_what_is_no_record_is_none(row: str) -> None:
    assert parse_record(row) is None


def test_a_record_is_its_three_parts() -> None:
    assert parse_record(f"a:{'00' * 16}:{'11' * 32}") == KeyRecord(
        name="a", salt=bytes(16), digest=b"\x11" * 32
    )
