"""One gateway key for every KEM that the wire speaks, drawn when imported."""

from typing import Final

from curtilage.wire.encapsulation import GatewayKey
from curtilage.wire.hpke.suite import SUITES, generate_private_key
from curtilage.wire.keyconfig import KeyConfig, SymmetricAlgorithms


def gateway_key(kem_id: int) -> GatewayKey:
    """Return a new key that offers every suite of its KEM."""
    private_key = generate_private_key(kem_id)
    config = KeyConfig(
        key_id=kem_id & 0xFF,
        kem_id=kem_id,
        public_key=private_key.public_key,
        algorithms=tuple(
            SymmetricAlgorithms(kdf_id=suite.kdf_id, aead_id=suite.aead_id)
            for suite in SUITES
            if suite.kem_id == kem_id
        ),
    )
    return GatewayKey(config=config, private_key=private_key)


# By KEM, and as a gateway holds them.
KEYS: Final = {suite.kem_id: gateway_key(suite.kem_id) for suite in SUITES}
LIVE: Final = {key.config.key_id: key for key in KEYS.values()}
