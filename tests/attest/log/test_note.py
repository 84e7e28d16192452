import base64
import hashlib
import struct
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.log.note import (
    COSIGNATURE_V1,
    ED25519,
    SUBTREE_V1,
    Checkpoint,
    NoteKey,
    TrustedLog,
    UnverifiedHead,
    checkpoint_body,
    encode_hashes,
    parse_checkpoint,
    parse_hashes,
    parse_note,
    signature_line,
    verify_checkpoint,
    verify_proof,
)
from curtilage.attest.log.signers import LogSigner, WitnessSigner
from curtilage_dev.log import DevelopmentLog, new_signer, new_witness

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)
LOG = DevelopmentLog(
    signer=new_signer("example.org/log"),
    witnesses=(new_witness("one.example"), new_witness("two.example")),
    leaves=tuple(f"leaf {number}".encode() for number in range(7)),
)
TRUSTED = TrustedLog(
    origin=LOG.signer.name,
    key=LOG.signer.public,
    witnesses=tuple(witness.public for witness in LOG.witnesses),
)
CHECKPOINT = LOG.checkpoint(NOW)
PROOF = LOG.proof(3, NOW)
BODY = CHECKPOINT.partition("\n\n")[0] + "\n"


def _code(call: Callable[[], object]) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        call()
    return caught.value.code


def _checkpoint_code(text: str, trusted: TrustedLog = TRUSTED) -> RefusalCode:
    return _code(lambda: verify_checkpoint(text, trusted))


def _proof_code(text: str, leaf: bytes = LOG.leaves[3]) -> RefusalCode:
    return _code(lambda: verify_proof(text, leaf=leaf, log=TRUSTED))


def _sign(body: str, signer: LogSigner = LOG.signer) -> str:
    """Sign any text as a log signs its checkpoints."""
    signature = signer.key.sign(body.encode())
    return f"{body}\n{signature_line(signer.public, ED25519, signature)}"


def _cosign(body: str, time: int, witness: WitnessSigner = LOG.witnesses[0]) -> str:
    """Cosign a body as a witness does."""
    return witness.cosign(_sign(body), time)


# --- checkpoints --------------------------------------------------------------


def test_checkpoint_is_verified() -> None:
    checkpoint = verify_checkpoint(CHECKPOINT, TRUSTED)
    time = int(NOW.timestamp())
    assert (checkpoint.origin, checkpoint.size) == ("example.org/log", 7)
    assert checkpoint.root == LOG.root
    assert checkpoint.cosigned == {"one.example": time, "two.example": time}


def test_extension_lines_are_signed_and_passed_over() -> None:
    assert verify_checkpoint(_sign(BODY + "extension\n"), TRUSTED).size == 7
    moved = CHECKPOINT.replace("\n\n", "\nextension\n\n")
    assert _checkpoint_code(moved) is RefusalCode.BAD_SIGNATURE


def test_another_origin_is_untrusted() -> None:
    other = replace(TRUSTED, origin="example.org/other")
    assert _checkpoint_code(CHECKPOINT, other) is RefusalCode.UNTRUSTED_ROOT


def test_another_key_has_not_signed() -> None:
    stranger = new_signer("example.org/log")
    assert _checkpoint_code(_sign(BODY, stranger)) is RefusalCode.UNSIGNED


def test_bad_signature_of_the_log_is_refused() -> None:
    signed = _sign(BODY)
    other = _sign(BODY.replace("\n7\n", "\n8\n"))
    grafted = other.partition("\n\n")[0] + "\n\n" + signed.partition("\n\n")[2]
    assert _checkpoint_code(grafted) is RefusalCode.BAD_SIGNATURE


def test_bad_signature_of_a_witness_refuses_the_note() -> None:
    earlier = _cosign(BODY.replace("\n7\n", "\n6\n"), 5)
    assert _checkpoint_code(_sign(BODY) + earlier) is RefusalCode.BAD_SIGNATURE


def test_cosignature_of_another_length_is_refused() -> None:
    name = LOG.witnesses[0].name
    key_id = LOG.witnesses[0].public.key_id(4)
    line = f"\u2014 {name} {base64.b64encode(key_id + bytes(64)).decode()}\n"
    assert _checkpoint_code(_sign(BODY) + line) is RefusalCode.MALFORMED


def test_unknown_witnesses_are_passed_over() -> None:
    stranger = _cosign(BODY, 9, new_witness("three.example"))
    checkpoint = verify_checkpoint(CHECKPOINT + stranger, TRUSTED)
    assert set(checkpoint.cosigned) == {"one.example", "two.example"}


def test_latest_time_of_a_witness_counts() -> None:
    text = _sign(BODY) + _cosign(BODY, 9) + _cosign(BODY, 11) + _cosign(BODY, 4)
    assert verify_checkpoint(text, TRUSTED).cosigned == {"one.example": 11}


