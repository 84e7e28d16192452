"""The release that runs here, read from files: manifest, proof, checkpoints.

Nothing inside the enclave fetches; a process outside renews the checkpoint in this
directory, and nothing in it is trusted before ``bundle`` has verified it.

Links are followed, unlike among the endorsements: orchestrators mount such files as
links (Kubernetes does, from a config map), and the content is published only if it
verifies as the release. A pipe or a device would block the whole server, and is not
read.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)

from curtilage.attest.amd_tcb import Tcb
from curtilage.attest.encoding.strict_json import decode_base64
from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import (
    DIGEST_BYTES,
    MAX_CHECKPOINT_BYTES,
    MAX_MANIFEST_BYTES,
    MAX_PROOF_BYTES,
    DeviceKind,
    Release,
    Tee,
)
from curtilage.attest.expectations import (
    AnchorKind,
    Environment,
    Expectations,
    FreshnessExpectations,
    GpuExpectations,
    LogExpectations,
    SnpExpectations,
    TdxExpectations,
    TrustAnchor,
    anchors_for,
)
from curtilage.attest.log.manifest import ReleaseManifest, parse_manifest
from curtilage.attest.sandbox import SandboxStatement
from curtilage.enclave_server.config import AnchorFile, EnclaveConfig, LogKeys
from curtilage.enclave_server.errors import BundleError, ConfigError
from curtilage.enclave_server.files import read_ordinary

MANIFEST_FILE: Final = "manifest.json"
PROOF_FILE: Final = "proof.txt"
CHECKPOINT_FILE: Final = "checkpoint.txt"
CONSISTENCY_FILE: Final = "consistency.txt"
MAX_CONSISTENCY_HASHES: Final = 64
# 44 characters of base64 and a newline for each hash.
MAX_CONSISTENCY_BYTES: Final = MAX_CONSISTENCY_HASHES * 45
MAX_PEM_BYTES: Final = 16 * 1024
TDX_STATUSES: Final = frozenset(
    {
        "UpToDate",
        "SWHardeningNeeded",
        "ConfigurationNeeded",
        "ConfigurationAndSWHardeningNeeded",
    }
)
"""The accepted TCB statuses of a platform that is not out of date."""
SELF_CHECK: Final = "self-check"
"""Used where a client's expectations name their policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFiles:
    """The content of the release directory at one moment.

    Attributes:
        release: manifest bytes and proof.
        manifest: the manifest, parsed, not yet verified.
        checkpoint: the anchor's signed and cosigned note.
        consistency: the proof that the trees of proof and checkpoint are one
            log's; empty where they are the same tree.
    """

    release: Release
    manifest: ReleaseManifest
    checkpoint: str
    consistency: tuple[bytes, ...] = ()

    @property
    def digest(self) -> bytes:
        """SHA-256 of the manifest, which the binding holds."""
        return hashlib.sha256(self.release.manifest).digest()


def read_release(directory: Path) -> ReleaseFiles:
    """Read the files, each with its bound.

    Raises:
        BundleError: ``release_unreadable``, or the manifest's refusal code.
    """
    # One after the other, possibly while they are replaced: files that do not belong
    # together do not verify, and the next round reads them again.
    manifest = _read(directory / MANIFEST_FILE, MAX_MANIFEST_BYTES)
    proof = _text(directory / PROOF_FILE, MAX_PROOF_BYTES)
    checkpoint = _text(directory / CHECKPOINT_FILE, MAX_CHECKPOINT_BYTES)
    try:
        return ReleaseFiles(
            release=Release(manifest=manifest, proof=proof),
            manifest=parse_manifest(manifest),
            checkpoint=checkpoint,
            consistency=_read_consistency(directory / CONSISTENCY_FILE),
        )
    except RefusedError as error:
        raise BundleError(error.code, error.detail) from None


def require_sandbox(
    manifest: ReleaseManifest, statement: SandboxStatement | None
) -> None:
    """Refuse a release that names another sandbox than this server is in.

    Args:
        manifest: the release.
        statement: what this server's own self-test found; None: it is in no sandbox,
            whatever its release says.

    Raises:
        BundleError: ``sandbox_not_applied`` or ``sandbox_not_released``.
    """
    if statement is None:
        if manifest.sandbox:
            raise BundleError(
                "sandbox_not_applied",
                "the release names a sandbox, and this server is in none; "
                "release it without one",
            )
        return
    loaded = (statement.loaded.hex(), statement.isolation, statement.ephemerality)
    if loaded != (manifest.sandbox, manifest.isolation, manifest.ephemerality):
        raise BundleError(
            "sandbox_not_released",
            f"this server loaded the sandbox {loaded[0]}, isolation "
            f"{statement.isolation}, ephemerality {statement.ephemerality}; "
            "the release names another",
        )


