"""Evidence of an NVIDIA GPU: an SPDM report, its chain, and what both must say.

    1. GPU report layout: a request and a response of SPDM 1.1, exact; no token
    2. GPU root: the last certificate is the pinned one
    3. GPU certificate chain: five certificates, P-384 and SHA-384 throughout
    4. GPU certificate dates: all valid now
    5. GPU revocation: stapled answers hold; there are some if the policy asks
    6. GPU report signature: ECDSA P-384 by the leaf over all but the signature
    7. GPU firmware identity: the leaf was made for the firmware that reports
    8. GPU driver and VBIOS: both accepted
    9. GPU measurements: an accepted set of measurements

Whether the nonce is the one that was derived from the CPU's evidence is the
caller's to compare; without that, the report says nothing about which machine
the GPU is in. The certificates run to the year 9999, so only what is stapled about
revocation ends them. NVIDIA's reference manifests (RIM) are not covered; the golden
digests take their place.

The golden digest is SHA-256 over the measurement record exactly as the report
carries it: every block with its index, specification, sizes, type and value, in
the report's order, and nothing else: no nonce and no opaque field. No block is
left out. In NVIDIA's sample manifests the blocks 8 and 22 to 41 speak of the
driver, 1 to 7 and 9 to 13 of the VBIOS; 14 to 21 and 42 to 64 are not compared
there, and are zero in NVIDIA's sample report. Blocks 13, 24, 25 and 36 have
several good values there, and NVIDIA's verifier passes over block 36 where the
first video decoder is off. So one driver with one VBIOS may have a few golden
digests, one for each state in which an operator runs the GPU; each is listed.

Verdicts of other verifiers are no evidence: they are recognised and refused.
NVIDIA's remote service (NRAS) and its local verifier both answer in JSON Web
Tokens. The local one's say ``{"alg":"none"}``: anybody can write them. Even a
signed one is somebody's opinion of evidence that is not shown here, so none is
accepted; a report begins with SPDM's version and cannot be mistaken for one.
"""

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Final

from curtilage.attest.claims import DeviceClaims, not_listed
from curtilage.attest.encoding.cose import der_signature
from curtilage.attest.encoding.strict_json import malformed, parse_object, too_large
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import (
    MAX_CERTIFICATE_BYTES,
    MAX_GPU_REPORT_BYTES,
    GpuEvidence,
)
from curtilage.attest.expectations import GpuExpectations, TrustAnchor
from curtilage.attest.nvidia.dice import firmware_id
from curtilage.attest.nvidia.spdm import SPDM_VERSION, SpdmReport, parse_spdm_report
from curtilage.attest.steps import StepLog
from curtilage.attest.x509.certificates import Certificate, verify_p384
from curtilage.attest.x509.p384_chain import (
    chain_links,
    check_chain,
    check_dates,
    check_pinned_root,
    parse_chain,
)
from curtilage.attest.x509.revocation import (
    MAX_ANSWER_AGE_S,
    RevocationRules,
    check_answers,
)

CHAIN_LENGTH: Final = 5
# NVIDIA's types of opaque fields.
OPAQUE_DRIVER: Final = 3
OPAQUE_VBIOS: Final = 6
OPAQUE_FWID: Final = 20
OPAQUE_PROTECTED_PCIE: Final = 21
VBIOS_BYTES: Final = 8
# Four bytes of version, most significant last, and one of revision.
_VBIOS_VERSION: Final = (3, 2, 1, 0, 4)
_MAX_TEXT_BYTES: Final = 64

# RFC 7515, section 7.1: three base64url texts, of which the last may be empty.
# A header is a JSON object, so its text begins with that of "{" and a quote, a
# blank or "}".
_TOKEN: Final = re.compile(
    rb"(?<![A-Za-z0-9_-])(e[yw3][A-Za-z0-9_-]{1,1024})\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"
)
_JSON_OPENINGS: Final = (b"{", b"[", b'"')
# One for the whole and one for each device; more are refused by the first ones.
_MAX_TOKENS: Final = 32
_MAX_HEADER_BYTES: Final = 1024
_MAX_ALGORITHM_BYTES: Final = 32


class GpuCheck(StrEnum):
    """The steps of a GPU's report, as a person reads them."""

    LAYOUT = "GPU report layout"
    ROOT = "GPU root"
    CHAIN = "GPU certificate chain"
    DATES = "GPU certificate dates"
    REVOCATION = "GPU revocation"
    SIGNATURE = "GPU report signature"
    FIRMWARE = "GPU firmware identity"
    VERSIONS = "GPU driver and VBIOS"
    MEASUREMENTS = "GPU measurements"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRules:
    """The expectations of one GPU's report.

    Attributes:
        anchors: the pinned roots of the evidence's kind.
        expectations: accepted drivers, VBIOSes and golden digests.
        clock_skew_s: how far ahead the issuers' clocks may run.
    """

    anchors: tuple[TrustAnchor, ...]
    expectations: GpuExpectations
    clock_skew_s: int


