"""``curtilage gateway``: keys are shown once; a file is checked before it counts."""

import json
from pathlib import Path

import pytest

from curtilage.cli.main import main
from curtilage.client.endpoint.keys import Keys, make_key, parse_record
from support.tls_files import write_tls_files

KEY, RECORD = make_key("letters")


def write(folder: Path, *, rows: list[str], key: str = "server.key") -> Path:
    path = folder / "gateway.toml"
    path.write_text(
        f'listen = "0.0.0.0:8443"\nnames = ["localhost", "127.0.0.1"]\nkeys = {rows}\n'
        f'[tls]\ncertificate = "server.pem"\nkey = "{key}"\n'
    )
    return path


def test_a_key_and_its_row_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gateway", "make-key", "letters"]) == 0
    key, row = capsys.readouterr().out.splitlines()
    record = parse_record(row.removeprefix('row: "').removesuffix('"'))
    assert record is not None
    bearer = [f"Bearer {key.removeprefix('key: ')}"]
    assert Keys([record]).application(bearer) == "letters"
    assert main(["gateway", "make-key", "letters", "--json"]) == 0
    other = json.loads(capsys.readouterr().out)
    assert other["key"] != bearer[0].removeprefix("Bearer ")
    assert parse_record(other["row"]) is not None


def test_a_name_that_cannot_be_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gateway", "make-key", "Letters and more"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Letters" not in said.err


def test_a_file_is_checked_with_its_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tls_files(tmp_path)
    (tmp_path / "server.key").chmod(0o600)
    path = str(write(tmp_path, rows=[RECORD.row()]))
    assert main(["gateway", "check", path]) == 0
    said = capsys.readouterr()
    assert "127.0.0.1, localhost" in said.out
    assert "letters: 1 key" in said.out
    # Of the test's own certificate, which lasts a day.
    assert said.err.count("\n") == 1
    assert "server.pem: ends at" in said.err
    assert main(["gateway", "check", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["applications"] == {"letters": 1}
    (tmp_path / "server.key").chmod(0o644)
    write(tmp_path, rows=[])
    assert main(["gateway", "check", path]) == 0
    said = capsys.readouterr()
    assert "other accounts" in said.err
    assert "no application has a key" in said.err
    write(tmp_path, rows=[], key="server.pem")
    assert main(["gateway", "check", path]) == 2
    assert "server.pem" in capsys.readouterr().err


@pytest.mark.parametrize(
    "more",
    [["--host", "::1"], ["--port", "0"], ["--listen", "unix:/run/s"], ["--no-tcp"]],
)
def test_the_file_alone_says_where_to_listen(
    more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write(tmp_path, rows=[]))
    assert main(["serve", "--gateway", path, *more]) == 2
    assert "--gateway" in capsys.readouterr().err


def test_a_wrong_file_is_reported_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text('listen = "192.0.2.1:8443"\nnames = ["a.example"]\n')
    assert main(["serve", "--gateway", str(path)]) == 2
    assert "without [tls]" in capsys.readouterr().err
