"""Real checkpoints, cosignatures and a real proof."""

from collections.abc import Callable
from pathlib import Path

import pytest

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.log.heads import HeadHistory, TreeHead
from curtilage.attest.log.note import (
    NoteKey,
    TrustedLog,
    parse_proof,
    verify_checkpoint,
    verify_proof,
)
from curtilage.attest.log.vkeys import parse_verifier_key
from curtilage.attest.log.witness_policy import parse_policy


@pytest.fixture(scope="module")
def folder(shared_dir: Path) -> Path:
    path = shared_dir / "evidence" / "tlog"
    if not path.is_dir():
        pytest.skip("SKIPPED LOUDLY: no log samples in evidence/tlog")
    return path


def _vkey(text: str) -> NoteKey:
    return parse_verifier_key(text).key


def _code(call: Callable[[], object]) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        call()
    return caught.value.code


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


# --- the same proof under a C2SP log policy, and everything that may be wrong --------


def _policy(folder: Path, group: str) -> bytes:
    log, *witnesses = (folder / "rekor2-staging.vkeys").read_text().split()
    lines = [f"log {log}", *(f"witness W{n} {key}" for n, key in enumerate(witnesses))]
    return "\n".join([*lines, group, ""]).encode()


@pytest.fixture(scope="module")
def proof(folder: Path) -> str:
    return (folder / "rekor2-staging.tlog-proof").read_text()


@pytest.fixture(scope="module")
def leaf(folder: Path) -> bytes:
    return (folder / "rekor2-staging.leaf").read_bytes()


@pytest.mark.parametrize(
    "group",
    ["quorum none", "quorum W0", "group all all W0 W1\nquorum all"],
    ids=["none", "one", "all"],
)
def test_genuine_proof_meets_a_policy(
    folder: Path, proof: str, leaf: bytes, group: str
) -> None:
    policy = parse_policy(_policy(folder, group))
    inclusion, witnessed = policy.verify_proof(proof, leaf=leaf)
    assert inclusion.index == 4026478
    assert set(witnessed.times) == {b"W0", b"W1"}


def test_genuine_proof_without_a_cosignature_misses_the_quorum(
    folder: Path, proof: str, leaf: bytes
) -> None:
    policy = parse_policy(_policy(folder, "group all all W0 W1\nquorum all"))
    for name in ("witness.stagemole.eu", "witness.navigli.sunlight.geomys.org"):
        lines = proof.splitlines(keepends=True)
        short = "".join(line for line in lines if f"\u2014 {name} " not in line)
        assert short != proof
        assert _code(lambda short=short: policy.verify_proof(short, leaf=leaf)) is (  # type: ignore[misc]
            RefusalCode.QUORUM_NOT_MET
        )


TAMPERED = {
    "index": (("index 4026478", "index 4026477"), RefusalCode.PROOF_INVALID),
    "index with a zero": (("index 40", "index 040"), RefusalCode.MALFORMED),
    "index with a sign": (("index 40", "index +40"), RefusalCode.MALFORMED),
    "index with a bar": (("index 40", "index 4_0"), RefusalCode.MALFORMED),
    "size": (("\n4026479\n", "\n4026480\n"), RefusalCode.BAD_SIGNATURE),
    "size with a zero": (("\n4026479\n", "\n04026479\n"), RefusalCode.MALFORMED),
    "origin": (("\nlog2025-alpha3", "\nlog2025-alpha4"), RefusalCode.UNTRUSTED_ROOT),
    "hash": (("\ny9eH", "\ny9eI"), RefusalCode.PROOF_INVALID),
    "short hash": (("\ny9eH", "\n"), RefusalCode.MALFORMED),
    "last newline": (("i9tlCg==\n", "i9tlCg=="), RefusalCode.MALFORMED),
    "after the end": (("i9tlCg==\n", "i9tlCg==\nx"), RefusalCode.MALFORMED),
    "log signature": (("STPHPmQg=", "STPHPmQk="), RefusalCode.BAD_SIGNATURE),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_tampered_genuine_proof_is_refused(
    rekor: TrustedLog, proof: str, leaf: bytes, name: str
) -> None:
    (old, new), expected = TAMPERED[name]
    changed = proof.replace(old, new, 1)
    assert changed != proof
    assert _code(lambda: verify_proof(changed, leaf=leaf, log=rekor)) is expected


def test_genuine_checkpoint_under_another_key_is_unsigned(
    folder: Path, rekor: TrustedLog, proof: str
) -> None:
    sum_database = (
        "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"
    )
    other = TrustedLog(origin=rekor.origin, key=_vkey(sum_database), witnesses=())
    text = parse_proof(proof).checkpoint
    assert _code(lambda: verify_checkpoint(text, other)) is RefusalCode.UNSIGNED
    del folder


def test_another_root_next_to_a_genuine_head_is_a_fork(
    rekor: TrustedLog, proof: str
) -> None:
    head = TreeHead.of(verify_checkpoint(parse_proof(proof).checkpoint, rekor))
    history = HeadHistory().seen(head)
    other = TreeHead(origin=head.origin, size=head.size, root=bytes(32))
    assert _code(lambda: history.seen(other)) is RefusalCode.PROOF_INVALID
