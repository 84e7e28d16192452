"""``curtilage policy custody``: the list that a policy then names."""

from pathlib import Path

import pytest

from curtilage.attest.custody import parse_custody
from curtilage.attest.log.note import NoteKey
from curtilage.attest.log.vkeys import parse_verifier_key
from curtilage.cli.main import main

CHIP, INSTANCE = "0a" * 64, "i-0123456789abcdef0"


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["policy", "keygen", "own.pem"]) == 0


def sign(*machines: str, until: str = "+30d", name: str = "custodian.example") -> int:
    options = ["--key", "own.pem", "--name", name, "--until", until]
    return main(["policy", "custody", *options, "--out", "list.txt", *machines])


def test_a_list_is_written_and_its_key_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert sign(INSTANCE, CHIP) == 0
    shown = capsys.readouterr().out
    vkey = shown.rsplit("key   ", 1)[1].strip()
    found = parse_verifier_key(vkey).key
    assert found.name == "custodian.example"
    custody = parse_custody(Path("list.txt").read_text("utf-8"), found)
    assert custody.machines == {CHIP, INSTANCE}
    assert f"{len(custody.machines)} machines until " in shown
    other = NoteKey(name="custodian.example", public_key=bytes(32))
    assert other != found


@pytest.mark.parametrize(
    ("machines", "options"),
    [
        (("machine",), {}),
        ((CHIP.upper(),), {}),
        (("00" * 64,), {}),
        ((CHIP,), {"until": "yesterday"}),
        ((CHIP,), {"name": "two words"}),
    ],
)
def test_a_wrong_list_is_not_written(
    machines: tuple[str, ...], options: dict[str, str]
) -> None:
    assert sign(*machines, **options) == 2
    assert not Path("list.txt").exists()


def test_a_missing_key_exits_with_2(tmp_path: Path) -> None:
    (tmp_path / "own.pem").unlink()
    assert sign(CHIP) == 2
