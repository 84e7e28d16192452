"""The report of a model server or gateway that signs its answers (NEAR, Phala).

Pure. The first half of the report data is the signer's address, or its digest together
with that of the TLS key; the second half is the reader's nonce (nearai/docs,
"Verification"; vllm-proxy). GPU evidence has the same nonce, and nothing else in common
with the CPU's.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from curtilage.attest.claims import CpuClaims
from curtilage.attest.encoding.strict_json import malformed
from curtilage.cli.attest.foreign.application import application_of, quote_files
from curtilage.cli.attest.foreign.published import (
    FINGERPRINT_BYTES,
    FRESHNESS,
    KEY,
    NONCE_BYTES,
    RECEIPTS,
    Carrier,
    Given,
    Judged,
    Published,
    Way,
    checked,
    freshness_of,
    mismatch,
    require_nonce,
    stated,
)
from curtilage.cli.attest.foreign.reader import Members, read_document

MAX_GPUS: Final = 16
ED25519: Final = "ed25519"
# A signer by its algorithm: an Ethereum address, or the key itself.
_SIGNER_BYTES: Final[Mapping[str, int]] = {"ecdsa": 20, ED25519: 32}
_WHERE: Final = "the machine that answered; another machine behind it is not named"
_NO_KEY: Final = (
    "the evidence names a key that signs answers, and none that a question could be "
    "sealed to"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """Who signs, and over which nonce.

    Attributes:
        algorithm: ``ecdsa`` or ``ed25519``.
        address: an Ethereum address, or the Ed25519 key.
        fingerprint: SHA-256 of the TLS key, or b"".
        nonce: of the request.
    """

    algorithm: str
    address: bytes
    fingerprint: bytes = b""
    nonce: bytes = field(repr=False)

    @property
    def bound(self) -> bytes:
        """The report data that name this signer."""
        first = self.address.ljust(FINGERPRINT_BYTES, b"\0")
        if self.fingerprint:
            first = hashlib.sha256(self.address + self.fingerprint).digest()
        return first + self.nonce


def read_report(
    report: Members, given: Given, *, service: str, way: Way | None = None
) -> Published:
    """Take apart the report of one machine.

    Args:
        report: the JSON object.
        given: what the reader has.
        service: whose form it is, for people.
        way: how a question reaches the machine, if not over its TLS key.

    Raises:
        RefusedError: ``malformed``, ``too_large`` or ``binding_mismatch``.
    """
    signer = signer_of(report)
    require_nonce(signer.nonce, given)
    application = application_of(report)
    gpus = _gpus(report, signer.nonce)
    if way is None and signer.fingerprint:
        way = Way(by=Carrier.TLS, key=signer.fingerprint.hex(), where=_WHERE)

    def judge(claims: CpuClaims) -> Judged:
        findings = application.findings(claims)
        findings[KEY] = checked("the report data name the signer and what it binds")
        findings[FRESHNESS] = freshness_of(given)
        findings[RECEIPTS] = stated(
            "answers are signed by the bound key; receipts of this form are not read"
        )
        return Judged(findings=findings, way=way, no_way="" if way else _NO_KEY)

    return Published(
        form=f"{service} signed report",
        family="tdx",
        files=quote_files(report.hexadecimal("intel_quote"), given),
        bound=signer.bound,
        gpus=gpus,
        gpu_nonce=signer.nonce if gpus else None,
        judge=judge,
    )


def signer_of(report: Members) -> Signer:
    """Read who signs.

    Raises:
        RefusedError: ``malformed``.
    """
    algorithm = report.text("signing_algo")
    length = _SIGNER_BYTES.get(algorithm)
    if length is None:
        raise malformed("signing_algo: neither ecdsa nor ed25519")
    fingerprint = b""
    if report.has("tls_cert_fingerprint"):
        fingerprint = report.hexadecimal(
            "tls_cert_fingerprint", length=FINGERPRINT_BYTES
        )
    return Signer(
        algorithm=algorithm,
        address=report.hexadecimal("signing_address", length=length),
        fingerprint=fingerprint,
        nonce=report.hexadecimal("request_nonce", length=NONCE_BYTES),
    )


def _gpus(report: Members, nonce: bytes) -> tuple[bytes, ...]:
    if not report.has("nvidia_payload") or not report.value("nvidia_payload"):
        return ()
    text = report.text("nvidia_payload").encode()
    payload = read_document(text, "nvidia_payload")
    # Each GPU's report is compared with the machine's nonce below; said first, a
    # payload of another request is not blamed on a GPU.
    if payload.hexadecimal("nonce", length=NONCE_BYTES) != nonce:
        raise mismatch("nvidia_payload: made for another nonce")
    entries = payload.children("evidence_list", limit=MAX_GPUS)
    return tuple(
        json.dumps(
            {
                "certificate": each.text("certificate"),
                "evidence": each.text("evidence"),
            }
        ).encode()
        for each in entries
    )
