"""Privatemode's evidence: the answer of a Contrast Coordinator.

Pure. The Coordinator is one small enclave; it hands certificates and secrets to workers
that it attested itself, so a reader sees only it. Its report data are the digest of the
reader's nonce, of the history of manifests, of two certification authorities and (in
the newer form) of an HPKE key (Contrast's documentation, "Attestation"; the answer as
privatemode-proxy reads it).
"""

import hashlib
from collections.abc import Sequence
from typing import Final

from curtilage.attest.claims import CpuClaims
from curtilage.attest.encoding.strict_json import malformed
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.sev_snp.report import (
    OFFSET_HOST_DATA,
    REPORT_BYTES,
)
from curtilage.cli.attest.encodings import decode_blob, is_text
from curtilage.cli.attest.evidence_files import EvidenceFiles
from curtilage.cli.attest.foreign.published import (
    FRESHNESS,
    KEY,
    NONCE_BYTES,
    RELEASE,
    REPORT_DATA_BYTES,
    Carrier,
    Given,
    Judged,
    Published,
    Way,
    checked,
    mismatch,
    stated,
    unknown,
    unsupported,
)
from curtilage.cli.attest.foreign.reader import Members, read_document
from curtilage.cli.attest.foreign.snp_protobuf import read_message
from curtilage.client.errors import UsageError

FORM: Final = "contrast coordinator answer"
MAX_MANIFESTS: Final = 256
_HOST_DATA_BYTES: Final = 32
_TDX_QUOTE_START: Final = (b"\x04\x00", b"\x05\x00")
_TDX_TYPE: Final = slice(4, 8)
_TDX: Final = b"\x81\x00\x00\x00"
_COORDINATOR: Final = "coordinator"
_WORKERS: Final = (
    "this is the Coordinator alone: it attests the machines with the model, and their "
    "evidence is not published"
)
_NO_WAY: Final = (
    "questions are encrypted with a secret left behind the mesh's certification "
    "authority, and who gets a certificate from it is up to a manifest that only the "
    "document states; name the one that you expect with --manifest"
)
_WHERE: Final = (
    "the Coordinator, which lets the machines of your manifest have certificates"
)


def read(data: bytes, given: Given) -> Published:
    """Take apart the answer.

    Raises:
        RefusedError: ``malformed``, ``too_large``, ``unsupported_version`` or
            ``binding_mismatch``.
        UsageError: there is no nonce, which only the reader knows.
    """
    # Without it nothing is bound to anything: the nonce is hashed together with the
    # rest, and the answer does not repeat it.
    if given.nonce is None:
        raise UsageError("--from privatemode needs --nonce: the answer lacks it")
    answer = read_document(data, "document")
    if answer.has("AttestationDoc"):
        answer = read_document(answer.base64("AttestationDoc"), "AttestationDoc")
    manifests = _octets(answer, "manifests")
    if not manifests:
        raise malformed("manifests: none")
    files, family = _evidence(answer.base64("raw_attestation_doc"))
    bound = _bound(answer, manifests, given.nonce)
    enforced = manifests[-1]
    # Byte by byte: the manifest says which machines the Coordinator admits.
    if given.manifest and given.manifest != enforced:
        raise mismatch("the manifest in force is not the one given with --manifest")

    def judge(claims: CpuClaims) -> Judged:
        host = files.evidence[OFFSET_HOST_DATA : OFFSET_HOST_DATA + _HOST_DATA_BYTES]
        if "launch" in claims.registers:
            _require_coordinator(enforced, host)
        digest = hashlib.sha256(enforced).hexdigest()
        release = (
            checked(f"the Coordinator enforces your manifest, sha256 {digest}")
            if given.manifest
            else stated(
                f"the Coordinator enforces the manifest with sha256 {digest}; compare "
                "it with --manifest"
            )
        )
        return Judged(
            findings={
                "gpu": unknown(_WORKERS),
                "weights": unknown(_WORKERS),
                "no_write": unknown(_WORKERS),
                KEY: checked("the report data bind both certification authorities"),
                FRESHNESS: checked("the evidence binds the nonce that you sent"),
                RELEASE: release,
            },
            way=_way(answer) if given.manifest else None,
            no_way="" if given.manifest else _NO_WAY,
        )

    return Published(
        form=FORM,
        family=family,
        files=EvidenceFiles(
            evidence=files.evidence,
            vek=given.files.vek or files.vek,
            chain=given.files.chain or files.chain,
            crl=given.files.crl,
            certs=given.files.certs,
            collateral=given.files.collateral,
        ),
        bound=bound,
        judge=judge,
    )


def _way(answer: Members) -> Way:
    authority = hashlib.sha256(answer.base64("mesh_ca")).hexdigest()
    return Way(by=Carrier.MESH_CA, key=authority, where=_WHERE)


def _octets(answer: Members, name: str) -> tuple[bytes, ...]:
    texts = answer.texts(name, limit=MAX_MANIFESTS)
    return tuple(Members({name: text}, answer.where).base64(name) for text in texts)


def _evidence(raw: bytes) -> tuple[EvidenceFiles, str]:
    """Return the report or quote inside, and its family."""
    if is_text(raw):
        raw = decode_blob(raw, "raw_attestation_doc")
    if raw[:2] in _TDX_QUOTE_START and raw[_TDX_TYPE] == _TDX:
        return EvidenceFiles(evidence=raw), "tdx"
    if len(raw) == REPORT_BYTES:
        return EvidenceFiles(evidence=raw), "sev-snp"
    message = read_message(raw)
    files = EvidenceFiles(evidence=message.report, vek=message.vek, chain=message.chain)
    return files, "sev-snp"


def _bound(answer: Members, manifests: Sequence[bytes], nonce: bytes) -> bytes:
    if len(nonce) != NONCE_BYTES:
        raise UsageError(f"--nonce: Contrast's nonce has {NONCE_BYTES} bytes")
    transition = bytes(NONCE_BYTES)
    # The whole history, so that a manifest that was in force for an hour stays visible.
    for manifest in manifests:
        digest = hashlib.sha256(manifest).digest()
        transition = hashlib.sha256(digest + transition).digest()
    text = nonce + transition
    for name in ("root_ca", "mesh_ca"):
        text += hashlib.sha256(answer.base64(name)).digest()
    if answer.has("hpke_pub_key"):
        text += answer.base64("hpke_pub_key")
    return hashlib.sha256(text).digest().ljust(REPORT_DATA_BYTES, b"\0")


def _require_coordinator(manifest: bytes, host_data: bytes) -> None:
    """Refuse a machine that the manifest does not list as its Coordinator.

    The launch measurement is the firmware and the kernel, the same for all of its
    machines; which of them this is, HOST_DATA says.
    """
    document = read_document(manifest, "manifest")
    if not document.has("Policies"):
        raise unsupported("manifest: without Policies")
    policies = document.child("Policies")
    name = host_data.hex()
    if not policies.has(name):
        raise _not_coordinator("the manifest does not list this machine's HOST_DATA")
    policy = policies.child(name)
    if not policy.has("Role") or policy.text("Role") != _COORDINATOR:
        raise _not_coordinator("the manifest lists this machine, not as Coordinator")


def _not_coordinator(detail: str) -> RefusedError:
    return RefusedError(RefusalCode.MEASUREMENT_NOT_ALLOWED, detail)
