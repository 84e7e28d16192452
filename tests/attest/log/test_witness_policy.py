from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.log.note import NoteKey, encode_proof
from curtilage.attest.log.signers import WitnessSigner
from curtilage.attest.log.witness_policy import (
    MAX_NAMES,
    Group,
    LogPolicy,
    parse_policy,
    simple_policy,
)
from curtilage_dev.log import DevelopmentLog, new_signer, new_witness

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)
WITNESSES = tuple(new_witness(f"w{number}.example") for number in range(5))
LOG = DevelopmentLog(
    signer=new_signer("example.org/log"),
    witnesses=(),
    leaves=tuple(f"leaf {number}".encode() for number in range(7)),
)
SIGNED = LOG.checkpoint(NOW)
LOG_LINE = f"log {LOG.signer.verifier_key.text}\n"
KEYS = [witness.verifier_key.text for witness in WITNESSES]
WITNESS_LINES = "".join(f"witness W{n} {key}\n" for n, key in enumerate(KEYS))
NESTED = (
    "# two organisations\n"
    + LOG_LINE
    + WITNESS_LINES
    + "group X 2 W0 W1 W2\n\n\tgroup  Y any\tW3 W4 \ngroup both all X Y\nquorum both\n"
)


def policy(text: str) -> LogPolicy:
    return parse_policy(text.encode())


def cosigned(*numbers: int, times: dict[int, int] | None = None) -> str:
    lines = (WITNESSES[n].cosign(SIGNED, (times or {}).get(n, 100)) for n in numbers)
    return SIGNED + "".join(lines)


def code(call: Callable[[], object]) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        call()
    return caught.value.code


# --- files ----------------------------------------------------------------------


def test_a_policy_with_groups_is_read() -> None:
    found = policy(NESTED)
    assert found.logs == (LOG.signer.public,)
    assert list(found.witnesses) == [f"W{n}".encode() for n in range(5)]
    assert found.groups == {
        b"X": Group(threshold=2, members=(b"W0", b"W1", b"W2")),
        b"Y": Group(threshold=1, members=(b"W3", b"W4")),
        b"both": Group(threshold=2, members=(b"X", b"Y")),
    }
    assert found.quorum == b"both"


def test_addresses_and_octets_that_are_no_ascii_are_allowed() -> None:
    found = parse_policy(
        f"log {LOG.signer.verifier_key.text} https://x.example/\n".encode()
        + b"witness \xff\xe2 "
        + KEYS[0].encode()
        + b" https://w.example/\n# \x80\xff\nquorum \xff\xe2\n"
    )
    assert list(found.witnesses) == [b"\xff\xe2"]


def test_a_log_may_be_missing_and_a_quorum_may_be_none() -> None:
    found = policy("quorum none\n")
    assert (found.logs, found.witnesses, found.quorum) == ((), {}, b"none")


BAD = {
    "empty": "",
    "no quorum": LOG_LINE,
    "two quorums": "quorum none\nquorum none\n",
    "no newline at the end": "quorum none",
    "carriage return": "quorum none\r\n",
    "control character": "quorum none\n# \x00\n",
    "delete": "quorum none\n# \x7f\n",
    "unknown line": "quorum none\npolicy x\n",
    "quorum of no one": WITNESS_LINES + "quorum W9\n",
    "quorum before its witness": "quorum W0\n" + WITNESS_LINES,
    "quorum of a log": LOG_LINE + "quorum example.org/log\n",
    "quorum of two": WITNESS_LINES + "quorum W0 W1\n",
    "log without a key": "log\nquorum none\n",
    "log with too much": LOG_LINE.strip() + " https://x y\nquorum none\n",
    "log with a witness's key": f"log {KEYS[0]}\nquorum none\n",
    "log twice": LOG_LINE + LOG_LINE + "quorum none\n",
    "witness without a name": f"witness {KEYS[0]}\nquorum none\n",
    "witness with too much": f"witness W0 {KEYS[0]} u x\nquorum none\n",
    "witness with a log's key": (
        f"witness W0 {LOG.signer.verifier_key.text}\nquorum none\n"
    ),
    "witness with no key": "witness W0 key\nquorum none\n",
    "witness with bytes for a key": "witness W0 \udcff\nquorum none\n",
    "witness twice": f"witness A {KEYS[0]}\nwitness A {KEYS[1]}\nquorum none\n",
    "key twice": f"witness A {KEYS[0]}\nwitness B {KEYS[0]}\nquorum none\n",
    "witness called none": f"witness none {KEYS[0]}\nquorum none\n",
    "group of no one": "group X any\nquorum none\n",
    "group of strangers": "group X any W0\nquorum none\n",
    "group of itself": WITNESS_LINES + "group X any X\nquorum X\n",
    "group of none": WITNESS_LINES + "group X any none\nquorum X\n",
    "group called none": WITNESS_LINES + "group none any W0\nquorum none\n",
    "group called as a witness": WITNESS_LINES + "group W1 any W0\nquorum none\n",
    "group twice": WITNESS_LINES + "group X any W0\ngroup X any W1\nquorum X\n",
    "member twice": WITNESS_LINES + "group X any W0 W0\nquorum X\n",
    "member of two groups": (
        WITNESS_LINES + "group X any W0\ngroup Y any W0\nquorum Y\n"
    ),
    "threshold 0": WITNESS_LINES + "group X 0 W0 W1\nquorum X\n",
    "threshold too high": WITNESS_LINES + "group X 3 W0 W1\nquorum X\n",
    "threshold with a zero": WITNESS_LINES + "group X 01 W0 W1\nquorum X\n",
    "threshold with a sign": WITNESS_LINES + "group X +1 W0 W1\nquorum X\n",
    "threshold in words": WITNESS_LINES + "group X two W0 W1\nquorum X\n",
    "threshold not ASCII": WITNESS_LINES + "group X \u0661 W0 W1\nquorum X\n",
}


