"""The vectors of draft-ietf-hpke-pq for MLKEM768-X25519.

13 cases come with ``cryptography-vectors``. Ours is the one with KEM 0x647a and
HKDF-SHA256; the other one with that KEM has a single-stage KDF, which RFC 9458's
response cannot use. ML-KEM's half draws its own randomness, so that only opening
can be compared.
"""

from collections import Counter

import pytest

from curtilage.wire.errors import UnsupportedError
from curtilage.wire.hpke.suite import (
    KEM_XWING,
    Suite,
    private_key_from_bytes,
    setup_recipient,
)
from support.hpke_vectors import (
    Case,
    check_key,
    check_recipient,
    load_cases,
    octets,
)

HKDF_SHA256 = 1


def standing(case: Case) -> str:
    if case["kem_id"] != KEM_XWING:
        return "another KEM"
    return "ours" if case["kdf_id"] == HKDF_SHA256 else "a single-stage KDF"


def test_of_13_cases_one_is_ours_and_these_are_not() -> None:
    found = Counter(map(standing, load_cases("hpke-pq-test-vectors.json")))
    assert found == {"another KEM": 11, "a single-stage KDF": 1, "ours": 1}


def our_case() -> Case:
    cases = load_cases("hpke-pq-test-vectors.json")
    (case,) = (case for case in cases if standing(case) == "ours")
    return case


def test_our_case() -> None:
    case = our_case()
    assert (case["mode"], len(case["encryptions"]), len(case["exports"])) == (0, 10, 5)
    suite = Suite(kem_id=KEM_XWING, kdf_id=1, aead_id=case["aead_id"])
    key = private_key_from_bytes(KEM_XWING, octets(case["skRm"]))
    check_key(case, key)
    enc, info = octets(case["enc"]), octets(case["info"])
    check_recipient(case, setup_recipient(suite, enc, key, info))


def test_shared_secret() -> None:
    case = our_case()
    key = private_key_from_bytes(KEM_XWING, octets(case["skRm"])).loaded
    assert key.decapsulate(octets(case["enc"])).hex() == case["shared_secret"]


def test_the_single_stage_kdf_is_refused() -> None:
    (case,) = (
        case
        for case in load_cases("hpke-pq-test-vectors.json")
        if standing(case) == "a single-stage KDF"
    )
    with pytest.raises(UnsupportedError):
        Suite(kem_id=KEM_XWING, kdf_id=case["kdf_id"], aead_id=case["aead_id"])
