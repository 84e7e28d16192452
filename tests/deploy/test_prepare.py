"""The development deployment: what is made, what is kept, and the messages."""

from pathlib import Path

import pytest
from deploy import prepare

from curtilage_dev.deployment import MEASUREMENT


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def keys_of(out: Path) -> dict[str, bytes]:
    keys = files_of(out / "log" / "private")
    assert keys
    return keys


def test_it_says_what_it_made_and_what_comes_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert prepare.main(["--out", str(out)]) == 0
    said = capsys.readouterr().out
    for path in ("log", "release", "enclave.toml"):
        assert f"{out / path}: " in said
        assert (out / path).exists()
    for step in ("docker compose --profile development up", "--policy", "--refresh"):
        assert step in said
    assert MEASUREMENT.hex() in said


def test_run_again_it_keeps_the_keys_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare.main(["--out", str(tmp_path)])
    keys, log = keys_of(tmp_path), files_of(tmp_path / "log")
    configuration = (tmp_path / "enclave.toml").read_bytes()
    (tmp_path / "enclave.toml").unlink()
    capsys.readouterr()
    assert prepare.main(["--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert f"{tmp_path / 'log'}: {prepare.KEPT} (--replace-keys " in said
    assert files_of(tmp_path / "log") == log
    assert (tmp_path / "enclave.toml").read_bytes() == configuration
    assert prepare.main(["--out", str(tmp_path), "--replace-keys"]) == 0
    assert prepare.REPLACED in capsys.readouterr().out
    pems = [name for name in keys if name.endswith(".pem")]
    assert pems
    new = keys_of(tmp_path)
    assert all(new[name] != keys[name] for name in pems)


def test_half_a_log_is_not_replaced_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare.main(["--out", str(tmp_path)])
    keys = keys_of(tmp_path)
    (tmp_path / "log" / "proof.txt").unlink()
    assert prepare.main(["--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert ": proof.txt " in said
    assert " --replace-keys` " in said
    assert keys_of(tmp_path) == keys


@pytest.mark.parametrize("step", [["--refresh"], ["--policy", "root.pem"]])
def test_a_step_that_comes_too_early_names_the_one_before(
    step: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare.main(["--out", str(tmp_path), *step]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path / 'log'}: " in said
    assert f"`python deploy/prepare.py --out {tmp_path}` " in said
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_is_missing_is_said_with_the_step_that_makes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare.main(["--out", str(tmp_path)])
    root = tmp_path / "root.pem"
    assert prepare.main(["--out", str(tmp_path), "--policy", str(root)]) == 2
    said = capsys.readouterr().err
    assert f"{root}: no such file" in said
    assert "compose cp emulator:/run/evidence/root.pem" in said
    assert not (tmp_path / "policy.yaml").exists()


def test_a_root_that_is_no_certificate_is_said_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare.main(["--out", str(tmp_path)])
    root = tmp_path / "root.pem"
    root.write_text("no certificate\n", "ascii")
    assert prepare.main(["--out", str(tmp_path), "--policy", str(root)]) == 2
    assert f"{root}: holds no certificate" in capsys.readouterr().err
    assert not (tmp_path / "policy.yaml").exists()


def test_what_cannot_be_written_is_said_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    assert prepare.main(["--out", str(tmp_path / "file")]) == 2
    assert str(tmp_path / "file") in capsys.readouterr().err


def test_the_measurement_is_printed_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare.main(["--out", str(tmp_path), "--print-measurement"]) == 0
    assert capsys.readouterr().out == f"{MEASUREMENT.hex()}\n"
    assert list(tmp_path.iterdir()) == []