def test_one_witness_does_not_count_twice() -> None:
    text = _sign(BODY) + _cosign(BODY, 9) + _cosign(BODY, 11)
    checkpoint = verify_checkpoint(text, TRUSTED)
    assert _code(lambda: checkpoint.vouched_time(2)) is RefusalCode.QUORUM_NOT_MET


def _cosigned(**times: int) -> Checkpoint:
    return Checkpoint(origin="x", size=1, root=bytes(32), cosigned=times)


@pytest.mark.parametrize(("quorum", "time"), [(1, 30), (2, 20), (3, 10)])
def test_vouched_time_is_the_quorums_latest(quorum: int, time: int) -> None:
    assert _cosigned(a=10, b=30, c=20).vouched_time(quorum) == time


@pytest.mark.parametrize("quorum", [0, -1, 2])
def test_quorum_must_be_met(quorum: int) -> None:
    checkpoint = _cosigned(a=10)
    assert _code(lambda: checkpoint.vouched_time(quorum)) is RefusalCode.QUORUM_NOT_MET


@pytest.mark.parametrize(
    "size",
    ["+7", "7_0", "07", " 7", "7 ", "\u0667", "-1", "", "0x7", "1" * 20],
    ids=ascii,
)
def test_size_is_a_plain_decimal(size: str) -> None:
    lines = BODY.split("\n")
    body = "\n".join([lines[0], size, *lines[2:]])
    assert _checkpoint_code(_sign(body)) is RefusalCode.MALFORMED


@pytest.mark.parametrize(
    "root",
    [
        base64.b64encode(bytes(31)).decode(),
        base64.b64encode(bytes(33)).decode(),
        base64.b64encode(bytes(32)).decode().rstrip("="),
        base64.b64encode(bytes(32)).decode()[:-2] + "B=",
        base64.b64encode(bytes(32)).decode() + " ",
        "-" * 43 + "=",
        "é",
    ],
    ids=["short", "long", "no padding", "spare bits", "space", "url", "not ASCII"],
)
def test_root_is_32_bytes(root: str) -> None:
    lines = BODY.split("\n")
    body = "\n".join([*lines[:2], root, ""])
    assert _checkpoint_code(_sign(body)) is RefusalCode.MALFORMED


def test_checkpoint_has_three_lines() -> None:
    two = "\n".join(BODY.split("\n")[:2]) + "\n"
    assert _checkpoint_code(_sign(two)) is RefusalCode.MALFORMED
    assert _checkpoint_code(_sign("\n" + BODY)) is RefusalCode.MALFORMED


def test_an_empty_log_has_the_empty_root() -> None:
    empty = LOG.signer.checkpoint(0, hashlib.sha256().digest())
    assert verify_checkpoint(empty, TRUSTED).size == 0
    other = LOG.signer.checkpoint(0, bytes(32))
    assert _checkpoint_code(other) is RefusalCode.MALFORMED


def test_half_a_surrogate_pair_is_refused() -> None:
    assert _checkpoint_code("\ud800" + CHECKPOINT) is RefusalCode.MALFORMED
    assert _proof_code(PROOF.replace("leaf", "\ud800") + "\ud800") is (
        RefusalCode.MALFORMED
    )


def test_a_time_beyond_2_to_the_63_is_refused() -> None:
    for time, witness in ((2**63, LOG.witnesses[0]), (2**64 - 1, ML_DSA)):
        trusted = replace(TRUSTED, witnesses=(witness.public,))
        text = _sign(BODY) + _cosign(BODY, time, witness)
        assert _checkpoint_code(text, trusted) is RefusalCode.MALFORMED
    latest = _sign(BODY) + _cosign(BODY, 2**63 - 1)
    assert verify_checkpoint(latest, TRUSTED).vouched_time(1) == 2**63 - 1


def test_a_log_signature_of_another_length_is_refused() -> None:
    line = signature_line(LOG.signer.public, ED25519, bytes(63))
    assert _checkpoint_code(f"{BODY}\n{line}") is RefusalCode.MALFORMED


def test_a_key_that_is_none_is_the_policys_fault() -> None:
    # Ed25519 keys are any 32 bytes to the parser, so another length has to do.
    key = NoteKey(name=LOG.signer.name, public_key=b"short")
    line = signature_line(key, ED25519, bytes(64))
    trusted = replace(TRUSTED, key=key)
    assert _checkpoint_code(f"{BODY}\n{line}", trusted) is RefusalCode.POLICY_INVALID


# --- ML-DSA-44 ----------------------------------------------------------------

ML_DSA = WitnessSigner(name="pq.example", key=MLDSA44PrivateKey.generate())
PQ_TRUSTED = replace(TRUSTED, witnesses=(ML_DSA.public,))