def verify_gpu(
    evidence: GpuEvidence,
    rules: GpuRules,
    *,
    index: int,
    now: datetime,
    log: StepLog,
) -> DeviceClaims:
    """Verify a report, its chain and its claims, except the nonce.

    Args:
        evidence: unverified bytes.
        rules: what to hold them against.
        index: the device's place among its kind, from 0.
        now: aware UTC.
        log: where each step is noted as it passes.

    Raises:
        RefusedError: the first step that does not hold.
    """
    # As with a CPU: layout, pinned root, chain, dates, signature, and only then what
    # the report says.
    # 1. Exact framing; a verdict of somebody else's is not a report.
    log.begin(GpuCheck.LAYOUT)
    size = len(evidence.report)
    if size > MAX_GPU_REPORT_BYTES:
        raise too_large(f"report: {size} bytes, limit {MAX_GPU_REPORT_BYTES}")
    # Before the parser's "malformed", which would send an operator looking for a broken
    # file.
    refuse_token(evidence.report)
    report = parse_spdm_report(evidence.report)
    log.passed(f"device {index}: {len(report.blocks)} measurements, {size} bytes")
    # 2. The root is served, and trusted because the policy pins it.
    log.begin(GpuCheck.ROOT)
    # Counted before anything is parsed. A longer path would have an authority in it for
    # which these rules were not written.
    if len(evidence.chain) != CHAIN_LENGTH:
        raise RefusedError(
            RefusalCode.CHAIN_INVALID,
            f"{len(evidence.chain)} certificates, not {CHAIN_LENGTH}",
        )
    fingerprint = check_pinned_root(evidence.chain[-1], rules.anchors)
    log.passed(f"sha256 {fingerprint[:16]}")
    # 3. From the root to the key of the firmware that runs.
    log.begin(GpuCheck.CHAIN)
    if any(len(certificate) > MAX_CERTIFICATE_BYTES for certificate in evidence.chain):
        raise too_large(f"chain: more than {MAX_CERTIFICATE_BYTES} bytes")
    # Served leaf first, followed root first.
    chain = parse_chain(evidence.chain[::-1])
    check_chain(chain)
    log.passed(f"{len(chain)} certificates on P-384")
    # 4. NVIDIA's certificates do not end in practice; others' may.
    log.begin(GpuCheck.DATES)
    expires_at = check_dates(chain, now=now, clock_skew_s=rules.clock_skew_s)
    log.passed(f"valid until {expires_at:%Y-%m-%d}")
    # 5. What NVIDIA answers about these certificates.
    log.begin(GpuCheck.REVOCATION)
    asked = RevocationRules(
        rule=rules.expectations.revocation,
        max_age_s=MAX_ANSWER_AGE_S,
        clock_skew_s=rules.clock_skew_s,
        now=now,
    )
    answered = check_answers(chain, evidence.ocsp, asked)
    expires_at = answered.until(expires_at)
    log.passed(answered.words)
    # 6. The firmware's key signed request and response.
    log.begin(GpuCheck.SIGNATURE)
    # Over request and response together (DSP0274, L1/L2): the nonce is in the request,
    # so a recorded response cannot be put behind another request.
    signature = der_signature(report.signature)
    burnt_in, leaf = chain[-2:]
    if not verify_p384(leaf.public_key, report.signed_part, signature):
        raise RefusedError(RefusalCode.BAD_SIGNATURE, "report signature")
    log.passed(f"ECDSA P-384 over {len(report.signed_part)} bytes")
    # 7. The leaf is derived from the firmware; a report that names one names the same.
    _check_firmware(report, chain, log)
    # 8. Old versions have known holes, so they are listed, not compared.
    log.begin(GpuCheck.VERSIONS)
    driver, vbios = driver_version(report), vbios_version(report)
    if driver not in rules.expectations.drivers:
        said = f"driver {driver} is not accepted; accepted"
        raise not_listed(said, rules.expectations.drivers)
    # NVIDIA writes the same version in capitals and in small letters.
    if vbios not in {accepted.lower() for accepted in rules.expectations.vbioses}:
        said = f"VBIOS {vbios} is not accepted; accepted"
        raise not_listed(said, rules.expectations.vbioses)
    log.passed(f"driver {driver}, VBIOS {vbios}")
    # 9. The whole record at once, see the module's text.
    log.begin(GpuCheck.MEASUREMENTS)
    # One digest and not a comparison block by block: a block that is left out, added or
    # moved changes it too.
    golden = golden_digest(report)
    if golden not in rules.expectations.golden:
        # Whole, for this is where an operator reads what to put into a policy.
        said = f"golden {golden} is not accepted; accepted"
        raise not_listed(said, rules.expectations.golden)
    log.passed(f"golden digest {golden[:16]}…")
    return DeviceClaims(
        kind=evidence.kind,
        index=index,
        signed_part=report.signed_part,
        nonce=report.nonce,
        expires_at=expires_at,
        # The key burnt into the GPU. The leaf's follows from it and the firmware, and
        # may be another after a start, by which one GPU would pass for two.
        device=hashlib.sha256(burnt_in.key_info).hexdigest(),
        details={
            "driver": driver,
            "vbios": vbios,
            "golden": golden,
            "measurements": len(report.blocks),
            "fwid": report.opaque.get(OPAQUE_FWID, b"").hex(),
            "device": burnt_in.common_name,
            "device_serial": f"{burnt_in.serial:x}",
            "protected_pcie": report.opaque.get(OPAQUE_PROTECTED_PCIE, b"").hex(),
        },
        links=chain_links(
            chain, root="root of NVIDIA devices", leaf="this GPU's firmware key"
        ),
    )


