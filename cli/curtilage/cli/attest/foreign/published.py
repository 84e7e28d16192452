"""What a service's document holds, and what can be said about each claim.

Values only. Three words say how far a claim is known: ``checked`` is what a signature
of the hardware and the reader's own policy show; ``stated`` is what the document says
without that; ``unknown`` is what it says nothing about.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from curtilage.attest.claims import CpuClaims
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.cli.attest.evidence_files import EvidenceFiles

FINGERPRINT_BYTES: Final = 32
REPORT_DATA_BYTES: Final = 64
NONCE_BYTES: Final = 32

MEASUREMENT: Final = "measurement"
RELEASE: Final = "release"
KEY: Final = "key"
FRESHNESS: Final = "freshness"
PLATFORM: Final = "platform"
RECEIPTS: Final = "receipts"
SUBJECTS: Final = (MEASUREMENT, RELEASE, KEY, FRESHNESS, PLATFORM, RECEIPTS)
"""What is said in addition to the claims that a policy may require."""


class Status(StrEnum):
    """How far something is known; the names are public and stable."""

    CHECKED = "checked"
    STATED = "stated"
    UNKNOWN = "unknown"


class Carrier(StrEnum):
    """How a question could reach only the enclave; the names are public and stable."""

    OHTTP = "ohttp"
    HPKE = "hpke"
    TLS = "tls"
    MESH_CA = "mesh_ca"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known about one claim.

    Attributes:
        status: how far.
        why: what it rests on, or what is missing.
    """

    status: Status
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to reach only the enclave.

    Attributes:
        by: what carries the question.
        key: what the evidence names: a key, its digest or a key configuration, in hex.
        where: who holds the private part.
    """

    by: Carrier
    key: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the document shows once its CPU evidence is verified.

    Attributes:
        findings: by ``Claim`` or subject; what is left out is unknown.
        way: how a question could reach the enclave, or None.
        no_way: why not, or "".
    """

    findings: Mapping[str, Finding]
    way: Way | None = None
    no_way: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the reader has in addition to the document.

    Attributes:
        at: the time of verification.
        nonce: what was sent with the request for the evidence, or None.
        part: which of a document's machines, or "".
        manifest: the manifest that was expected (Privatemode), or b"".
        report_data: the 64 bytes that the application chose (dstack), or None.
        files: endorsements, which replace those of the document.
    """

    at: datetime
    nonce: bytes | None = None
    part: str = ""
    manifest: bytes = field(default=b"", repr=False)
    report_data: bytes | None = None
    files: EvidenceFiles = field(default_factory=EvidenceFiles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A document, taken apart; nothing of it is verified.

    Attributes:
        form: which form of document this is.
        family: ``sev-snp`` or ``tdx``.
        files: the CPU evidence and its endorsements.
        bound: the report data that the document's parts lead to; None where the
            evidence itself is the only place that says so.
        gpus: each GPU's entry, as JSON.
        gpu_nonce: what each GPU's report must carry; None without GPUs.
        judge: what the document shows, given the verified claims. It refuses a
            document that contradicts them.
    """

    form: str
    family: str
    files: EvidenceFiles
    bound: bytes | None
    gpus: tuple[bytes, ...] = field(default=(), repr=False)
    gpu_nonce: bytes | None = None
    judge: Callable[[CpuClaims], Judged]


def checked(why: str) -> Finding:
    """Return that the hardware's signature and the policy show it."""
    return Finding(Status.CHECKED, why)


def stated(why: str) -> Finding:
    """Return that the document says so, without proof."""
    return Finding(Status.STATED, why)


def unknown(why: str) -> Finding:
    """Return that nothing in the document says so."""
    return Finding(Status.UNKNOWN, why)


def mismatch(detail: str) -> RefusedError:
    """Return the refusal of a document whose parts belong to different things."""
    return RefusedError(RefusalCode.BINDING_MISMATCH, detail)


def unsupported(detail: str) -> RefusedError:
    """Return the refusal of a form that this release does not know."""
    return RefusedError(RefusalCode.UNSUPPORTED_VERSION, detail)


def require_nonce(document: bytes, given: Given) -> None:
    """Refuse a document with another nonce than the reader sent.

    Raises:
        RefusedError: ``binding_mismatch``.
    """
    # Old evidence, or evidence made for somebody else, looks the same otherwise.
    if given.nonce is not None and given.nonce != document:
        raise mismatch("the document was made for another nonce than --nonce")


def freshness_of(given: Given) -> Finding:
    """Return what a nonce that the evidence binds says about its age."""
    if given.nonce is None:
        return stated(
            "the evidence binds a nonce; whether it is yours is not known (no --nonce)"
        )
    return checked("the evidence binds the nonce that you sent")
