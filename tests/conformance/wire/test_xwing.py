"""The vectors of draft-connolly-cfrg-xwing-kem: keys and decapsulation.

Encapsulation from a given seed is not compared: the library under the ML-KEM half
draws its own randomness.
"""

from collections.abc import Callable
from typing import Any

from curtilage.wire.hpke.suite import KEM_XWING, private_key_from_bytes

Load = Callable[[str], Any]


def test_xwing_vectors(load_vectors: Load) -> None:
    vectors = load_vectors("xwing/test-vectors.json")
    assert len(vectors) == 3
    for vector in vectors:
        assert vector["seed"] == vector["sk"]
        key = private_key_from_bytes(KEM_XWING, bytes.fromhex(vector["sk"]))
        assert key.public_key.hex() == vector["pk"]
        secret = key.loaded.decapsulate(bytes.fromhex(vector["ct"]))
        assert secret.hex() == vector["ss"]