@pytest.mark.parametrize("name", BAD)
def test_a_policy_is_refused(name: str) -> None:
    data = BAD[name].encode("utf-8", "surrogateescape")
    assert code(lambda: parse_policy(data)) is RefusalCode.POLICY_INVALID


def test_one_public_key_under_two_names_is_one_witness() -> None:
    """The ids differ, the keys do not: it would count twice."""
    twin = WitnessSigner(name="twin.example", key=WITNESSES[0].key).verifier_key
    text = f"witness A {KEYS[0]}\nwitness B {twin.text}\nquorum none\n"
    assert twin.text.split("+")[1] != KEYS[0].split("+")[1]
    assert code(lambda: policy(text)) is RefusalCode.POLICY_INVALID


def test_the_line_is_named() -> None:
    with pytest.raises(RefusedError, match="line 3: a threshold"):
        policy(f"witness A {KEYS[0]}\n\ngroup X 2 A\nquorum X\n")


def test_a_policy_is_bounded() -> None:
    groups = [f"group G0 any {' '.join(f'W{n}' for n in range(5))}\n"]
    groups += [f"group G{n} any G{n - 1}\n" for n in range(1, MAX_NAMES)]
    text = WITNESS_LINES + "".join(groups)
    assert policy(f"{text}quorum G{MAX_NAMES - 1}\n").groups
    more = f"{text}group more any G{MAX_NAMES - 1}\nquorum more\n"
    assert code(lambda: policy(more)) is RefusalCode.POLICY_INVALID
    huge = b"#" * (256 * 1024) + b"\nquorum none\n"
    assert code(lambda: parse_policy(huge)) is RefusalCode.TOO_LARGE


@given(st.binary(max_size=120))
def test_any_bytes_are_a_policy_or_refused(data: bytes) -> None:
    try:
        parse_policy(data)
    except RefusedError as refusal:
        found = refusal.code
    else:
        found = RefusalCode.POLICY_INVALID
    assert found is RefusalCode.POLICY_INVALID


# --- quorums --------------------------------------------------------------------


@pytest.mark.parametrize(
    "numbers", [(0, 1, 3), (0, 2, 4), (1, 2, 3), (0, 1, 2, 3, 4)], ids=str
)
def test_a_quorum_is_met(numbers: tuple[int, ...]) -> None:
    witnessed = policy(NESTED).verify_checkpoint(cosigned(*numbers))
    assert witnessed.vouched_time == 100
    assert list(witnessed.times) == [f"W{n}".encode() for n in numbers]
    assert (witnessed.checkpoint.size, witnessed.checkpoint.root) == (7, LOG.root)


@pytest.mark.parametrize("numbers", [(), (0, 1), (0, 3), (0, 1, 2), (3, 4)], ids=str)
def test_a_quorum_is_short(numbers: tuple[int, ...]) -> None:
    text = cosigned(*numbers)
    assert code(lambda: policy(NESTED).verify_checkpoint(text)) is (
        RefusalCode.QUORUM_NOT_MET
    )


def test_the_vouched_time_is_the_latest_that_a_quorum_reached() -> None:
    text = cosigned(0, 1, 2, 3, 4, times={0: 10, 1: 20, 2: 30, 3: 15, 4: 5})
    # Of X the second latest is 20, of Y the latest 15; both must have reached it.
    assert policy(NESTED).verify_checkpoint(text).vouched_time == 15


def test_cosigning_twice_counts_once() -> None:
    text = cosigned(0, 3) + WITNESSES[0].cosign(SIGNED, 101)
    assert code(lambda: policy(NESTED).verify_checkpoint(text)) is (
        RefusalCode.QUORUM_NOT_MET
    )


def test_one_witness_can_be_the_quorum() -> None:
    found = policy(LOG_LINE + WITNESS_LINES + "quorum W1\n")
    assert found.verify_checkpoint(cosigned(1)).vouched_time == 100
    assert code(lambda: found.verify_checkpoint(cosigned(0))) is (
        RefusalCode.QUORUM_NOT_MET
    )


