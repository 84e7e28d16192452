import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.policy.document import exact_list as module
from curtilage.policy.document.detection_plan import NO_SUCH_LIST
from curtilage.policy.document.dictionaries import edm_entry
from curtilage.policy.document.exact_list import (
    MAGIC,
    MAX_HEADER_BYTES,
    NO_ENTRY,
    OTHER_SALT,
    Column,
    Compare,
    ExactList,
    ExactListWriter,
    forms,
    is_exact_list,
    value_words,
)
from curtilage.policy.document.load import load_policy
from curtilage.policy.errors import PolicyError

SALT = bytes(range(16))
OTHER = bytes(range(1, 17))
COLUMNS = (
    Column(name="mrn", compare="text"),
    Column(name="surname", compare="text"),
    Column(name="born", compare="date"),
    Column(name="phone", compare="digits"),
)


def made(*rows: tuple[str, str, str, str], near: int = 60) -> bytes:
    writer = ExactListWriter(
        salt=SALT, columns=COLUMNS, alone=(0, 3), together=((1, 2),), near=near
    )
    for row in rows:
        assert writer.add_alone(0, row[0])
        assert writer.add_alone(3, row[3])
        assert writer.add_together(0, row[1:3])
    return writer.encode()


ROWS = (
    ("MRN-100 231", "Zenbermar", "1980-02-01", "+0049 30 1234567"),
    ("MRN-100 232", "O'Hara-Voss", "1946-12-27", "030 7654321"),
)


def shown(text: str, content: bytes | None = None) -> list[str]:
    exact = ExactList.parse(content or made(*ROWS), salt=SALT)
    return [text[start:end] for start, end in exact.places(text, salt=SALT)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("about mrn100231, please", ["mrn100231"]),
        ("about Mrn 100-231, please", ["Mrn 100-231"]),
        ("about mrn100233, please", []),
        ("call 49 30 123 45 67", ["49 30 123 45 67"]),
        ("Zenbermar coughs", []),
        ("born on 1980-02-01", []),
        ("ZENBERMAR, born 1980-02-01,", ["ZENBERMAR", "1980-02-01"]),
        ("on 1.2.1980 Zenbermar", ["1.2.1980", "Zenbermar"]),
        ("Zenbermar (2/1/80)", ["Zenbermar", "2/1/80"]),
        ("Zenbermar, 1st of February 1980", ["Zenbermar", "1st of February 1980"]),
        ("Zenbermar, February 1, 1980", ["Zenbermar", "February 1, 1980"]),
        ("Zenbermar, 1 de febrero de 1980", ["Zenbermar", "1 de febrero de 1980"]),
        ("Zenbermar 19800201", ["Zenbermar", "19800201"]),
        ("Zenbermar, 1946-12-27", []),  # the day of another row
        ("O'Hara Voss of 27.12.1946", ["O'Hara Voss", "27.12.1946"]),
        (f"Zenbermar {'x' * 70} 1980-02-01", []),  # too far apart
    ],
)
def test_values_are_found_however_they_are_written(text: str, found: list[str]) -> None:
    assert shown(text) == found


def test_the_file_holds_no_value() -> None:
    content = made(*ROWS)
    assert is_exact_list(content)
    for value in ("100231", "zenbermar", "1980", "1234567", "hara"):
        assert value.encode() not in content.lower()
    assert "zenbermar" not in repr(ExactList.parse(content, salt=SALT)).lower()


def test_eight_bytes_stand_for_an_entry() -> None:
    def size(count: int) -> int:
        writer = ExactListWriter(salt=SALT, columns=COLUMNS[:1], alone=(0,))
        for number in range(count):
            writer.add_alone(0, f"MRN{number:07}")
        return len(writer.encode())

    assert size(3000) - size(1000) == pytest.approx(8 * 2000, abs=4)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.from_regex(r"[a-z0-9]{6,12}", fullmatch=True), min_size=1))
def test_whatever_was_taken_is_found(values: list[str]) -> None:
    writer = ExactListWriter(salt=SALT, columns=COLUMNS[:1], alone=(0,))
    for value in values:
        assert writer.add_alone(0, value)
    exact = ExactList.parse(writer.encode(), salt=SALT)
    assert exact.counts == (("values", len(set(values))),)
    for value in values:
        assert list(exact.places(f"a {value}!", salt=SALT)) == [(2, 2 + len(value))]


def test_lines_of_before_are_a_list_too() -> None:
    exact = ExactList.of_digests([edm_entry("Blue Falcon 7", salt=SALT)])
    text = "the blue-falcon 7 project"
    assert [text[a:b] for a, b in exact.places(text, salt=SALT)] == ["blue-falcon 7"]
    assert list(exact.places(text, salt=OTHER)) == []


