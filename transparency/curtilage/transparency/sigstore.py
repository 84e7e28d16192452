"""Verifies a publisher's Sigstore bundle for a manifest; the only ``sigstore`` import.

It works offline: the trusted root is a local file, and no key, list or time is fetched.
The library (the extra ``sigstore``) is imported when it is first needed. In addition to
its checks, this module refuses a bundle with a chain of certificates (the formats
before 0.3), with a bare key instead of a certificate, or with an in-toto statement that
has an unknown field.
"""

import hashlib
import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from curtilage.attest.encoding.strict_json import malformed, parse_object, too_large
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.transparency.errors import FileError, InputError, TransparencyError
from curtilage.transparency.files import open_ordinary

if TYPE_CHECKING:
    from sigstore.models import Bundle, TrustedRoot
    from sigstore.verify.policy import VerificationPolicy

MAX_BUNDLE_BYTES: Final = 4 * 1024 * 1024
MAX_SUBJECTS: Final = 64
IN_TOTO: Final = "application/vnd.in-toto+json"
STATEMENT: Final = "https://in-toto.io/Statement/v1"
MEDIA_TYPES: Final = frozenset(
    {
        "application/vnd.dev.sigstore.bundle.v0.3+json",
        "application/vnd.dev.sigstore.bundle+json;version=0.3",
    }
)
_STATEMENT_KEYS: Final = frozenset({"_type", "subject", "predicateType", "predicate"})
_SUBJECT_KEYS: Final = frozenset({"name", "digest"})
_MATERIAL_KEYS: Final = frozenset(
    {"certificate", "tlogEntries", "timestampVerificationData"}
)
_MAX_OPENED: Final = 8192
_TEXT_LIMIT: Final = 4096
MISSING: Final = (
    "Sigstore bundles are verified by an extra: pip install 'curtilage[sigstore]'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    """The required signer.

    Attributes:
        identity: the certificate's subject alternative name, exactly: for a workflow
            its reference, such as
            ``https://github.com/o/r/.github/workflows/release.yml@refs/tags/v1.2.0``.
        issuer: the authority for that identity, exactly.
    """

    identity: str
    issuer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherSignature:
    """A bundle that verified.

    Attributes:
        identity: the signer.
        issuer: the authority for that identity.
        statement: the predicate's type if an in-toto statement was signed, "" if the
            manifest itself was.
    """

    identity: str
    issuer: str
    statement: str


def verify_bundle(
    manifest: bytes, bundle: bytes, trusted_root: Path, publisher: Publisher
) -> PublisherSignature:
    """Verify a publisher's signature of a manifest by its Sigstore bundle.

    Args:
        manifest: the exact bytes.
        bundle: Sigstore bundle, JSON, version 0.3.
        trusted_root: Sigstore's ``trusted_root.json``.
        publisher: the required signer.

    Raises:
        RefusedError: ``malformed``, ``too_large``, ``unsupported_version``,
            ``policy_invalid`` (the trusted root is invalid), ``endorsement_mismatch``
            (another identity), ``chain_invalid``, ``bad_signature`` for everything
            else that is invalid.
        TransparencyError: the extra is not installed.
        InputError: no identity, or no issuer.
    """
    if not publisher.identity or not publisher.issuer:
        raise InputError("a Sigstore bundle needs an expected identity and issuer")
    enveloped = _require_shape(bundle)
    # First of all imports: it fails here if the library is not installed.
    root = _root(trusted_root)
    from sigstore.models import Bundle  # noqa: PLC0415 - an extra
    from sigstore.verify import Verifier  # noqa: PLC0415 - an extra

    try:
        parsed = Bundle.from_json(bundle)
    except Exception:  # noqa: BLE001 - as for the root
        raise malformed("bundle: the library cannot read it") from None
    policy = _policy(parsed, publisher)
    # The identity comes first, to be refused with its own code. This check is not
    # sufficient by itself: the identity is whatever the certificate says, so the
    # verifier applies the same policy again once it has built the chain to the root.
    try:
        policy.verify(parsed.signing_certificate)
    except Exception:  # noqa: BLE001 - as for the root
        raise RefusedError(
            RefusalCode.ENDORSEMENT_MISMATCH, "another identity signed"
        ) from None
    statement = ""
    if enveloped:
        with _refused():
            verifier = Verifier(trusted_root=root)
            kind, payload = verifier.verify_dsse(parsed, policy)
        # The signature is over a statement, and says nothing about the manifest until
        # the manifest is found among its subjects.
        statement = statement_about(kind, payload, manifest)
    else:
        with _refused():
            verifier = Verifier(trusted_root=root)
            verifier.verify_artifact(manifest, parsed, policy)
    return PublisherSignature(
        identity=publisher.identity,
        issuer=publisher.issuer,
        statement=statement,
    )


def _require_shape(data: bytes) -> bool:
    """Refuse older formats and bare keys before the library reads the bundle.

    Returns:
        Whether the signature is in an envelope around a statement.
    """
    if len(data) > MAX_BUNDLE_BYTES:
        raise too_large(f"bundle: more than {MAX_BUNDLE_BYTES} bytes")
    try:
        parsed: object = json.loads(data, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise malformed("bundle: not JSON") from None
    if not isinstance(parsed, dict):
        raise malformed("bundle: not an object")
    value = cast("dict[str, object]", parsed)
    if value.get("mediaType") not in MEDIA_TYPES:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_VERSION, "bundle: not of version 0.3"
        )
    material = value.get("verificationMaterial")
    if not isinstance(material, dict) or "certificate" not in material:
        raise malformed("bundle: no certificate")
    if set(cast("dict[str, object]", material)) - _MATERIAL_KEYS:
        raise malformed("bundle: a chain of certificates, a key, or something unknown")
    signed = set(value) - {"mediaType", "verificationMaterial"}
    if signed not in ({"messageSignature"}, {"dsseEnvelope"}):
        raise malformed("bundle: not exactly one signature or envelope")
    return signed == {"dsseEnvelope"}


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    # If a key is repeated, the library might read the value that is not checked here.
    value = dict(pairs)
    if len(value) != len(pairs):
        raise malformed("bundle: duplicate key")
    return value


def _root(path: Path) -> "TrustedRoot":
    try:
        from sigstore.models import TrustedRoot  # noqa: PLC0415 - an extra
    except ImportError:
        raise TransparencyError(MISSING) from None
    try:
        # The library opens any path; reading a pipe would never end.
        open_ordinary(path).close()
        return TrustedRoot.from_file(str(path))
    except OSError as failure:
        raise FileError(f"{path}: {failure.strerror}") from None
    # Its errors are of many kinds (including pydantic's) and quote the input.
    except Exception:  # noqa: BLE001 - see above
        raise RefusedError(
            RefusalCode.POLICY_INVALID, "the trusted root is invalid"
        ) from None


@contextmanager
def _refused() -> Generator[None]:
    """Convert every error of the library to a refusal."""
    from sigstore.errors import CertValidationError  # noqa: PLC0415 - an extra

    try:
        yield
    except CertValidationError:
        raise RefusedError(
            RefusalCode.CHAIN_INVALID, "the certificate does not lead to the root"
        ) from None
    except Exception:  # noqa: BLE001 - as for the root
        raise RefusedError(
            RefusalCode.BAD_SIGNATURE, "the bundle does not verify"
        ) from None


def _policy(bundle: "Bundle", publisher: Publisher) -> "VerificationPolicy":
    """Return the rule for this identity and this issuer.

    The issuer's newer extension is DER, the older one raw text; a certificate with the
    newer one is compared with that.
    """
    from sigstore.verify import policy  # noqa: PLC0415 - an extra

    extensions = bundle.signing_certificate.extensions
    newer = any(each.oid == policy.OIDCIssuerV2.oid for each in extensions)
    issuer = policy.OIDCIssuerV2 if newer else policy.OIDCIssuer
    return policy.AllOf(
        [policy.Identity(identity=publisher.identity), issuer(publisher.issuer)]
    )


def statement_about(kind: str, payload: bytes, manifest: bytes) -> str:
    """Return the predicate of a verified envelope that is about this manifest.

    Args:
        kind: the payload's type as signed.
        payload: the in-toto statement.
        manifest: its SHA-256 must be one of the subjects.

    Returns:
        The predicate's type.

    Raises:
        RefusedError: ``malformed``: a field is missing or unknown;
            ``unsupported_version``; ``bad_signature``: about something else.
    """
    if kind != IN_TOTO:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_VERSION, "envelope: not an in-toto statement"
        )
    fields = parse_object(
        payload,
        where="statement",
        limit_bytes=MAX_BUNDLE_BYTES,
        max_opened=_MAX_OPENED,
    )
    fields.require(_STATEMENT_KEYS)
    if fields.text("_type", limit=_TEXT_LIMIT) != STATEMENT:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_VERSION, "statement: not of version 1"
        )
    fields.child("predicate")
    digest = hashlib.sha256(manifest).hexdigest()
    found: list[str] = []
    for subject in fields.children("subject", limit=MAX_SUBJECTS):
        subject.require(_SUBJECT_KEYS)
        subject.text("name", limit=_TEXT_LIMIT)
        digests = subject.child("digest")
        found.append(digests.text("sha256", limit=_TEXT_LIMIT))
    if digest not in found:
        raise RefusedError(
            RefusalCode.BAD_SIGNATURE, "the statement is about something else"
        )
    return fields.text("predicateType", limit=_TEXT_LIMIT)
