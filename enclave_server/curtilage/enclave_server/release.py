"""The release that runs here, as files say: manifest, proof, checkpoint.

Nothing inside the enclave fetches; somebody outside renews the checkpoint in
this directory, and nothing in it is believed before ``bundle`` has verified it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import (
    MAX_CHECKPOINT_BYTES,
    MAX_MANIFEST_BYTES,
    MAX_PROOF_BYTES,
    Release,
    Tee,
)
from curtilage.attest.expectations import (
    AnchorKind,
    Environment,
    Expectations,
    FreshnessExpectations,
    LogExpectations,
    SnpExpectations,
    TrustAnchor,
)
from curtilage.attest.manifest import ReleaseManifest, parse_manifest
from curtilage.attest.tcb import Tcb
from curtilage.enclave_server.config import AnchorFile, EnclaveConfig, LogKeys
from curtilage.enclave_server.errors import BundleError, ConfigError

MANIFEST_FILE: Final = "manifest.json"
PROOF_FILE: Final = "proof.txt"
CHECKPOINT_FILE: Final = "checkpoint.txt"
MAX_PEM_BYTES: Final = 16 * 1024
SELF_CHECK: Final = "self-check"
"""Stands where a client's expectations name the policy they came from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFiles:
    """What the release directory held at one moment.

    Attributes:
        release: manifest bytes and proof.
        manifest: the manifest, parsed, not yet verified.
        checkpoint: the anchor's signed and cosigned note.
    """

    release: Release
    manifest: ReleaseManifest
    checkpoint: str


def read_release(directory: Path) -> ReleaseFiles:
    """Read the three files, each with its bound.

    Raises:
        BundleError: ``release_unreadable``, or the manifest's refusal code.
    """
    manifest = _read(directory / MANIFEST_FILE, MAX_MANIFEST_BYTES)
    proof = _text(directory / PROOF_FILE, MAX_PROOF_BYTES)
    checkpoint = _text(directory / CHECKPOINT_FILE, MAX_CHECKPOINT_BYTES)
    try:
        parsed = parse_manifest(manifest)
    except RefusedError as error:
        raise BundleError(error.code, error.detail) from None
    return ReleaseFiles(
        release=Release(manifest=manifest, proof=proof),
        manifest=parsed,
        checkpoint=checkpoint,
    )


def read_anchors(files: tuple[AnchorFile, ...]) -> tuple[TrustAnchor, ...]:
    """Read the trust anchors' certificates.

    Raises:
        ConfigError: a file is missing or holds no certificate.
    """
    return tuple(_read_anchor(file) for file in files)


def expectations_of(
    config: EnclaveConfig, anchors: tuple[TrustAnchor, ...], manifest: ReleaseManifest
) -> Expectations:
    """Build what our own bundle must satisfy before it is served.

    Stricter than no check and weaker than a client's: it finds an operator's
    mistake before clients do, it convinces nobody.
    """
    tees = {AnchorKind.AMD: Tee.SEV_SNP, AnchorKind.EMULATED: Tee.EMULATED_SEV_SNP}
    nothing = Tcb(bl=0, tee=0, snp=0, ucode=0)
    minimums = {str(product): tcb for product, tcb in manifest.min_tcb.items()}
    return Expectations(
        environment=Environment(config.environment.value),
        roots=anchors,
        required_cpu_tees=frozenset(tees[anchor.kind].value for anchor in anchors),
        release_names=frozenset({manifest.name}),
        log=log_expectations(config.log),
        # A product that the manifest does not name has no minimum of its own.
        snp=SnpExpectations(
            min_tcb={
                anchor.product: minimums.get(anchor.product, nothing)
                for anchor in anchors
            }
        ),
        freshness=FreshnessExpectations(
            max_key_lifetime_s=config.freshness.key_lifetime_s,
            max_evidence_age_s=config.freshness.max_evidence_age_s,
        ),
        transport=frozenset({manifest.transport}),
        digest=SELF_CHECK,
    )


def log_expectations(log: LogKeys) -> LogExpectations:
    """Translate the configuration's log."""
    return LogExpectations(
        origin=log.origin,
        public_key=log.key,
        witnesses={witness.name: witness.key for witness in log.witnesses},
        quorum=log.quorum,
        max_checkpoint_age_s=log.max_checkpoint_age_s,
    )


def _read_anchor(file: AnchorFile) -> TrustAnchor:
    try:
        pem = _read(file.certificate, MAX_PEM_BYTES)
        certificate = x509.load_pem_x509_certificate(pem)
    except (BundleError, ValueError):
        raise ConfigError(
            f"trust_anchors: no certificate in {file.certificate}"
        ) from None
    return TrustAnchor(
        kind=AnchorKind(file.kind),
        product=file.product,
        certificate_der=certificate.public_bytes(Encoding.DER),
    )


def _read(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise BundleError(
            "release_unreadable", f"{path.name}: {type(error).__name__}"
        ) from None
    if len(data) > limit:
        raise BundleError("too_large", f"{path.name}: more than {limit} bytes")
    return data


def _text(path: Path, limit: int) -> str:
    try:
        return _read(path, limit).decode("utf-8")
    except UnicodeDecodeError:
        raise BundleError("malformed", f"{path.name}: not UTF-8") from None