def test_without_a_quorum_no_time_is_vouched_for() -> None:
    found = policy(NESTED).without_quorum()
    witnessed = found.verify_checkpoint(cosigned(0))
    assert (witnessed.vouched_time, witnessed.times) == (None, {b"W0": 100})


def test_a_bad_cosignature_of_a_known_witness_refuses_the_note() -> None:
    other = LOG.signer.checkpoint(7, bytes(32))
    text = cosigned(0, 1, 3) + WITNESSES[2].cosign(other, 100)
    assert code(lambda: policy(NESTED).verify_checkpoint(text)) is (
        RefusalCode.BAD_SIGNATURE
    )


def test_a_witness_with_two_keys_of_one_name_is_two() -> None:
    ed, pq = new_witness("w.example"), MLDSA44PrivateKey.generate()
    both = WitnessSigner(name="w.example", key=pq)
    found = policy(
        LOG_LINE
        + f"witness ed {ed.verifier_key.text}\nwitness pq {both.verifier_key.text}\n"
        + "group W all ed pq\nquorum W\n"
    )
    text = SIGNED + ed.cosign(SIGNED, 1) + both.cosign(SIGNED, 2)
    assert found.verify_checkpoint(text).times == {b"ed": 1, b"pq": 2}
    assert (
        code(lambda: found.verify_checkpoint(SIGNED + ed.cosign(SIGNED, 1)))
        is RefusalCode.QUORUM_NOT_MET
    )


# --- logs -----------------------------------------------------------------------


def test_a_log_is_known_by_its_origin_and_its_key() -> None:
    found = policy(LOG_LINE + "quorum none\n")
    assert found.verify_checkpoint(SIGNED).checkpoint.origin == "example.org/log"
    stranger = new_signer("example.org/other").checkpoint(7, LOG.root)
    assert code(lambda: found.verify_checkpoint(stranger)) is (
        RefusalCode.UNTRUSTED_ROOT
    )
    impostor = new_signer("example.org/log").checkpoint(7, LOG.root)
    assert code(lambda: found.verify_checkpoint(impostor)) is RefusalCode.UNSIGNED


def test_a_log_may_change_its_key() -> None:
    second = new_signer("example.org/log")
    lines = LOG_LINE + f"log {second.verifier_key.text}\n"
    found = policy(lines + "quorum none\n")
    for signer in (LOG.signer, second):
        text = signer.checkpoint(7, LOG.root)
        assert found.verify_checkpoint(text).checkpoint.size == 7
    broken = SIGNED.replace("\n7\n", "\n8\n")
    assert code(lambda: found.verify_checkpoint(broken)) is RefusalCode.BAD_SIGNATURE


def test_a_policy_without_logs_believes_none() -> None:
    found = policy(WITNESS_LINES + "quorum none\n")
    assert code(lambda: found.verify_checkpoint(SIGNED)) is RefusalCode.UNTRUSTED_ROOT


def test_a_proof_is_held_against_a_policy() -> None:
    text = encode_proof(3, LOG.tree.inclusion(3), cosigned(0, 1, 3))
    found = policy(NESTED)
    inclusion, witnessed = found.verify_proof(text, leaf=b"leaf 3")
    assert (inclusion.index, witnessed.vouched_time) == (3, 100)
    assert code(lambda: found.verify_proof(text, leaf=b"leaf 4")) is (
        RefusalCode.PROOF_INVALID
    )
    short = encode_proof(3, LOG.tree.inclusion(3), cosigned(0, 1))
    assert code(lambda: found.verify_proof(short, leaf=b"leaf 3")) is (
        RefusalCode.QUORUM_NOT_MET
    )


# --- simple policies ------------------------------------------------------------


def test_so_many_of_some_witnesses() -> None:
    keys = [witness.public for witness in WITNESSES[:3]]
    found = simple_policy(log=LOG.signer.public, witnesses=keys, quorum=2)
    text = cosigned(0, 2, times={0: 5, 2: 9})
    assert found.verify_checkpoint(text).vouched_time == 5
    assert code(lambda: found.verify_checkpoint(cosigned(0))) is (
        RefusalCode.QUORUM_NOT_MET
    )
    free = simple_policy(log=LOG.signer.public, witnesses=(), quorum=0)
    assert free.verify_checkpoint(SIGNED).vouched_time is None


@pytest.mark.parametrize("quorum", [-1, 3, 4])
def test_a_quorum_is_within_its_witnesses(quorum: int) -> None:
    keys = [witness.public for witness in WITNESSES[:2]]
    assert (
        code(
            lambda: simple_policy(log=LOG.signer.public, witnesses=keys, quorum=quorum)
        )
        is RefusalCode.POLICY_INVALID
    )


def test_a_log_is_not_its_own_witness() -> None:
    own = NoteKey(name="w", public_key=LOG.signer.public.public_key)
    assert (
        code(lambda: simple_policy(log=LOG.signer.public, witnesses=[own], quorum=1))
        is RefusalCode.POLICY_INVALID
    )
