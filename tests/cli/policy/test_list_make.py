import json
import re
from pathlib import Path

import pytest

from curtilage.cli import main as cli
from curtilage.cli.declared import parse
from curtilage.cli.policy import list_make
from curtilage.cli.policy.table import policy_list_make
from curtilage.cli.table import root
from curtilage.client.config import read_usable_policy
from curtilage.policy.document import exact_list
from curtilage.policy.document.exact_list import ExactList
from curtilage.policy.errors import PolicyError

TABLE = """\
mrn,surname,first: name,born,phone
MRN-100231,Zenbermar,Anna,1980-02-01,030 1234567
MRN-100232,Garden,Jo,1946-12-27,030 7654321
12,Doe,,unknown,none
garden,Long,April,1990-05-05,
"""
OTHERS = ("absent.csv", "empty.csv", "broken.csv", "latin.csv", "short.csv")
VALUES = ("100231", "zenbermar", "anna", "1980", "1234567", "garden", "unknown", "doe")


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(TABLE, "utf-8")


def ran(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = cli.main(["policy", "list-make", *arguments])
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def policy_of(shown: str) -> str:
    entry = shown.partition("In the policy, next to that file:\n")[2]
    rule = '{id: any-uncertain, when: "uncertain.*", then: local}'
    return f"version: 1\nrules:\n- {rule}\n{entry}"


def test_what_it_prints_is_what_the_policy_needs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, shown = ran(
        *("t.csv", "--out", "patients.exact", "--column", "mrn"),
        *("--column", "phone:digits", "--together", "surname,born:date"),
        capsys=capsys,
    )
    assert status == 0, shown
    for words in (
        "patients.exact: 4 rows, 7 entries",
        f"mrn: 2 taken, 2 refused (1 {list_make.ORDINARY}, 1 {list_make.TOO_SHORT})",
        "phone: 2 taken, 2 refused (1 empty, 1 not digits)",
        "surname with born: 3 taken, 1 refused (1 not a date)",
    ):
        assert words in shown
    Path("own.yaml").write_text(policy_of(shown), "utf-8")
    policy, _ = read_usable_policy("own.yaml")
    (detector,) = policy.detectors
    assert (detector.kind, detector.data_class) == ("edm", "org.edm.patients")
    assert cli.main(["policy", "check", "own.yaml"]) == 0
    result = capsys.readouterr().out
    assert "patients: 4 values; 3 surname" in result
    content = Path("patients.exact").read_bytes()
    assert Path("patients.exact").stat().st_mode & 0o777 == 0o600
    for value in VALUES:
        assert value not in shown.lower()
        assert value.encode() not in content.lower()
    assert {each.name for each in Path().iterdir()} == {
        *("t.csv", "patients.exact", "own.yaml")
    }


def test_a_salt_is_kept_and_used_again(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("t.csv", "--column", "mrn", "--salt-file", "salt", "--json", "--out")
    status, shown = ran(*given, "one", capsys=capsys)
    assert status == 0
    assert json.loads(shown)["salt"] is None
    assert json.loads(shown)["refused"]["mrn"] == {
        list_make.ORDINARY: 1,
        list_make.TOO_SHORT: 1,
    }
    assert Path("salt").stat().st_mode & 0o777 == 0o600
    assert ran(*given, "two", capsys=capsys)[0] == 0
    assert Path("one").read_bytes() == Path("two").read_bytes()
    ExactList.parse(
        Path("one").read_bytes(), salt=bytes.fromhex(Path("salt").read_text("ascii"))
    )


def test_without_a_header_columns_have_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("t.csv").write_bytes("A-100231;Örtel\nA-100232;Bö\n".encode("latin-1"))
    status, shown = ran(
        *("t.csv", "--out", "x", "--no-header", "--delimiter", ";", "--column", "2"),
        *("--column", "1", "--encoding", "latin-1"),
        capsys=capsys,
    )
    assert status == 0
    assert f"2: 1 taken, 1 refused (1 {list_make.TOO_SHORT})" in shown
    assert "1: 2 taken" in shown


def test_a_column_may_have_a_colon_in_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ("t.csv", "--out", "x", "--together", "first: name,born:date")
    status, shown = ran(*arguments, capsys=capsys)
    assert status == 0
    names = "first: name with born"
    assert f"{names}: 3 taken, 1 refused (1 empty)" in shown


def test_a_value_that_is_nobodys_alone_is_not_taken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("t.csv").write_text("a\ntable\nAaron\nISBN\nZenbermar\n", "utf-8")
    _, shown = ran("t.csv", "--out", "x", "--column", "a", capsys=capsys)
    assert f"1 taken, 3 refused (3 {list_make.ORDINARY})" in shown


def test_a_row_of_another_width_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.csv").write_text("a,b\nMRN-100231,x\nMRN-100232\n\n", "utf-8")
    status, shown = ran("t.csv", "--out", "x", "--column", "a", capsys=capsys)
    assert status == 0
    assert f"a: 1 taken, 1 refused (1 {list_make.OTHER_WIDTH})" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name the columns"),
        (["--column", "mrn,surname"], "--column takes one name"),
        (["--column", "born:date"], "a date alone identifies no person"),
        (["--column", "unknown-1"], "no such column: unknown-1 (of 5)"),
        (["--together", "mrn,mrn"], "is repeated"),
        (["--together", "mrn"], "2 to 3 columns count together"),
        (["--column", "mrn", "--near", "0"], "1 to 1000 characters"),
        (["--column", "mrn", "--delimiter", ";;"], "--delimiter must be one character"),
        (["--column", "mrn", "--encoding", "morse"], "no such encoding"),
        (["--column", "mrn", "--encoding", "ascii", "absent.csv"], "absent.csv: No"),
        (["--column", "a", "empty.csv"], "the table is empty"),
        (["--column", "a", "broken.csv"], "row 2 is not CSV"),
        (["--column", "a", "latin.csv"], "not in this encoding"),
        (["--column", "a", "short.csv"], "no entry is left (a: 0 taken, 1 refused"),
        (["--column", "mrn", "--salt-file", "t.csv"], "not a salt in hexadecimal"),
        (["--column", "mrn", "--salt-file", "little"], "a salt has 16 to 64 bytes"),
        (["--column", "mrn", "--out", "gone/x"], "gone/x: No such file"),
    ],
)
def test_it_refuses(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty.csv").touch()
    Path("broken.csv").write_text('a\n"canary', "utf-8")
    Path("latin.csv").write_bytes(b"a\ncaf\xe9 canary\n")
    Path("short.csv").write_text("a\nxyz\n", "utf-8")
    Path("little").write_text("00ff", "utf-8")
    before = set(Path().iterdir())
    file = [] if arguments and arguments[-1] in OTHERS else ["t.csv"]
    status, shown = ran("--out", "made", *file, *arguments, capsys=capsys)
    assert status == 2
    assert said in shown
    assert "canary" not in shown
    assert set(Path().iterdir()) == before


def test_help_describes_the_list() -> None:
    words = ["policy", "list-make", "t.csv", "--out", "made"]
    assert parse(root, words).arguments.near == exact_list.DEFAULT_NEAR
    text = policy_list_make.help or ""
    for each in exact_list.COMPARISONS:
        assert re.search(rf"\b{each}\b", text)
    assert f"more than {exact_list.MAX_WORDS} words" in " ".join(text.split())


@pytest.mark.parametrize(
    "values",
    [("the", "and", "patient"), tuple(map(str, range(9000, 9100)))],
    ids=["in every text", "in hardly any"],
)
def test_a_list_of_ordinary_words_is_not_usable(
    values: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "\n".join(f"{number}000" for number in range(100, 200))
    Path("t.csv").write_text(f"a\n{rows}\n", "utf-8")
    assert ran("t.csv", "--out", "x", "--column", "a", capsys=capsys)[0] == 0
    writer = exact_list.ExactListWriter(
        salt=bytes(16),
        columns=[exact_list.Column(name="a", compare="text")],
        alone=[0],
    )
    for value in values:
        writer.add_alone(0, value)
    Path("words").write_bytes(writer.encode())
    entry = (
        "detectors:\n- {id: a, kind: edm, class: org.edm.a, base_score: 9, "
        f'file: words, salt: "{bytes(16).hex()}"}}\n'
    )
    header = "In the policy, next to that file:\n"
    Path("own.yaml").write_text(policy_of(header + entry), "utf-8")
    with pytest.raises(PolicyError, match="policy list-make") as refused:
        read_usable_policy("own.yaml")
    assert "patient" not in str(refused.value)
