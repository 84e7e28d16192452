"""The parsers of ``curtilage.attest``: evidence that anybody may send.

A harness that needs true evidence makes it anew in every process, and
its input is the damage.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import Final

from fuzz.common import Harness, hold

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import (
    AzureEvidence,
    CpuEvidence,
    DeviceKind,
    GpuEvidence,
    NitroEvidence,
    SnpEvidence,
    TdxEvidence,
    Tee,
    TpmEvidence,
    TpmQuote,
)
from curtilage.attest.evidence_json import (
    encode_bundle,
    encode_cpu_evidence,
    encode_device_evidence,
    parse_bundle,
    parse_cpu_evidence,
    parse_device_evidence,
)
from curtilage.attest.log.manifest import parse_manifest
from curtilage.attest.log.note import TrustedLog, verify_proof
from curtilage.attest.sandbox import (
    encode_statement,
    parse_statement,
    require_held,
)
from curtilage.attest.sev_snp.certificates import parse_certificate
from curtilage.attest.sev_snp.report import parse_report
from curtilage.attest.steps import UNFORESEEN
from curtilage.attest.verify import verify
from curtilage.attest.x509.certificates import parse_revocation_list
from curtilage_dev.deployment import Deployment, make_deployment
from curtilage_dev.emulated.snp_pki import generate_root_keys, make_platform
from support.sandboxes import HELD, statement


@cache
def deployment() -> Deployment:
    """Make true evidence; takes seconds for the RSA keys."""
    now = datetime.now(UTC)
    return make_deployment(make_platform(generate_root_keys(), now=now), now=now)


def refused(parse: Callable[[bytes], object], data: bytes) -> bool:
    """Return whether the input is refused; anything else escapes."""
    try:
        parse(data)
    except RefusedError:
        return True
    return False


def damaged(data: bytes, damage: bytes) -> bytes:
    """Change a text: each step is where (2 bytes), what, and with what."""
    changed = bytearray(data)
    for start in range(0, min(len(damage) - 3, 40), 4):
        where = int.from_bytes(damage[start : start + 2], "big") % (len(changed) + 1)
        what, octet = damage[start + 2 : start + 4]
        if what % 4 == 0:
            changed[where : where + 1] = bytes([octet])
        elif what % 4 == 1:
            changed.insert(where, octet)
        elif what % 4 == 2:
            del changed[where : where + octet]
        else:
            del changed[where:]
    return bytes(changed)


def check_bundle(data: bytes) -> None:
    """A bundle or a RefusedError; encoded again, the same bundle."""
    if not refused(parse_bundle, data):
        bundle = parse_bundle(data)
        assert parse_bundle(encode_bundle(bundle)) == bundle


def check_cpu_evidence(data: bytes) -> None:
    """Evidence of a processor or a RefusedError; encoded again, the same evidence."""
    if not refused(parse_cpu_evidence, data):
        evidence = parse_cpu_evidence(data)
        assert parse_cpu_evidence(encode_cpu_evidence(evidence)) == evidence


def check_device_evidence(data: bytes) -> None:
    """Evidence of a device or a RefusedError; encoded again, the same evidence."""
    if not refused(parse_device_evidence, data):
        evidence = parse_device_evidence(data)
        assert parse_device_evidence(encode_device_evidence(evidence)) == evidence


def fixed_evidence_seeds() -> Iterator[tuple[str, str, bytes]]:
    """Yield one small piece of evidence of every kind."""
    snp = SnpEvidence(tee=Tee.SEV_SNP, report=b"r", vek=b"v", ask=b"a", crl=b"c")
    tdx = TdxEvidence(tee=Tee.TDX, quote=b"q", collateral=b"{}")
    quote = TpmQuote(message=b"m", signature=b"s", pcrs=((0, bytes(32)), (11, b"")))
    kinds: tuple[CpuEvidence, ...] = (
        snp,
        tdx,
        NitroEvidence(tee=Tee.NITRO, document=b"d"),
        AzureEvidence(tee=Tee.AZURE_SNP, hcl=b"h", hardware=snp, quote=quote),
        AzureEvidence(tee=Tee.AZURE_TDX, hcl=b"h", hardware=tdx, quote=quote),
        TpmEvidence(tee=Tee.TPM, quote=quote, ak=b"k"),
    )
    for evidence in kinds:
        yield "cpu_evidence", evidence.tee.value, encode_cpu_evidence(evidence)
    nitro = NitroEvidence(tee=Tee.NITRO, document=b"d", crls=(b"c",))
    yield "cpu_evidence", "nitro stapled", encode_cpu_evidence(nitro)
    for kind in DeviceKind:
        gpu = GpuEvidence(kind=kind, report=b"r", chain=(b"1", b"2"))
        yield "device_evidence", kind.value, encode_device_evidence(gpu)
        gpu = replace(gpu, ocsp=(b"o",))
        yield "device_evidence", f"{kind} stapled", encode_device_evidence(gpu)
    stated = statement()
    yield "sandbox", "closed", encode_statement(stated)
    opened = replace(HELD.processes[0], succeeded=("mkdir",))
    result = replace(HELD, landlock_abi=0, processes=(opened,))
    yield "sandbox", "open", encode_statement(replace(stated, result=result))


def check_report(data: bytes) -> None:
    """A report of exactly its length, or a RefusedError."""
    assert refused(parse_report, data) or len(data) == 1184


def _certificate(kind: str, data: bytes) -> object:
    return parse_certificate(data, kind)


def check_certificate(data: bytes) -> None:
    """A certificate, or a RefusedError."""
    for kind in ("VEK", "ASK"):
        refused(partial(_certificate, kind), data)


def check_revocation_list(data: bytes) -> None:
    """A revocation list, or a RefusedError."""
    refused(partial(parse_revocation_list, name="CRL"), data)


def check_sandbox(data: bytes) -> None:
    """A statement in its one spelling that holds or does not, or a RefusedError."""
    if not refused(parse_statement, data):
        stated = parse_statement(data)
        assert encode_statement(stated) == data
        try:
            require_held(stated.result)
        except RefusedError as error:
            hold(error.code is RefusalCode.SANDBOX_OPEN)


def check_manifest(data: bytes) -> None:
    """A manifest, or a RefusedError."""
    refused(parse_manifest, data)


def check_proof(data: bytes) -> None:
    """A damaged proof is refused; an undamaged one is not."""
    made = deployment()
    log = TrustedLog(
        origin=made.log.signer.name,
        key=made.log.signer.public,
        witnesses=tuple(w.public for w in made.log.witnesses),
    )
    true = made.bundle().release.proof.encode()
    text = damaged(true, data)
    parse = partial(verify_proof, leaf=made.manifest, log=log)
    try:
        parse(text.decode("utf-8", errors="replace"))
    except RefusedError:
        assert text != true


def cpu_report(bundle: bytes) -> bytes:
    """Return the report in a bundle of emulated SEV-SNP."""
    cpu = parse_bundle(bundle).cpu
    assert isinstance(cpu, SnpEvidence)
    return cpu.report


def check_verify(data: bytes) -> None:
    """Damaged evidence is refused for a foreseen reason, or is the same evidence."""
    made = deployment()
    true = encode_bundle(made.bundle())
    now = datetime.now(UTC)
    found = damaged(true, data)
    try:
        verify(found, made.expectations(), now=now)
    except RefusedError as error:
        # An unforeseen exception is a refusal for a client, a bug here.
        hold(error.detail != UNFORESEEN)
    else:
        assert cpu_report(found) == cpu_report(true)


HARNESSES: Final = (
    Harness(name="bundle", check=check_bundle, max_bytes=16384),
    Harness(name="cpu_evidence", check=check_cpu_evidence, max_bytes=16384),
    Harness(name="device_evidence", check=check_device_evidence, max_bytes=16384),
    Harness(name="report", check=check_report, max_bytes=2048),
    Harness(name="certificate", check=check_certificate, max_bytes=4096),
    Harness(name="revocation_list", check=check_revocation_list, max_bytes=4096),
    Harness(name="manifest", check=check_manifest),
    Harness(name="sandbox", check=check_sandbox),
    Harness(name="proof", check=check_proof, max_bytes=64),
    Harness(name="verify", check=check_verify, max_bytes=64),
)
