"""Genuine evidence of the vendors, as it came and tampered with: nothing is misjudged.

The samples are others', and are not committed; without them these tests skip loudly.
What is tampered with here is tampered with in evidence of our own, too: see
``x509/test_certificates.py``, ``tdx/test_quote.py`` and the forms of ``cli/attest``.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509

from curtilage.attest.encoding import der
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import DeviceKind
from curtilage.attest.tdx import quote as layout
from curtilage.attest.tdx.quote import parse_quote
from curtilage.attest.x509.certificates import parse_revocation_list, read_certificate
from curtilage.cli.attest.evidence_files import EvidenceFiles, device_evidence

# AMD's certificates of a chip have the serial number 0, of which the library warns.
pytestmark = pytest.mark.filterwarnings("ignore:Parsed a serial number")

PEM = re.compile(rb"-----BEGIN CERTIFICATE-----([\sA-Za-z0-9+/=]+)-----END")
LIST = re.compile(rb"-----BEGIN X509 CRL-----([\sA-Za-z0-9+/=]+)-----END")
END = b"-----END CERTIFICATE-----\n"


def files(shared: Path) -> list[Path]:
    found = [
        each
        for each in (shared / "evidence").rglob("*")
        # Sigstore's are for its own library, and some of them are broken on purpose.
        if each.is_file() and "sigstore" not in each.parts
    ]
    assert found, "an empty folder proves nothing"
    return found


def texts(file: Path) -> Iterator[bytes]:
    """Return what a file holds, and what base64 in it holds."""
    data = file.read_bytes()
    yield data
    if file.name.endswith("CertChain.txt") and b"-----BEGIN" not in data:
        yield base64.b64decode(data)


def certificates(shared: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for file in files(shared):
        if file.name.startswith("test_azure_ak_"):
            continue  # one is in a buffer of zeros
        for text in texts(file):
            for number, block in enumerate(PEM.findall(text)):
                found[f"{file}, {number}"] = base64.b64decode(block)
        if (
            file.suffix == ".der"
            and "crl" not in file.name
            and "invalid" not in file.name
        ):
            found[str(file)] = file.read_bytes()
    return found


def lists(shared: Path) -> dict[str, bytes]:
    found = {
        str(each): each.read_bytes()
        for each in files(shared)
        if each.suffix == ".der" and "crl" in each.name
    }
    for file in files(shared):
        for number, block in enumerate(LIST.findall(file.read_bytes())):
            found[f"{file}, {number}"] = base64.b64decode(block)
    return found


def unused(encoded: bytes) -> Iterator[bytes]:
    """Return the object with each number of unused bits that a library lets pass.

    The bits are 0, as they must be; who signed is not looked at by a reader.
    """
    signature = list(der.elements(der.only_element(encoded).content))[-1]
    at = len(encoded) - len(signature.content)
    for number in range(1, 8):
        yield encoded[:at] + bytes([number]) + encoded[at + 1 : -1] + b"\0"


def test_every_genuine_certificate_is_read(shared_dir: Path) -> None:
    found = certificates(shared_dir)
    assert len(found) > 40
    for name, encoded in found.items():
        assert read_certificate(encoded).encoded == encoded, name


def test_no_genuine_certificate_is_read_with_unused_bits(shared_dir: Path) -> None:
    for encoded in certificates(shared_dir).values():
        for tampered in unused(encoded):
            assert x509.load_der_x509_certificate(tampered).issuer
            with pytest.raises(ValueError, match="not a certificate"):
                read_certificate(tampered)


def test_genuine_revocation_lists_have_one_encoding_each(shared_dir: Path) -> None:
    found = lists(shared_dir)
    assert found
    for name, encoded in found.items():
        assert parse_revocation_list(encoded, name).signature
        for tampered in unused(encoded):
            assert x509.load_der_x509_crl(tampered).issuer
            with pytest.raises(RefusedError) as refused:
                parse_revocation_list(tampered, name)
            assert refused.value.code is RefusalCode.CRL_INVALID


GPUS = {
    "Hopper": ("hopperAttestationReport.txt", "hopperCertChain.txt"),
    "Blackwell": (
        "blackwell/blackwellAttestationReport.txt",
        "blackwell/blackwellCertChain.txt",
    ),
}
FORMS: dict[str, Callable[[dict[str, str]], bytes]] = {
    "an object": lambda entry: json.dumps(entry).encode(),
    "lines": lambda entry: json.dumps(entry, indent=4).encode(),
    "a list": lambda entry: json.dumps([entry]).encode(),
    "a list in lines": lambda entry: json.dumps([entry], indent=4).encode(),
    "lines of Windows": lambda entry: (
        json.dumps([entry], indent=2).replace("\n", "\r\n").encode() + b"\r\n"
    ),
    "a list inside": lambda entry: json.dumps(
        {"evidences": [entry]}, indent=1
    ).encode(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("gpu", GPUS)
def test_a_genuine_gpus_evidence_is_read_in_every_form(
    shared_dir: Path, gpu: str, form: str
) -> None:
    report, chain = (
        (shared_dir / "evidence/nvidia-gpu" / each).read_bytes() for each in GPUS[gpu]
    )
    plain = device_evidence(
        DeviceKind.NVIDIA_GPU, EvidenceFiles(evidence=report, certs=chain)
    )
    entry = {
        "evidence": base64.b64encode(plain.report).decode(),
        "certificate": chain.decode().strip(),
        "arch": gpu.upper(),
    }
    files = EvidenceFiles(evidence=FORMS[form](entry))
    assert device_evidence(DeviceKind.NVIDIA_GPU, files) == plain
    assert len(plain.chain) == 5


def quotes(shared: Path) -> dict[str, bytes]:
    folder = shared / "evidence/tdx"
    found = {
        each.name if each.name != "quote.bin" else each.parent.name: each.read_bytes()
        for each in folder.rglob("*.bin")
        # SGX's quote, and one with words behind it.
        if "sgx" not in str(each) and "no-level" not in str(each)
    }
    assert len(found) > 5
    return found


def reframed(data: bytes, chain_at: int, chain: bytes) -> bytes:
    """Return a quote with another chain, and every length around it adjusted."""
    quote = parse_quote(data)
    by = len(chain) - (len(quote.encoded) - chain_at)
    changed = bytearray(quote.encoded[:chain_at])
    signature_at = len(quote.signed_part)
    outer_at = signature_at + 4 + layout.SIGNATURE_BYTES + layout.PUBLIC_KEY_BYTES + 2
    for at in (signature_at, outer_at, chain_at - 4):
        length = int.from_bytes(changed[at : at + 4], "little") + by
        changed[at : at + 4] = length.to_bytes(4, "little")
    return bytes(changed) + chain


def code(quote: bytes) -> RefusalCode | None:
    try:
        parse_quote(quote)
    except RefusedError as refusal:
        return refusal.code
    return None


def test_a_genuine_quote_with_a_fault_of_framing_is_malformed(shared_dir: Path) -> None:
    for name, data in quotes(shared_dir).items():
        quote = parse_quote(data)
        chain_at = len(quote.encoded) - len(quote.pck_chain)
        chain = quote.pck_chain
        assert parse_quote(reframed(data, chain_at, chain)) == quote, name
        faults = {
            "cut": quote.encoded[:-1],
            "cut in the report": quote.encoded[:300],
            "more behind it": quote.encoded + b"\1",
            "zeros in the chain": reframed(
                data, chain_at, chain.replace(END, END + bytes(8), 1)
            ),
            "zeros behind the chain": reframed(data, chain_at, chain + bytes(8)),
            "words in the chain": reframed(
                data, chain_at, chain.replace(END, END + b"words\n", 1)
            ),
            "no chain": reframed(data, chain_at, b""),
            "half a chain": reframed(data, chain_at, chain[: len(chain) // 2]),
            "another version": bytes([data[0] ^ 1]) + data[1:],
        }
        lengths = {
            "signature": (len(quote.signed_part), 4),
            "chain": (chain_at - 4, 4),
            "kind of chain": (chain_at - 6, 2),
            "authentication data": (chain_at - 40, 2),
        }
        for what, (at, width) in lengths.items():
            for by in (-1, 1):
                number = int.from_bytes(data[at : at + width], "little") + by
                changed = number.to_bytes(width, "little")
                faults[f"{what} {by}"] = data[:at] + changed + data[at + width :]
        for what, tampered in faults.items():
            assert code(tampered) is RefusalCode.MALFORMED, (name, what)
