"""NEAR AI's evidence: ``/v1/attestation/report`` of a gateway and its models.

Pure. A document has the gateway's report and one for each model machine; nothing in
either names the other, so each is imported by itself. The gateway's Ed25519 signer also
signs an OHTTP key configuration (nearai/docs, "OHTTP"; RFC 9458, section 3).
"""

from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from curtilage.attest.encoding.strict_json import malformed
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.cli.attest.foreign.published import (
    Carrier,
    Given,
    Published,
    Way,
    mismatch,
)
from curtilage.cli.attest.foreign.reader import Members, read_document
from curtilage.cli.attest.foreign.signed_report import (
    ED25519,
    read_report,
    signer_of,
)
from curtilage.client.errors import UsageError
from curtilage.wire.errors import WireError
from curtilage.wire.keyconfig import choose_suite, parse_key_config

GATEWAY: Final = "gateway"
MODEL: Final = "model"
PARTS: Final = (GATEWAY, MODEL)
MAX_MODELS: Final = 64

_KEY_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 64
_WHERE: Final = (
    "the machine that answered; of a gateway, that is not the one with the model"
)


def read(data: bytes, given: Given) -> Published:
    """Take apart one machine's report.

    Raises:
        RefusedError: ``malformed``, ``too_large``, ``bad_signature`` or
            ``binding_mismatch``.
        UsageError: it is not clear which machine is meant.
    """
    document = read_document(data, "document")
    if not document.has("gateway_attestation"):
        return _one(document, document, given)
    # A default would give a verdict on the gateway that reads like one on the model.
    if given.part not in PARTS:
        raise UsageError("this document has several machines: --part gateway or model")
    if given.part == GATEWAY:
        return _one(document.child("gateway_attestation"), document, given)
    models = document.children("model_attestations", limit=MAX_MODELS)
    # A choice here would be a verdict on one machine of a set.
    if len(models) != 1:
        raise malformed(f"model_attestations: {len(models)} instead of exactly one")
    # OHTTP ends at the gateway, whose key says nothing about a model's machine.
    return read_report(models[0], given, service="near model")


def _one(report: Members, holder: Members, given: Given) -> Published:
    way = None
    if holder.has("ohttp_attestation"):
        way = _ohttp(holder.child("ohttp_attestation"), report)
    service = "near" if report is holder else "near gateway"
    return read_report(report, given, service=service, way=way)


def _ohttp(attested: Members, report: Members) -> Way:
    """Return the OHTTP key configuration that the machine's signer signed."""
    if attested.text("signing_algo") != ED25519:
        raise malformed("ohttp_attestation: its signer is not Ed25519")
    signer = signer_of(report)
    key = attested.hexadecimal("signing_key", length=_KEY_BYTES)
    # Signed by any other key it shows nothing about this machine.
    if signer.algorithm != ED25519 or signer.address != key:
        raise mismatch("ohttp_attestation: its signer is not the one in the evidence")
    config = attested.hexadecimal("key_config")
    signature = attested.hexadecimal("signature", length=_SIGNATURE_BYTES)
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, config)
    except (InvalidSignature, ValueError):
        raise RefusedError(
            RefusalCode.BAD_SIGNATURE, "ohttp_attestation: not signed by its signer"
        ) from None
    try:
        choose_suite(parse_key_config(config))
    except WireError:
        raise malformed("ohttp_attestation: no key configuration for us") from None
    return Way(by=Carrier.OHTTP, key=config.hex(), where=_WHERE)
