"""The parsers of ``curtilage.attest`` for Azure's evidence and for TPM quotes.

Where true evidence is needed, it is made anew in every process,
and the input is the damage.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Final

from cryptography.hazmat.primitives.asymmetric import rsa
from fuzz.common import Harness
from fuzz.fuzz_attest import damaged, deployment, refused

from curtilage.attest.azure.hcl import parse_hcl, parse_runtime_data, parse_td_report
from curtilage.attest.azure.verify import AzureRules, verify_azure
from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import AzureEvidence
from curtilage.attest.expectations import SnpExpectations, TdxExpectations
from curtilage.attest.sev_snp.verify import SnpRules
from curtilage.attest.steps import StepLog
from curtilage.attest.tdx.verify import TdxRules
from curtilage.attest.tpm.quote import (
    parse_attest,
    require_quote_key,
    verify_quote,
)
from curtilage_dev.emulated.azure import (
    EmulatedAzure,
    encode_runtime,
    encode_td_report,
    make_azure,
    runtime_object,
)
from curtilage_dev.emulated.tpm import EmulatedTpm, QuoteFields, encode_attest, make_tpm

QUALIFYING: Final = bytes(range(32))
# Any modulus is sufficient if only the text is read.
MODULUS: Final = (1 << 2047) + 0x10001


@cache
def machine() -> EmulatedAzure:
    """Make a machine; takes seconds for the RSA keys."""
    return make_azure(deployment().platform)


@cache
def azure_evidence() -> tuple[AzureEvidence, datetime]:
    """Make true evidence, and say when."""
    now = datetime.now(UTC)
    return machine().evidence(QUALIFYING, now=now), now


@cache
def signer() -> EmulatedTpm:
    """Make a TPM with a key on P-256."""
    return make_tpm(elliptic=True)


def check_hcl_blob(data: bytes) -> None:
    """A blob of which every part is as long as it must be, or a RefusedError."""
    if not refused(parse_hcl, data):
        assert len(parse_hcl(data).report) in {1184, 1024}


def check_runtime_data(data: bytes) -> None:
    """Runtime data that name a key, or a RefusedError."""
    refused(parse_runtime_data, data)


def check_td_report(data: bytes) -> None:
    """A TDREPORT of exactly its length, or a RefusedError."""
    assert refused(parse_td_report, data) or len(data) == 1024


def check_tpm_message(data: bytes) -> None:
    """A quote's message, or a RefusedError."""
    refused(parse_attest, data)


def check_tpm_signature(data: bytes) -> None:
    """A signature by another key is refused, whatever its bytes are."""
    tpm = signer()
    quote = replace(tpm.quote(QuoteFields(extra_data=QUALIFYING)), signature=data)
    try:
        verify_quote(quote, require_quote_key(tpm.key.public_key()), log=StepLog())
    except RefusedError:
        return
    raise AssertionError("a signature out of nowhere holds")


def check_tpm_quote(data: bytes) -> None:
    """A damaged message is refused; an undamaged one is not."""
    tpm = signer()
    true = tpm.quote(QuoteFields(extra_data=QUALIFYING))
    message = damaged(true.message, data)
    key = require_quote_key(tpm.key.public_key())
    try:
        verify_quote(replace(true, message=message), key, log=StepLog())
    except RefusedError:
        assert message != true.message


def check_azure(data: bytes) -> None:
    """A damaged blob is refused, or only its unsigned version is another."""
    true, now = azure_evidence()
    made = machine()
    anchors = (made.anchor(),)
    rules = AzureRules(
        snp=SnpRules(
            anchors=anchors,
            expectations=SnpExpectations(min_tcb={"Genoa": made.platform.tcb}),
            clock_skew_s=60,
            release_min_tcb={},
            measurements=(made.registers(),),
        ),
        tdx=TdxRules(
            anchors=anchors,
            expectations=TdxExpectations(),
            clock_skew_s=60,
            measurements=(),
        ),
    )
    evidence = replace(true, hcl=damaged(true.hcl, data))
    try:
        claims = verify_azure(evidence, rules, now=now, log=StepLog())
    except RefusedError:
        assert evidence != true
    else:
        assert dict(claims.registers) == made.registers()
        assert claims.bound == QUALIFYING


def platform_seeds() -> Iterator[tuple[str, str, bytes]]:
    """Yield true evidence, which is other bytes every time it is made."""
    true, _ = azure_evidence()
    yield "hcl_blob", "true", true.hcl
    yield "tpm_signature", "rsassa", true.quote.signature
    quote = signer().quote(QuoteFields(extra_data=QUALIFYING))
    yield "tpm_signature", "ecdsa", quote.signature


def fixed_seeds() -> Iterator[tuple[str, str, bytes]]:
    """Yield what is the same every time."""
    key = rsa.RSAPublicNumbers(65537, MODULUS).public_key()
    yield "runtime_data", "true", encode_runtime(runtime_object(key))
    yield "td_report", "zeros", encode_td_report(bytes(64), {})
    yield "tpm_message", "true", encode_attest(QuoteFields(extra_data=QUALIFYING))
    for name in ("tpm_quote", "azure"):
        yield name, "nothing", b""
        yield name, "one octet", b"\0\x20\0\x41"


HARNESSES: Final = (
    Harness(name="hcl_blob", check=check_hcl_blob),
    Harness(name="runtime_data", check=check_runtime_data),
    Harness(name="td_report", check=check_td_report, max_bytes=1100),
    Harness(name="tpm_message", check=check_tpm_message, max_bytes=512),
    Harness(name="tpm_signature", check=check_tpm_signature, max_bytes=600),
    Harness(name="tpm_quote", check=check_tpm_quote, max_bytes=64),
    Harness(name="azure", check=check_azure, max_bytes=64),
)