def _read_consistency(path: Path) -> tuple[bytes, ...]:
    """Read one base64 hash per line; no file means no hashes."""
    if not path.exists():
        return ()
    # Every line ends with a newline, the last one too: a file that was truncated while
    # it was written is refused rather than read as a shorter proof.
    lines = _text(path, MAX_CONSISTENCY_BYTES).split("\n")
    hashes = tuple(decode_base64(line, "consistency") for line in lines[:-1])
    if lines[-1] or any(len(value) != DIGEST_BYTES for value in hashes):
        raise BundleError("malformed", f"{path.name}: not one hash per line")
    return hashes


def read_anchors(files: tuple[AnchorFile, ...]) -> tuple[TrustAnchor, ...]:
    """Read the trust anchors' certificates.

    Raises:
        ConfigError: a file is missing or holds no certificate.
    """
    return tuple(_read_anchor(file) for file in files)


def is_emulated(anchors: tuple[TrustAnchor, ...]) -> bool:
    """Return whether our evidence is emulated; all anchors agree on that."""
    return any(anchor.kind is AnchorKind.EMULATED for anchor in anchors)


def device_kinds(anchors: tuple[TrustAnchor, ...]) -> frozenset[DeviceKind]:
    """Return the kinds of devices whose evidence the bundle must contain."""
    return frozenset(kind for kind in DeviceKind if anchors_for(anchors, kind))


def expectations_of(
    config: EnclaveConfig, anchors: tuple[TrustAnchor, ...], manifest: ReleaseManifest
) -> Expectations:
    """Build the expectations that our own bundle must meet before it is served.

    Weaker than a client's: it finds an operator's mistakes before clients do, and
    proves nothing to anybody. What only a client's policy can judge (privilege levels,
    VLEKs, masked chips, statuses that require configuration) passes here.
    """
    return Expectations(
        environment=Environment(config.environment.value),
        roots=anchors,
        required_cpu_tees=frozenset(
            tee.value for tee in Tee if anchors_for(anchors, tee)
        ),
        release_names=frozenset({manifest.name}),
        log=log_expectations(config.log),
        snp=_snp_expectations(anchors, manifest),
        tdx=TdxExpectations(statuses=TDX_STATUSES),
        gpu=GpuExpectations(
            drivers=frozenset(manifest.gpu.drivers),
            vbioses=frozenset(manifest.gpu.vbioses),
            golden=frozenset(manifest.gpu.golden),
        ),
        required_devices={kind.value: 1 for kind in device_kinds(anchors)},
        freshness=FreshnessExpectations(
            max_key_lifetime_s=config.freshness.key_lifetime_s,
            max_evidence_age_s=config.freshness.max_evidence_age_s,
        ),
        transport=frozenset({manifest.transport}),
        digest=SELF_CHECK,
    )


def _snp_expectations(
    anchors: tuple[TrustAnchor, ...], manifest: ReleaseManifest
) -> SnpExpectations:
    nothing = Tcb(bl=0, tee=0, snp=0, ucode=0)
    minimums = {str(product): tcb for product, tcb in manifest.min_tcb.items()}
    # A product that the manifest does not name has no minimum of its own.
    return SnpExpectations(
        min_tcb={
            anchor.product: minimums.get(anchor.product, nothing)
            for anchor in anchors_for(anchors, Tee.SEV_SNP)
            + anchors_for(anchors, Tee.EMULATED_SEV_SNP)
        },
        vmpl=frozenset(range(4)),
        allow_vlek=True,
        allow_masked_chip=True,
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
    kind = AnchorKind(file.kind)
    if file.certificate is None:
        return TrustAnchor.of_vendor(kind, file.product)
    what = "key" if kind is AnchorKind.TPM else "certificate"
    try:
        pem = _read(file.certificate, MAX_PEM_BYTES)
        # A TPM's attestation key is pinned itself: no vendor's root certifies it.
        if kind is AnchorKind.TPM:
            der = load_pem_public_key(pem).public_bytes(
                Encoding.DER, PublicFormat.SubjectPublicKeyInfo
            )
        else:
            der = x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
    except (BundleError, ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"trust_anchors: no {what} in {file.certificate}") from None
    return TrustAnchor.of_certificate(kind, file.product, der)


def _read(path: Path, limit: int) -> bytes:
    try:
        # One byte more than allowed: a longer file is detected without reading all of
        # it.
        data = read_ordinary(path, limit + 1)
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
