"""dstack's evidence, as Phala publishes it: quote with event log, report, ACI.

Pure. Three forms: the answer of the machine's own agent (a quote over 64 bytes that
the application chose), the report of the model server (``signed_report``), and the
report of a gateway, "ACI", whose report data bind a set of keys (dstack's
documentation; private-ai-gateway).
"""

import hashlib
import json
import re
from typing import Final, cast

from curtilage.attest.claims import CpuClaims
from curtilage.attest.encoding.strict_json import malformed
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.cli.attest.foreign import signed_report
from curtilage.cli.attest.foreign.application import (
    application_of,
    quote_files,
)
from curtilage.cli.attest.foreign.published import (
    FRESHNESS,
    KEY,
    NONCE_BYTES,
    RECEIPTS,
    REPORT_DATA_BYTES,
    Carrier,
    Given,
    Judged,
    Published,
    Way,
    checked,
    freshness_of,
    mismatch,
    stated,
    unknown,
    unsupported,
)
from curtilage.cli.attest.foreign.reader import Members, read_document
from curtilage.client.errors import UsageError

FORM_QUOTE: Final = "dstack quote"
FORM_ACI: Final = "dstack aci/1"
MAX_KEYS: Final = 64

_API: Final = "aci/1"
_PURPOSE: Final = "aci.report_data.v1"
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_SPKI: Final = re.compile(r"[0-9a-f]{64}")
_OLDER: Final = "workload_id"
_WHERE: Final = "the gateway; a model behind it has evidence of its own"
_NO_KEY: Final = "no TLS key is in the set of keys that the evidence binds"
_APPLICATION: Final = (
    "the application chose the report data, and only its maker can say what they bind"
)


def read(data: bytes, given: Given) -> Published:
    """Take apart a document of any of the three forms.

    Raises:
        RefusedError: ``malformed``, ``too_large``, ``unsupported_version``, ``stale``
            or ``binding_mismatch``.
    """
    document = read_document(data, "document")
    if document.has("signing_address"):
        _refuse_report_data(given)
        return signed_report.read_report(document, given, service="dstack")
    return (
        _aci(document, given) if document.has("attestation") else _raw(document, given)
    )


def _raw(document: Members, given: Given) -> Published:
    application = application_of(document)
    # A document's own ``report_data`` is what it says, and shows nothing.
    bound = given.report_data
    # Passed over, it would look as if it had been compared.
    if given.nonce is not None:
        raise UsageError("a plain quote binds no nonce of itself: use --report-data")

    def judge(claims: CpuClaims) -> Judged:
        findings = application.findings(claims)
        findings[KEY] = unknown(_APPLICATION)
        findings[FRESHNESS] = (
            unknown("nothing to compare the report data with (no --report-data)")
            if bound is None
            else stated(
                "the report data are those you gave; a nonce in them is yours to know"
            )
        )
        return Judged(findings=findings, no_way=_APPLICATION)

    return Published(
        form=FORM_QUOTE,
        family="tdx",
        files=quote_files(document.hexadecimal("quote"), given),
        bound=bound,
        judge=judge,
    )


def _aci(document: Members, given: Given) -> Published:
    if document.text("api_version") != _API:
        raise unsupported("aci: another api_version")
    _refuse_report_data(given)
    attestation = document.child("attestation")
    if attestation.text("tee_type") != "tdx":
        raise unsupported("aci: of this form, only TDX is read")
    keyset = attestation.child("workload_keyset")
    if keyset.has(_OLDER) or attestation.has(_OLDER):
        raise unsupported("aci: the older form, with a workload_id")
    if _seconds(keyset) <= given.at.timestamp():
        raise RefusedError(RefusalCode.STALE, "workload_keyset: past its not_after")
    bound = _statement(document, attestation, given)
    evidence = attestation.child("evidence")
    application = application_of(evidence)
    pins = _pins(keyset)

    def judge(claims: CpuClaims) -> Judged:
        findings = application.findings(claims)
        findings[KEY] = checked("the report data bind the whole set of keys")
        findings[FRESHNESS] = (
            unknown("made without a nonce: the report may be old")
            if given.nonce is None
            else freshness_of(given)
        )
        if keyset.has("receipt_signing_keys"):
            findings[RECEIPTS] = stated(
                "keys that sign receipts are bound; receipts of this form are not read"
            )
        way = Way(by=Carrier.TLS, key=" ".join(pins), where=_WHERE) if pins else None
        return Judged(findings=findings, way=way, no_way="" if pins else _NO_KEY)

    return Published(
        form=FORM_ACI,
        family="tdx",
        files=quote_files(evidence.hexadecimal("quote"), given),
        bound=bound,
        judge=judge,
    )


def _refuse_report_data(given: Given) -> None:
    # Passed over, it would look as if it had been compared.
    if given.report_data is not None:
        raise UsageError("--report-data is for a plain quote; this form takes --nonce")


def _statement(document: Members, attestation: Members, given: Given) -> bytes:
    """Return the report data that name this set of keys and the reader's nonce."""
    digest = document.text("workload_keyset_digest")
    if not _DIGEST.fullmatch(digest):
        raise malformed("workload_keyset_digest: not sha256: and 64 digits")
    # Only what is hashed is bound: the keys are read from the same object.
    if _digest_of(attestation.value("workload_keyset")) != digest:
        raise mismatch("workload_keyset: it has another digest")
    if given.nonce is not None and len(given.nonce) != NONCE_BYTES:
        raise UsageError(f"--nonce: an ACI nonce has {NONCE_BYTES} bytes")
    statement = {
        "keyset_digest": digest,
        "nonce": None if given.nonce is None else given.nonce.hex(),
        "purpose": _PURPOSE,
    }
    text = json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(text).digest().ljust(REPORT_DATA_BYTES, b"\0")


def _seconds(keyset: Members) -> int:
    value = keyset.value("not_after")
    if not isinstance(value, int) or isinstance(value, bool):
        raise malformed("workload_keyset.not_after: not a number of seconds")
    return value


def _pins(keyset: Members) -> tuple[str, ...]:
    if not keyset.has("tls_public_keys"):
        return ()
    keys = keyset.children("tls_public_keys", limit=MAX_KEYS)
    pins = tuple(key.text("spki_sha256").removeprefix("sha256:") for key in keys)
    if not all(map(_SPKI.fullmatch, pins)):
        raise malformed("tls_public_keys: not SHA-256 in 64 digits")
    return pins


def _digest_of(value: object) -> str:
    """Return the digest of a value in canonical form (RFC 8785).

    For ASCII text and integers, which is all that such sets hold, that form is the one
    of Python's encoder. For anything else it would not be, so that is refused.
    """
    _require_plain(value)
    text = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


def _require_plain(value: object) -> None:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            found = cast("dict[str, object]", each)
            waiting += [*found, *found.values()]
        elif isinstance(each, list):
            waiting += cast("list[object]", each)
        elif not _is_plain(each):
            raise malformed("workload_keyset: neither ASCII text nor integers")


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return value.isascii()
    # JavaScript's numbers, which RFC 8785 writes, are exact up to 2**53.
    return value is None or (isinstance(value, int) and abs(value) < 2**53)
