"""Tinfoil's evidence: ``/.well-known/tinfoil-attestation`` in its forms 2 and 3.

Pure. Form 2 is a report alone, gzipped; its report data hold the digest of the TLS key
and the HPKE key, and no nonce. A bundle of the Attestation Transparency Cache wraps it
with the VCEK, the release's Sigstore bundle and a certificate. Form 3 binds a nonce,
key material and device evidence by hash, and brings the vendors' collateral along
(docs.tinfoil.sh, "Predicate"; tinfoil-python).
"""

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from curtilage.attest.claims import CpuClaims
from curtilage.attest.encoding.strict_json import malformed, too_large
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.x509.certificates import read_certificate
from curtilage.cli.attest.encodings import decode_der
from curtilage.cli.attest.evidence_files import EvidenceFiles
from curtilage.cli.attest.foreign.intel_answers import collateral_of
from curtilage.cli.attest.foreign.published import (
    FINGERPRINT_BYTES,
    FRESHNESS,
    KEY,
    NONCE_BYTES,
    RELEASE,
    REPORT_DATA_BYTES,
    Carrier,
    Finding,
    Given,
    Judged,
    Published,
    Way,
    checked,
    freshness_of,
    mismatch,
    require_nonce,
    stated,
    unknown,
    unsupported,
)
from curtilage.cli.attest.foreign.reader import Members, read_document
from curtilage.client.errors import UsageError

MAX_REPORT_BYTES: Final = 64 * 1024
MAX_ITEMS: Final = 64
FORM_2: Final = "tinfoil-attestation 2"
FORM_3: Final = "tinfoil-attestation 3"

_PREDICATES: Final = "https://tinfoil.sh/predicate/"
_FORMATS: Final = "https://tinfoil.sh/format/"
_KINDS_2: Final = {
    f"{_PREDICATES}sev-snp-guest/v2": "sev-snp",
    f"{_PREDICATES}tdx-guest/v2": "tdx",
}
_KINDS_3: Final = {
    f"{_FORMATS}sev-snp-report/v1": "sev-snp",
    f"{_FORMATS}tdx-quote/v1": "tdx",
}
_FORM_3: Final = f"{_PREDICATES}attestation/v3"
_ALGORITHM: Final = "https://tinfoil.sh/report-data/v1"
_COLLATERAL: Final = "https://tinfoil.sh/collateral/"
_TLS: Final = "https://tinfoil.sh/key/spki-fp-sha256/v1"
_HPKE: Final = "https://tinfoil.sh/key/x25519-hpke/v1"
_CODE_STATEMENT: Final = f"{_PREDICATES}snp-tdx-multiplatform/v1"
# wbits for zlib's reader of the gzip format (RFC 1952).
_GZIP: Final = 31
_WHERE: Final = "the enclave that answered; a model on a machine behind it is not named"


def read(data: bytes, given: Given) -> Published:
    """Take apart a document.

    Raises:
        RefusedError: ``malformed``, ``too_large``, ``unsupported_version`` or
            ``binding_mismatch``.
    """
    document = read_document(data, "document")
    if document.has("enclaveAttestationReport"):
        return _form_2(document.child("enclaveAttestationReport"), document, given)
    if document.has("format") and document.text("format") == _FORM_3:
        return _form_3(document, given)
    return _form_2(document, None, given)


