import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from curtilage.attest.encoding.strict_json import decode_base64
from curtilage.attest.errors import RefusedError
from curtilage.attest.log.manifest import parse_manifest
from curtilage.attest.log.note import (
    Checkpoint,
    NoteKey,
    TrustedLog,
    parse_hashes,
    verify_checkpoint,
    verify_proof,
)
from curtilage.attest.log.tree import hash_leaf, verify_consistency
from curtilage.attest.log.witness_policy import simple_policy
from curtilage.transparency.auditor import Flag, audit
from curtilage.transparency.log import LogFolder
from curtilage.transparency.proof import ReleaseRules
from curtilage.wire.shaping import PADDED, UNPADDED
from curtilage_dev.devlog import (
    ReleaseArguments,
    create,
    main,
    refresh,
)
from support.release_logs import load_log

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)
RELEASE = ReleaseArguments(
    version="0.0.1",
    source="development",
    measurements=("ab" * 48,),
    models=("cd" * 32,),
)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    create(tmp_path / "log", RELEASE, now=NOW)
    return tmp_path / "log"


def _trusted(out: Path) -> TrustedLog:
    public: dict[str, Any] = json.loads((out / "log.json").read_text())
    return TrustedLog(
        origin=public["origin"],
        key=NoteKey(
            name=public["origin"], public_key=decode_base64(public["key"], "key")
        ),
        witnesses=tuple(
            NoteKey(name=w["name"], public_key=decode_base64(w["key"], "key"))
            for w in public["witnesses"]
        ),
    )


def test_created_log_verifies(out: Path) -> None:
    manifest = (out / "manifest.json").read_bytes()
    proof = (out / "proof.txt").read_text()
    inclusion = verify_proof(proof, leaf=manifest, log=_trusted(out))
    assert inclusion.index == json.loads((out / "log.json").read_text())["index"]
    assert inclusion.checkpoint.vouched_time(1) == int(NOW.timestamp())
    assert "\n\n" in proof
    assert len(proof.partition("\n\n")[0].split("\n")) > 3, "the proof is not empty"
    later = verify_checkpoint((out / "checkpoint.txt").read_text(), _trusted(out))
    assert later.size > inclusion.checkpoint.size
    _require_consistent(out, inclusion.checkpoint, later)


def _require_consistent(out: Path, first: Checkpoint, second: Checkpoint) -> None:
    hashes = parse_hashes((out / "consistency.txt").read_text())
    verify_consistency(first.size, first.root, second.size, second.root, hashes)


def test_manifest_says_what_was_asked(out: Path) -> None:
    manifest = parse_manifest((out / "manifest.json").read_bytes())
    assert manifest.measurements == {"emulated-sev-snp": ({"launch": "ab" * 48},)}
    assert manifest.models == ("cd" * 32,)
    assert manifest.transport == PADDED


def test_refresh_cosigns_again(out: Path) -> None:
    before = json.loads((out / "log.json").read_text())
    refresh(out, now=NOW + timedelta(hours=5))
    proof = (out / "proof.txt").read_text()
    manifest = (out / "manifest.json").read_bytes()
    inclusion = verify_proof(proof, leaf=manifest, log=_trusted(out))
    later = int((NOW + timedelta(hours=5)).timestamp())
    assert inclusion.checkpoint.vouched_time(1) == later
    checkpoint = verify_checkpoint((out / "checkpoint.txt").read_text(), _trusted(out))
    assert checkpoint.vouched_time(1) == later
    assert checkpoint.size == inclusion.checkpoint.size + 1, "a live log grows"
    _require_consistent(out, inclusion.checkpoint, checkpoint)
    assert json.loads((out / "log.json").read_text()) == before


def test_tiles_hold_the_leaves(out: Path) -> None:
    log = load_log(out)
    size = len(log.leaves)
    tile = (out / "tlog" / "tile" / "0" / "000.p" / str(size)).read_bytes()
    assert tile == b"".join(hash_leaf(leaf) for leaf in log.leaves)


def test_private_keys_are_private(out: Path) -> None:
    assert stat.S_IMODE((out / "private").stat().st_mode) == 0o700
    for name in ("log.pem", "log.pem.head", "witness/witness.key"):
        assert stat.S_IMODE((out / "private" / name).stat().st_mode) == 0o600


def test_senseless_release_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError):
        create(
            tmp_path,
            ReleaseArguments(version="1", source="x", measurements=("ab",), models=()),
            now=NOW,
        )


def test_command_creates_and_refreshes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path), "--measurement", "ab" * 48]) == 0
    before = (tmp_path / "manifest.json").read_bytes()
    assert main(["refresh", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "manifest.json").read_bytes() == before
    assert parse_manifest(before).transport == PADDED
    arguments = ["--out", str(tmp_path), "--measurement", "ab" * 48]
    keys = (tmp_path / "private" / "log.pem").read_bytes()
    with pytest.raises(SystemExit):
        main([*arguments, "--unsafe-unpadded"])
    assert "--replace-keys " in capsys.readouterr().err
    assert (tmp_path / "private" / "log.pem").read_bytes() == keys
    assert main([*arguments, "--unsafe-unpadded", "--replace-keys"]) == 0
    assert (tmp_path / "private" / "log.pem").read_bytes() != keys
    unsafe = parse_manifest((tmp_path / "manifest.json").read_bytes())
    assert unsafe.transport == UNPADDED
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path)])
    assert "--measurement" in capsys.readouterr().err


def test_an_auditor_finds_nothing_unexpected(out: Path) -> None:
    trusted = _trusted(out)
    policy = simple_policy(log=trusted.key, witnesses=trusted.witnesses, quorum=1)
    rules = ReleaseRules(log=policy, names=frozenset({"curtilage-enclave"}))
    report = audit(LogFolder(out / "tlog"), rules, now=NOW + timedelta(minutes=1))
    assert report.clean
    assert [Flag.EXPIRED in leaf.flags for leaf in report.leaves] == (
        [True] * 4 + [False] + [True] * 2
    )


def test_a_log_is_made_anew_with_other_keys(out: Path) -> None:
    before = _trusted(out)
    create(out, RELEASE, now=NOW)
    assert _trusted(out).key != before.key
    with pytest.raises(RefusedError):
        verify_checkpoint((out / "checkpoint.txt").read_text(), before)
