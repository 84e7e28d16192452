"""Real checkpoints, cosignatures and a real proof."""

import base64
from pathlib import Path

import pytest

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.tlog import (
    NoteKey,
    TrustedLog,
    verify_checkpoint,
    verify_proof,
)


@pytest.fixture(scope="module")
def folder(shared_dir: Path) -> Path:
    path = shared_dir / "evidence" / "tlog"
    if not path.is_dir():
        pytest.skip("SKIPPED LOUDLY: no log samples in evidence/tlog")
    return path


def _vkey(text: str) -> NoteKey:
    """Read ``name+id+base64(type | key)``; the id is checked, as a known answer."""
    name, key_id, encoded = text.split("+", 2)
    data = base64.b64decode(encoded)
    key = NoteKey(name=name, public_key=data[1:])
    assert key.key_id(data[0]).hex() == key_id
    return key


@pytest.fixture(scope="module")
def rekor(folder: Path) -> TrustedLog:
    lines = (folder / "rekor2-staging.vkeys").read_text().split()
    log, *witnesses = (_vkey(line) for line in lines)
    return TrustedLog(origin=log.name, key=log, witnesses=tuple(witnesses))


def test_genuine_proof_is_verified(folder: Path, rekor: TrustedLog) -> None:
    proof = (folder / "rekor2-staging.tlog-proof").read_text()
    leaf = (folder / "rekor2-staging.leaf").read_bytes()
    inclusion = verify_proof(proof, leaf=leaf, log=rekor)
    assert (inclusion.index, inclusion.checkpoint.size) == (4026478, 4026479)
    assert len(inclusion.checkpoint.cosigned) == 2
    assert inclusion.checkpoint.vouched_time(2) == 0x6A04CFB6


def test_genuine_proof_of_another_leaf_is_refused(
    folder: Path, rekor: TrustedLog
) -> None:
    proof = (folder / "rekor2-staging.tlog-proof").read_text()
    with pytest.raises(RefusedError) as caught:
        verify_proof(proof, leaf=b"another", log=rekor)
    assert caught.value.code is RefusalCode.PROOF_INVALID


def test_genuine_cosignatures_do_not_make_a_larger_quorum(
    folder: Path, rekor: TrustedLog
) -> None:
    proof = (folder / "rekor2-staging.tlog-proof").read_text()
    checkpoint = verify_checkpoint(proof.partition("\n\n")[2], rekor)
    with pytest.raises(RefusedError) as caught:
        checkpoint.vouched_time(3)
    assert caught.value.code is RefusalCode.QUORUM_NOT_MET


def test_sum_database_checkpoint_is_verified(folder: Path) -> None:
    key = _vkey("sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8")
    log = TrustedLog(origin="go.sum database tree", key=key, witnesses=())
    text = (folder / "sumgolang.checkpoint").read_text()
    assert verify_checkpoint(text, log).size == 35225469
