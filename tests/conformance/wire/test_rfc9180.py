"""Every vector of RFC 9180 that is ours.

128 cases come with the development dependency ``cryptography-vectors``. Ours are
those in base mode with DHKEM(X25519), HKDF-SHA256 and one of our AEADs; one more,
with AES-256-GCM, runs through the key schedule alone. The other 125 are not ours,
and the first test says why, by number.
"""

from collections import Counter

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from curtilage.wire.hpke.aead import AEAD
from curtilage.wire.hpke.dhkem import DHKEMPrivateKey
from curtilage.wire.hpke.key_schedule import KeySchedule
from curtilage.wire.hpke.suite import (
    KEM_X25519,
    SUITES,
    private_key_from_bytes,
    setup_recipient,
    setup_sender,
)
from support.hpke_vectors import (
    BASE_MODE,
    Case,
    check_key,
    check_recipient,
    check_sender,
    load_cases,
    octets,
)

AES_256_GCM = 2
EXPORT_ONLY = 0xFFFF
OURS = {(s.kem_id, s.kdf_id, s.aead_id): s for s in SUITES}


def standing(case: Case) -> str:
    reasons = {
        "another mode than base": case["mode"] != BASE_MODE,
        "another KEM": case["kem_id"] != KEM_X25519,
        "another KDF": case["kdf_id"] != 1,
        "exports only, which no message of ours is": case["aead_id"] == EXPORT_ONLY,
        "AES-256-GCM: the key schedule alone": case["aead_id"] == AES_256_GCM,
    }
    return next((reason for reason, is_so in reasons.items() if is_so), "ours")


def cases_that_are(wanted: str) -> list[Case]:
    return [c for c in load_cases("test-vectors.json") if standing(c) == wanted]


def test_of_128_cases_two_are_ours_and_these_are_not() -> None:
    found = Counter(standing(case) for case in load_cases("test-vectors.json"))
    assert found == {
        "another mode than base": 96,
        "another KEM": 24,
        "another KDF": 4,
        "exports only, which no message of ours is": 1,
        "AES-256-GCM: the key schedule alone": 1,
        "ours": 2,
    }
    ours = cases_that_are("ours")
    assert [len(case["encryptions"]) for case in ours] == [257, 257]
    assert [len(case["exports"]) for case in ours] == [3, 3]
    assert {case["aead_id"] for case in ours} == {
        suite.aead_id for suite in SUITES if suite.kem_id == KEM_X25519
    }


@pytest.mark.parametrize("aead_id", [1, 3])
def test_our_cases(aead_id: int) -> None:
    (case,) = (c for c in cases_that_are("ours") if c["aead_id"] == aead_id)
    suite = OURS[KEM_X25519, 1, aead_id]
    key = private_key_from_bytes(KEM_X25519, octets(case["skRm"]))
    check_key(case, key)
    enc, sender = setup_sender(
        suite,
        octets(case["pkRm"]),
        octets(case["info"]),
        ephemeral=private_key_from_bytes(KEM_X25519, octets(case["skEm"])),
    )
    assert enc.hex() == case["enc"]
    check_sender(case, sender)
    check_recipient(case, setup_recipient(suite, enc, key, octets(case["info"])))


def test_key_schedule_with_aes_256_gcm() -> None:
    (case,) = cases_that_are("AES-256-GCM: the key schedule alone")
    schedule = KeySchedule(b"HPKE\x00\x20\x00\x01\x00\x02", AEAD(cipher=AESGCM, nk=32))
    secret = DHKEMPrivateKey(octets(case["skRm"])).decapsulate(octets(case["enc"]))
    assert secret.hex() == case["shared_secret"]
    info = octets(case["info"])
    check_sender(case, schedule.sender(secret, info))
    check_recipient(case, schedule.recipient(secret, info))