@pytest.mark.parametrize(
    ("value", "compare", "expected"),
    [
        ("3/4/1980", "date", ("1980-03-04", "1980-04-03")),
        ("31.12.99", "date", ("1999-12-31", "2099-12-31")),
        ("30 February 1980", "date", ()),
        ("Zen 1 1980", "date", ()),
        ("12", "date", ()),
        ("00 12-3", "digits", ("123",)),
        ("12a", "digits", ()),
        ("000", "digits", ()),
        ("Ä b", "text", ("äb",)),
    ],
)
def test_forms(value: str, compare: Compare, expected: tuple[str, ...]) -> None:
    assert forms(value_words(value), compare) == expected


def test_a_value_that_cannot_be_one_is_not_taken() -> None:
    writer = ExactListWriter(
        salt=SALT, columns=COLUMNS, alone=(0, 3), together=((1, 2),)
    )
    assert not writer.add_alone(0, "---")
    assert not writer.add_alone(0, "a " * 9)
    assert not writer.add_alone(3, "none")
    assert not writer.add_together(0, ("Zenbermar", "unknown"))
    with pytest.raises(ValueError, match=NO_ENTRY):
        writer.encode()


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": ()},
        {"columns": COLUMNS * 3},
        {"together": ((1,),)},
        {"together": ((0, 1, 2, 3),)},
        {"near": 0},
        {"near": 1001},
    ],
)
def test_a_writer_refuses(wrong: dict[str, object]) -> None:
    given: dict[str, object] = {"columns": COLUMNS, "alone": (0,), **wrong}
    with pytest.raises(ValueError, match="columns"):
        ExactListWriter(salt=SALT, **given)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_file_has_no_more_entries_than_can_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_TABLE_ENTRIES", 9)
    with pytest.raises(ValueError, match="more than 9 entries"):
        made(*ROWS)


def changed(**header: object) -> bytes:
    _, line, body = made(*ROWS).split(b"\n", 2)
    return MAGIC + json.dumps(json.loads(line) | header).encode() + b"\n" + body


def out_of_order() -> bytes:
    content = made(*ROWS)
    at = content.index(b"\n", len(MAGIC)) + 1
    return (
        content[:at]
        + content[at + 8 : at + 16]
        + content[at : at + 8]
        + content[at + 16 :]
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"x", "is no exact list"),
        (MAGIC, "the header"),
        (MAGIC + b"{}\n", "the header"),
        (MAGIC + b"[]\n", "the header"),
        (MAGIC + b"{" * MAX_HEADER_BYTES, "the header"),
        (changed(key_check="00" * 8), "another salt"),
        (changed(key_check=1), "another salt"),
        (changed(key_check="é"), "the header"),
        (changed(near=0), "the header"),
        (changed(columns=[]), "the header"),
        (changed(columns=[{"name": "a", "compare": "soundex"}] * 4), "the header"),
        (changed(columns=[{"name": "a", "compare": "text"}] * 9), "the header"),
        (changed(together=[[9, 1]]), "the header"),
        (changed(together=[[1]]), "the header"),
        (changed(tables=[-1, 1]), "the header"),
        (changed(tables=[True]), "the header"),
        (changed(tables=[10**9]), "the header"),
        (changed(tables=[]), "cut"),
        (changed(unknown=1), "the header"),
        (made(*ROWS)[:-1], "cut"),
        (made(*ROWS) + bytes(8), "cut"),
        (changed(together=[]), "another number of tables"),
        (out_of_order(), "not in order"),
    ],
)
def test_parse_refuses(content: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        ExactList.parse(content, salt=SALT)
    assert caught.value.__cause__ is None


def test_another_salt_is_reported() -> None:
    with pytest.raises(ValueError, match="another salt"):
        ExactList.parse(made(*ROWS), salt=OTHER)


POLICY = """\
version: 1
rules:
- {id: any-uncertain, when: "uncertain.*", then: local}
detectors:
- {id: x, kind: edm, class: org.edm.x, base_score: 9, file: x, salt: "SALT"}
"""


def test_a_policy_takes_it_and_its_digest_is_of_it() -> None:
    def read(_name: str) -> bytes:
        return made(*ROWS)

    def other(_name: str) -> bytes:
        return made(*ROWS[:1])

    text = POLICY.replace("SALT", SALT.hex())
    policy = load_policy(text, files=read)
    assert policy.detectors[0].table == made(*ROWS)
    assert policy.detectors[0].entries == ()
    assert "zen" not in repr(policy).lower()
    assert policy.digest != load_policy(text, files=other).digest
    plan = policy.plan
    assert type(plan).from_fields(plan.to_fields(), plan.tables) == plan
    with pytest.raises(ValueError, match=NO_SUCH_LIST):
        type(plan).from_fields(plan.to_fields())
    with pytest.raises(PolicyError, match=OTHER_SALT):
        load_policy(POLICY.replace("SALT", OTHER.hex()), files=read)