def _form_2(report: Members, cache: Members | None, given: Given) -> Published:
    name = report.text("format")
    family = _KINDS_2.get(name)
    # Form 1 says the fingerprint in hexadecimal digits, of which none is a key.
    if family is None:
        raise unsupported("tinfoil: a format other than form 2 or 3")
    # Passed over, it would look as if it had been compared.
    if given.nonce is not None:
        raise UsageError("form 2 of this document has no nonce to compare --nonce with")
    own = EvidenceFiles(evidence=_gunzipped(report.base64("body")))
    if cache is not None and cache.has("vcek"):
        own = EvidenceFiles(evidence=own.evidence, vek=cache.base64("vcek"))
    names = None if cache is None else _statement_of_cache(cache)
    spki = None if cache is None else _certified_key(cache)

    def judge(claims: CpuClaims) -> Judged:
        tls, hpke = (
            claims.bound[:FINGERPRINT_BYTES],
            claims.bound[FINGERPRINT_BYTES:],
        )
        if spki is not None and hashlib.sha256(spki).digest() != tls:
            raise mismatch("enclaveCert: its key is not the one in the report data")
        return Judged(
            findings={
                KEY: checked("TLS key digest and HPKE key are the signed report data"),
                FRESHNESS: unknown("this form has no nonce: the report may be old"),
                RELEASE: _release(names, claims),
            },
            way=_way(tls, hpke),
        )

    files = _merged(own, given.files)
    return Published(form=FORM_2, family=family, files=files, bound=None, judge=judge)


def _gunzipped(data: bytes) -> bytes:
    reader = zlib.decompressobj(wbits=_GZIP)
    try:
        report = reader.decompress(data, MAX_REPORT_BYTES)
    except zlib.error:
        raise malformed("body: not gzip") from None
    # A few bytes may decompress to gigabytes.
    if reader.unconsumed_tail:
        raise too_large(f"body: more than {MAX_REPORT_BYTES} bytes")
    # A second member, or bytes after the end, would be passed over silently.
    if not reader.eof or reader.unused_data:
        raise malformed("body: not exactly one whole gzip member")
    return report


def _certified_key(cache: Members) -> bytes | None:
    if not cache.has("enclaveCert"):
        return None
    der = decode_der(cache.text("enclaveCert").encode(), "enclaveCert")
    try:
        return read_certificate(der).key_info
    except ValueError:
        raise malformed("enclaveCert: not a certificate") from None


def _statement_of_cache(cache: Members) -> Members | None:
    if not cache.has("sigstoreBundle"):
        return None
    return _predicate(cache.child("sigstoreBundle"))


def _predicate(bundle: Members) -> Members | None:
    """Return a Sigstore bundle's statement of measurements, if it has one."""
    payload = bundle.child("dsseEnvelope").base64("payload")
    statement = read_document(payload, "statement")
    if statement.text("predicateType") != _CODE_STATEMENT:
        return None
    return statement.child("predicate")


def _release(predicate: Members | None, claims: CpuClaims) -> Finding:
    if predicate is None:
        return unknown("the document has no statement of the release")
    # Of TDX it names the registers of kernel and image; the firmware's depend on the
    # machine and are published elsewhere.
    named = (
        {"launch": predicate.text("snp_measurement")}
        if "launch" in claims.registers
        else {
            name: predicate.child("tdx_measurement").text(name)
            for name in ("rtmr1", "rtmr2")
        }
    )
    if any(claims.registers[name] != value for name, value in named.items()):
        raise RefusedError(
            RefusalCode.ENDORSEMENT_MISMATCH,
            "the release's statement names another measurement",
        )
    return stated(
        "a Sigstore statement names this measurement; its signature and its log entry "
        "are not checked here"
    )