def _check_firmware(
    report: SpdmReport, chain: tuple[Certificate, ...], log: StepLog
) -> None:
    log.begin(GpuCheck.FIRMWARE)
    burnt_in, leaf = chain[-2:]
    named = firmware_id(leaf.unrecognised, burnt_in.key_info)
    reported = report.opaque.get(OPAQUE_FWID)
    # Older drivers' reports name none, and the leaf's key signs that too. Where one is
    # named and differs, a key that was certified for one firmware is in the hands of
    # another.
    if reported is not None and named != reported:
        raise RefusedError(
            RefusalCode.ENDORSEMENT_MISMATCH, "report and key name two firmwares"
        )
    who = "the key's alone" if reported is None else "report's and key's"
    log.passed(f"{who}: {named.hex()[:16]}…")


def refuse_token(data: bytes) -> None:
    """Refuse what is a JSON Web Token, or JSON that may hold one.

    Raises:
        RefusedError: ``unsigned`` if a token says that it is not signed,
            ``unsupported_algorithm`` for every other.
    """
    # A report holds bytes of a device's own, among which anything may look like a
    # token; no token begins with 0x11.
    if data[:1] == bytes([SPDM_VERSION]):
        return
    text = data.lstrip()
    # Found wherever they stand: NVIDIA's tools wrap them in JSON arrays.
    headers = [match[1] for match in islice(_TOKEN.finditer(data), _MAX_TOKENS)]
    if not headers and not text.startswith(_JSON_OPENINGS):
        return
    # "NONE" and "nOnE" too: libraries that compared exactly have let such tokens
    # through (RFC 8725, section 2.1).
    if any(_algorithm(header).lower() == "none" for header in headers):
        raise RefusedError(RefusalCode.UNSIGNED, "the token is not signed")
    raise RefusedError(
        RefusalCode.UNSUPPORTED_ALGORITHM, "another party's verdict is not evidence"
    )


def _algorithm(header: bytes) -> str:
    """Return a token's algorithm, or "" if its header cannot be read."""
    try:
        decoded = base64.urlsafe_b64decode(header + b"=" * (-len(header) % 4))
        fields = parse_object(decoded, where="token", limit_bytes=_MAX_HEADER_BYTES)
        return fields.text("alg", limit=_MAX_ALGORITHM_BYTES)
    except (binascii.Error, RefusedError):
        return ""


def golden_digest(report: SpdmReport) -> str:
    """Return the digest of a report's measurements, as the module defines it."""
    return hashlib.sha256(report.record).hexdigest()


def driver_version(report: SpdmReport) -> str:
    """Return the driver's version, such as ``550.90.07``.

    Raises:
        RefusedError: ``malformed``.
    """
    raw = report.opaque.get(OPAQUE_DRIVER, b"")
    text = raw.removesuffix(b"\0")
    # One terminating NUL, as C has it. Two texts that differ only behind the first NUL
    # must not look alike.
    if not text or len(raw) > _MAX_TEXT_BYTES or len(text) == len(raw):
        raise malformed("driver version: not a terminated text")
    # It is shown on terminals, where control characters are commands.
    if not (text.isascii() and text.decode("ascii").isprintable()):
        raise malformed("driver version: not printable")
    return text.decode("ascii")


def vbios_version(report: SpdmReport) -> str:
    """Return the VBIOS's version as NVIDIA writes it, in lower case.

    Raises:
        RefusedError: ``malformed``.
    """
    raw = report.opaque.get(OPAQUE_VBIOS, b"")
    if len(raw) != VBIOS_BYTES:
        raise malformed(f"VBIOS version: not {VBIOS_BYTES} bytes")
    # Little-endian, and shown as NVIDIA's own tools show it, so that an operator can
    # copy it from there.
    parts = [*(raw[place] for place in _VBIOS_VERSION)]
    # Bytes that no version has used yet still make another version.
    if any(raw[len(parts) :]):
        parts += raw[len(parts) :]
    return ".".join(f"{part:02x}" for part in parts)