def _subtree_message(time: int, start: int = 0, end: int = 7) -> bytes:
    """The cosigned_message of tlog-cosignature, written a second time."""
    name, origin = b"pq.example", b"example.org/log"
    return (
        b"subtree/v1\n\0"
        + struct.pack(">B10sQB15sQQ", 10, name, time, 15, origin, start, end)
        + LOG.root
    )


def _pq_line(time: int, message: bytes) -> str:
    signature = struct.pack(">Q", time) + ML_DSA.key.sign(message)
    return signature_line(ML_DSA.public, SUBTREE_V1, signature)


def test_an_ml_dsa_cosignature_is_verified() -> None:
    for line in (_pq_line(5, _subtree_message(5)), _cosign(BODY, 5, ML_DSA)):
        checkpoint = verify_checkpoint(_sign(BODY) + line, PQ_TRUSTED)
        assert checkpoint.cosigned == {"pq.example": 5}
    assert ML_DSA.verifier_key.signature_type == SUBTREE_V1
    assert LOG.witnesses[0].verifier_key.signature_type == COSIGNATURE_V1


@pytest.mark.parametrize(
    "message",
    [
        _subtree_message(6),
        _subtree_message(5, end=8),
        _subtree_message(5, start=1),
        _subtree_message(5).replace(b"pq.example", b"qq.example"),
        _subtree_message(5).replace(b"example.org/log", b"example.org/lug"),
        _subtree_message(5)[:-1] + b"\0",
        b"cosignature/v1\ntime 5\n" + BODY.encode(),
    ],
    ids=["time", "size", "start", "name", "origin", "root", "the other type"],
)
def test_an_ml_dsa_cosignature_of_something_else_is_refused(message: bytes) -> None:
    text = _sign(BODY) + _pq_line(5, message)
    assert _checkpoint_code(text, PQ_TRUSTED) is RefusalCode.BAD_SIGNATURE


def test_an_ml_dsa_key_can_be_the_logs() -> None:
    key = NoteKey(name="example.org/log", public_key=ML_DSA.public.public_key)
    signer = WitnessSigner(name="example.org/log", key=ML_DSA.key)
    trusted = TrustedLog(origin="example.org/log", key=key, witnesses=())
    text = f"{BODY}\n{_cosign(BODY, 0, signer)}"
    assert verify_checkpoint(text, trusted).size == 7
    assert _checkpoint_code(_sign(BODY), trusted) is RefusalCode.UNSIGNED


def test_a_name_too_long_for_ml_dsa_is_refused() -> None:
    witness = WitnessSigner(name="w" * 256, key=ML_DSA.key)
    trusted = replace(TRUSTED, witnesses=(witness.public,))
    line = signature_line(witness.public, SUBTREE_V1, bytes(8 + 2420))
    assert _checkpoint_code(_sign(BODY) + line, trusted) is RefusalCode.MALFORMED


# --- notes --------------------------------------------------------------------

NOTE_CASES = {
    "empty": "",
    "no signatures": BODY,
    "only signatures": "\n\n" + CHECKPOINT.partition("\n\n")[2],
    "no last newline": CHECKPOINT[:-1],
    "bytes after the last newline": CHECKPOINT + "x",
    "another last character": CHECKPOINT[:-1] + "x",
    "tab in an extension": _sign(BODY + "ext\tension\n"),
    "null in an extension": _sign(BODY + "ext\0ension\n"),
    "empty signature line": CHECKPOINT + "\n",
    "carriage return": CHECKPOINT.replace("\n", "\r\n"),
    "tab": CHECKPOINT.replace("\n7\n", "\n7\t\n"),
    "hyphen": CHECKPOINT.replace("\u2014", "-"),
    "plus in a name": CHECKPOINT + "\u2014 a+b AAAAAAA=\n",
    "space in a name": CHECKPOINT + "\u2014 a\u00a0b AAAAAAA=\n",
    "two spaces": CHECKPOINT + "\u2014  a AAAAAAA=\n",
    "no base64": CHECKPOINT + "\u2014 a AAAAA\n",
    "no signature": CHECKPOINT + "\u2014 a AAAAAA==\n",
    "too many": CHECKPOINT + "\u2014 a AAAAAAA=\n" * 98,
}


@pytest.mark.parametrize("name", NOTE_CASES)
def test_note_is_refused(name: str) -> None:
    assert _checkpoint_code(NOTE_CASES[name]) is RefusalCode.MALFORMED


def test_note_may_have_a_hundred_signatures() -> None:
    text = CHECKPOINT + "\u2014 a AAAAAAA=\n" * 97
    assert len(parse_note(text).signatures) == 100
    assert verify_checkpoint(text, TRUSTED).size == 7


# --- proofs -------------------------------------------------------------------


