"""RFC 9180's vectors: base mode, X25519, HKDF-SHA256, both of our AEADs."""

from collections.abc import Callable
from typing import Any

from curtilage.wire.suite import (
    SUITES,
    Suite,
    private_key_from_bytes,
    setup_recipient,
    setup_sender,
)

Load = Callable[[str], Any]
BASE_MODE = 0


def octets(text: str) -> bytes:
    return bytes.fromhex(text)


def run_case(suite: Suite, case: dict[str, Any]) -> int:
    private_key = private_key_from_bytes(suite.kem_id, octets(case["skRm"]))
    ephemeral = private_key_from_bytes(suite.kem_id, octets(case["skEm"]))
    info = octets(case["info"])
    enc, sender = setup_sender(suite, octets(case["pkRm"]), info, ephemeral=ephemeral)
    recipient = setup_recipient(suite, enc, private_key, info)
    assert private_key.public_key.hex() == case["pkRm"]
    assert enc.hex() == case["enc"]
    for one in case["encryptions"]:
        plaintext, aad = octets(one["pt"]), octets(one["aad"])
        assert sender.seal(plaintext, aad).hex() == one["ct"]
        assert recipient.open(octets(one["ct"]), aad) == plaintext
    for one in case["exports"]:
        label, length = octets(one["exporter_context"]), one["L"]
        assert sender.export(label, length).hex() == one["exported_value"]
        assert recipient.export(label, length).hex() == one["exported_value"]
    return len(case["encryptions"])


def test_base_mode_vectors(load_vectors: Load) -> None:
    suites = {(s.kem_id, s.kdf_id, s.aead_id): s for s in SUITES}
    encryptions = {
        case["aead_id"]: run_case(
            suites[case["kem_id"], case["kdf_id"], case["aead_id"]], case
        )
        for case in load_vectors("rfc9180/test-vectors.json")
        if case["mode"] == BASE_MODE
        and (case["kem_id"], case["kdf_id"], case["aead_id"]) in suites
    }
    assert encryptions == {1: 257, 3: 257}
