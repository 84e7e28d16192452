"""Flags and help of ``curtilage attest``."""

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from curtilage.cli.options import add_relay_flags
from curtilage.cli.terminal import Commands, add_command

if TYPE_CHECKING:
    import argparse

FILES: Final = {
    "evidence": "the report, quote or document, or an agent's JSON",
    "vek": "SEV-SNP: the VCEK or VLEK certificate",
    "chain": "SEV-SNP: ASK or ASVK, and ARK, in any order",
    "crl": "SEV-SNP: the ARK's revocation list",
    "collateral": "TDX: QuoteCollateralV3 as JSON",
    "certs": "NVIDIA: the GPU's certificates, in one file or several; SEV-SNP: the "
    "host's table of them",
    "hcl": "Azure: the HCLA blob, where --evidence is not JSON",
    "td-quote": "Azure with TDX: the TD quote, likewise",
    "quote-message": "Azure, TPM: the quote's TPMS_ATTEST, likewise",
    "quote-signature": "Azure, TPM: its signature, likewise",
    "pcrs": "Azure, TPM: the register values, likewise",
    "ak": "TPM: the attestation key, likewise",
}
_SEVERAL: Final = MappingProxyType({"nargs": "+", "action": "extend"})
# Copied from ``curtilage.attest.evidence``; a test compares.
TEES: Final = (
    "sev-snp",
    "tdx",
    "nitro",
    "azure-snp",
    "azure-tdx",
    "tpm",
    "emulated-sev-snp",
    "emulated-tdx",
    "emulated-nitro",
    "emulated-azure-snp",
    "nvidia-gpu",
    "emulated-nvidia-gpu",
)


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command and its subcommands."""
    parser = add_command(
        commands,
        "attest",
        summary="verify an enclave's evidence",
        text="Work with attestation evidence: show who vouches for an enclave, verify\n"
        "a bundle, or one piece of evidence. Vendors are never contacted.",
        example="curtilage attest verify --bundle bundle.json --policy clinic.yaml",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    check = add_command(
        actions,
        "verify",
        summary="print each numbered check of a bundle",
        text="Verify a bundle against a policy, offline, and print each check with "
        "pass or fail.\nExit 1 if it is refused.",
        example="curtilage attest verify --bundle bundle.json --policy clinic.yaml "
        "--at 2026-11-21T12:00:00Z",
    )
    check.add_argument("--bundle", required=True, metavar="FILE")
    check.add_argument("--policy", required=True, metavar="FILE")
    check.add_argument(
        "--at", metavar="RFC3339", help="verify as of this time (default: now)"
    )
    check.add_argument("--json", action="store_true", help="one JSON object")

    show = add_command(
        actions,
        "show",
        summary="print who vouches for an enclave, and until when",
        text="Fetch the enclave's evidence through the relay, or read it from a file,\n"
        "verify it and print who vouches for what as a tree, with expiry times.\n"
        "No question is sent. Exit 1 if it is refused; then each check is printed.",
        example="curtilage attest show --policy clinic.yaml "
        "--relay https://relay.example/ward\n"
        "curtilage attest show --policy clinic.yaml --bundle bundle.json --json",
    )
    show.add_argument(
        "--bundle", metavar="FILE", help="a bundle instead of the live enclave's"
    )
    show.add_argument(
        "--at", metavar="RFC3339", help="with --bundle: as of this time (default: now)"
    )
    show.add_argument("--json", action="store_true", help="one JSON object")
    add_relay_flags(show)
    _add_verify_evidence(actions)


def _add_verify_evidence(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        actions,
        "verify-evidence",
        summary="verify one piece of evidence by itself",
        text="Verify one report, quote or document against a policy, offline.\n"
        "Releases, log and key are not checked: the measurement must be one of the\n"
        "policy's own `measurements`. A file is raw bytes (DER too), PEM, base64,\n"
        "hexadecimal or JSON. Exit 1 if it is refused.",
        example="curtilage attest verify-evidence --tee sev-snp --evidence report.bin\n"
        "  --vek vcek.der --chain cert_chain.pem --crl crl.der\n"
        "  --policy clinic.yaml --at 2026-11-21T12:00:00Z --json",
    )
    parser.add_argument("--tee", required=True, choices=TEES, metavar="KIND")
    for name, text in FILES.items():
        parser.add_argument(
            f"--{name}",
            required=name == "evidence",
            metavar="FILE",
            help=text,
            **_SEVERAL if name == "certs" else {},
        )
    parser.add_argument(
        "--report-data",
        metavar="HEX",
        help="what the evidence must sign: report data, extra data or nonce",
    )
    parser.add_argument("--policy", required=True, metavar="FILE")
    parser.add_argument(
        "--at", metavar="RFC3339", help="verify as of this time (default: now)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