@pytest.mark.parametrize("index", range(7))
def test_proof_is_verified(index: int) -> None:
    proof = LOG.proof(index, NOW + timedelta(seconds=1))
    inclusion = verify_proof(proof, leaf=LOG.leaves[index], log=TRUSTED)
    assert (inclusion.index, inclusion.checkpoint.size) == (index, 7)


def test_proof_may_carry_an_extra_line() -> None:
    text = PROOF.replace("index 3", "extra AAAA\nindex 3")
    assert verify_proof(text, leaf=LOG.leaves[3], log=TRUSTED).index == 3


def test_edited_leaf_is_refused() -> None:
    assert _proof_code(PROOF, b"other") is RefusalCode.PROOF_INVALID


@pytest.mark.parametrize("index", [0, 1, 2, 4, 5, 6, 7, 2**62])
def test_wrong_index_is_refused(index: int) -> None:
    text = PROOF.replace("index 3", f"index {index}")
    assert _proof_code(text) is RefusalCode.PROOF_INVALID


@pytest.mark.parametrize(
    "index", ["+3", "3_0", "03", " 3", "3 ", "\u0663", "-3", "", "1" * 20], ids=ascii
)
def test_index_is_a_plain_decimal(index: str) -> None:
    text = PROOF.replace("index 3", f"index {index}")
    assert _proof_code(text) is RefusalCode.MALFORMED


def _hash_lines(text: str) -> list[str]:
    return text.partition("\n\n")[0].split("\n")[2:]


def test_dropped_hash_is_refused() -> None:
    for line in _hash_lines(PROOF):
        assert _proof_code(PROOF.replace(line + "\n", "")) is RefusalCode.PROOF_INVALID


def test_added_hash_is_refused() -> None:
    last = _hash_lines(PROOF)[-1]
    more = PROOF.replace(last, f"{last}\n{last}")
    assert _proof_code(more) is RefusalCode.PROOF_INVALID


def test_short_hash_is_refused() -> None:
    last = _hash_lines(PROOF)[-1]
    short = PROOF.replace(last, base64.b64encode(bytes(31)).decode())
    assert _proof_code(short) is RefusalCode.MALFORMED


PROOF_CASES = {
    "empty": "",
    "no checkpoint": PROOF.partition("\n\n")[0],
    "other header": PROOF.replace("@v1", "@v2"),
    "no index": PROOF.replace("index 3\n", ""),
    "nothing but a header": "c2sp.org/tlog-proof@v1\n\n" + CHECKPOINT,
    "extra is no base64": PROOF.replace("index 3", "extra A\nindex 3"),
    "extra twice": PROOF.replace("index 3", "extra AAAA\nextra AAAA\nindex 3"),
    "empty line": PROOF.replace("index 3\n", "index 3\n\n"),
    "too many hashes": PROOF.replace(
        "index 3\n", "index 3\n" + ("A" * 43 + "=\n") * 61
    ),
    "bytes after the end": PROOF + "x",
}


@pytest.mark.parametrize("name", PROOF_CASES)
def test_proof_is_refused(name: str) -> None:
    assert _proof_code(PROOF_CASES[name]) is RefusalCode.MALFORMED


@given(text=st.text(max_size=300))
def test_any_text_is_refused(text: str) -> None:
    assert isinstance(_checkpoint_code(text), RefusalCode)
    assert isinstance(_proof_code(text), RefusalCode)


@given(position=st.integers(0, len(PROOF) - 1), character=st.characters())
def test_any_edit_is_refused_or_harmless(position: int, character: str) -> None:
    edited = PROOF[:position] + character + PROOF[position + 1 :]
    try:
        inclusion = verify_proof(edited, leaf=LOG.leaves[3], log=TRUSTED)
    except RefusedError:
        return
    # Only a witness's own line can be lost without harm.
    assert (inclusion.index, inclusion.checkpoint.root) == (3, LOG.root)


# --- hashes as lines ----------------------------------------------------------


@given(st.lists(st.binary(min_size=32, max_size=32), max_size=63))
def test_hashes_as_lines_are_read_back(hashes: list[bytes]) -> None:
    assert list(parse_hashes(encode_hashes(hashes))) == hashes


@pytest.mark.parametrize(
    "text",
    [
        "\n",
        "AAAA\n",
        "x",
        encode_hashes([bytes(32)])[:-1],
        encode_hashes([bytes(32)] * 64),
    ],
    ids=["empty line", "short", "no base64", "no newline", "too many"],
)
def test_hashes_as_lines_are_refused(text: str) -> None:
    assert _code(lambda: parse_hashes(text)) is RefusalCode.MALFORMED


def test_what_a_checkpoint_says_can_be_read_unverified() -> None:
    _, head = parse_checkpoint(CHECKPOINT)
    assert head == UnverifiedHead(
        origin="example.org/log", size=7, root=LOG.root, body=BODY
    )
    assert checkpoint_body(head.origin, head.size, head.root) == BODY