def _form_3(document: Members, given: Given) -> Published:
    challenge, cpu = document.child("challenge"), document.child("cpu_evidence")
    family = _KINDS_3.get(cpu.text("format"))
    if family is None or challenge.text("report_data_algorithm") != _ALGORITHM:
        raise unsupported("tinfoil: CPU evidence or report data of an unknown form")
    nonce = challenge.hexadecimal("nonce", length=NONCE_BYTES)
    require_nonce(nonce, given)
    material = document.base64("crypto_material")
    devices = document.base64("device_evidence")
    parts = (hashlib.sha256(material).digest(), hashlib.sha256(devices).digest())
    bound = hashlib.sha256(_ALGORITHM.encode() + nonce + b"".join(parts)).digest()
    bound = bound.ljust(REPORT_DATA_BYTES, b"\0")
    # Verification compares with what is computed here; said first, a document that
    # contradicts itself is not blamed on the hardware.
    if challenge.hexadecimal("report_data", length=REPORT_DATA_BYTES) != bound:
        raise mismatch("challenge.report_data is not the digest of the document")
    keys = _keys(material)
    found = document.children("collateral", limit=MAX_ITEMS)
    collateral = _by_format(found)
    gpus = _count(devices)
    code = collateral.get("sigstore-code/v1")

    def judge(claims: CpuClaims) -> Judged:
        names = None if code is None else _predicate(code.child("sigstore_bundle"))
        findings = {
            KEY: checked("the report data bind the key material"),
            FRESHNESS: freshness_of(given),
            RELEASE: _release(names, claims),
        }
        if gpus:
            findings["gpu"] = stated(
                f"evidence of {gpus} device(s) is bound by hash; its form is not read "
                "here"
            )
        return Judged(
            findings=findings, way=_way(keys.get(_TLS, b""), keys.get(_HPKE, b""))
        )

    own = EvidenceFiles(
        evidence=cpu.base64("report_base64"), **_endorsements(collateral)
    )
    return Published(
        form=FORM_3,
        family=family,
        files=_merged(own, given.files),
        bound=bound,
        judge=judge,
    )


def _keys(material: bytes) -> dict[str, bytes]:
    """Return the keys of the known forms; another form is passed over."""
    items = read_document(material, "crypto_material").children(
        "items", limit=MAX_ITEMS
    )
    keys: dict[str, bytes] = {}
    for item in items:
        name = item.text("format")
        if name not in {_TLS, _HPKE}:
            continue
        # With two keys of one form, this program and another could each take one.
        if name in keys:
            raise malformed("crypto_material: two keys of one form")
        keys[name] = item.hexadecimal("data", length=FINGERPRINT_BYTES)
    return keys


def _count(devices: bytes) -> int:
    items = read_document(devices, "device_evidence").children("items", limit=MAX_ITEMS)
    return len(items)


def _by_format(items: Sequence[Members]) -> Mapping[str, Members]:
    found: dict[str, Members] = {}
    for item in items:
        name = item.text("format")
        if not name.startswith(_COLLATERAL):
            continue
        name = name.removeprefix(_COLLATERAL)
        # Of two lists or chains, the document would choose which one counts.
        if name in found and name in {"amd-vcek/v1", "amd-crl/v1", "intel-pcs/v1"}:
            raise malformed(f"collateral: {name} twice")
        found[name] = item.child("data")
    return found


def _endorsements(collateral: Mapping[str, Members]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    if (amd := collateral.get("amd-vcek/v1")) is not None:
        files["vek"] = amd.base64("vcek_der_base64")
        files["chain"] = amd.text("cert_chain_pem").encode()
    if (crl := collateral.get("amd-crl/v1")) is not None:
        files["crl"] = crl.base64("crl_der_base64")
    if (intel := collateral.get("intel-pcs/v1")) is not None:
        files["collateral"] = collateral_of(
            intel.children("responses", limit=MAX_ITEMS)
        )
    return files


def _way(tls: bytes, hpke: bytes) -> Way | None:
    # Zeros are where a machine without an HPKE key has none: sealed to them, a question
    # would be readable by everybody.
    if any(hpke):
        return Way(by=Carrier.HPKE, key=hpke.hex(), where=_WHERE)
    if any(tls):
        return Way(by=Carrier.TLS, key=tls.hex(), where=_WHERE)
    return None


def _merged(own: EvidenceFiles, given: EvidenceFiles) -> EvidenceFiles:
    """Return the document's files, replaced by those that the reader named."""
    return EvidenceFiles(
        evidence=own.evidence,
        vek=given.vek or own.vek,
        chain=given.chain or own.chain,
        crl=given.crl or own.crl,
        certs=given.certs or own.certs,
        collateral=given.collateral or own.collateral,
    )
