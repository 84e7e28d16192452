"""Declarations of ``curtilage attest``."""

from typing import Final

from curtilage.cli.declared import Choice, Run, command, group
from curtilage.cli.options import JSON, RELAY

# Copied from ``curtilage.attest.evidence``; a test compares.
TEES: Final = (
    *("sev-snp", "tdx", "nitro", "azure-snp", "azure-tdx", "tpm"),
    *("emulated-sev-snp", "emulated-tdx", "emulated-nitro", "emulated-azure-snp"),
    *("nvidia-gpu", "emulated-nvidia-gpu"),
)
# Copied from ``curtilage.cli.attest.foreign``; a test compares.
SOURCES: Final = ("tinfoil", "privatemode", "dstack", "near")
PARTS: Final = ("gateway", "model")


@group("attest")
def attest() -> None:
    """Verify an enclave's evidence.

    Work with attestation evidence: show who vouches for an enclave, verify a bundle, or
    one piece of evidence. Vendors are never contacted.

    Example:
        curtilage attest verify --bundle bundle.json --policy clinic.yaml
    """


@command("verify", attest, JSON, one_of=("--bundle", "--export"))
def attest_verify() -> Run:
    r"""Print each numbered check of a bundle.

    Verify a bundle against a policy, offline, and print each check with pass or fail.
    An export brings its policy along; with --as-made its verdict is computed again.
    Exit 1 if it is refused.

    Options:
        --bundle FILE: needs --policy
        --export FILE: a file of `curtilage attest export`
        --policy FILE: with --export: yours instead of the file's
        --at RFC3339: verify as of this time (default: now)
        --as-made: with --export: as of its time; its verdict must be the same

    Example:
        curtilage attest verify --bundle bundle.json --policy clinic.yaml \
          --at 2026-11-21T12:00:00Z
        curtilage attest verify --export verdict.json --as-made
    """
    from curtilage.cli.attest.verify_either import run

    return run


@command("show", attest, JSON, RELAY)
def attest_show() -> Run:
    """Print who vouches for an enclave, and until when.

    Fetch the enclave's evidence through the relay, or read it from a file, verify it
    and print who vouches for what as a tree, with expiry times. No question is sent.
    Exit 1 if it is refused; then each check is printed.

    Options:
        --bundle FILE: a bundle instead of the live enclave's
        --at RFC3339: with --bundle: as of this time (default: now)

    Example:
        curtilage attest show --policy clinic.yaml --relay https://relay.example/ward
        curtilage attest show --policy clinic.yaml --bundle bundle.json --json
    """
    from curtilage.cli.attest.show import run

    return run


@command("export", attest, RELAY)
def attest_export() -> Run:
    r"""Write a verdict with all that it follows from.

    Fetch the enclave's evidence through the relay, or read it from a file, verify it
    and write one JSON file: the bundle with endorsements, manifest and log proof, the
    policy with its digest, and the verdict. It is written even if the evidence is
    refused; then exit 1. The contents of the policy's lists are left out by default:
    they may be names.

    Options:
        --bundle FILE: a bundle instead of the live enclave's
        --node ID: of a pool, which node
        --out FILE: (default: standard output)
        --attachments: with the contents of the policy's lists
        --at RFC3339: with --bundle: as of this time (default: now)

    Example:
        curtilage attest export --policy clinic.yaml \
          --relay https://relay.example/ward --out verdict.json
    """
    from curtilage.cli.attest.export import run

    return run


@command("verify-evidence", attest, JSON, types={"KIND": Choice(TEES)})
def attest_verify_evidence() -> Run:
    r"""Verify one piece of evidence by itself.

    Verify one report, quote or document against a policy, offline. Releases, log and
    key are not checked: the measurement must be one of the policy's own `measurements`.
    A file is raw bytes (DER too), PEM, base64, hexadecimal or JSON. Exit 1 if it is
    refused.

    Options:
        --tee KIND, required
        --evidence FILE, required: the report, quote or document, or an agent's JSON
        --vek FILE: SEV-SNP: the VCEK or VLEK certificate
        --chain FILE: SEV-SNP: ASK or ASVK, and ARK, in any order
        --crl FILE: SEV-SNP: the ARK's revocation list
        --collateral FILE: TDX: QuoteCollateralV3 as JSON
        --certs FILE+: NVIDIA: the GPU's certificates, in one file or several; SEV-SNP:
            the host's table of them
        --hcl FILE: Azure: the HCLA blob, where --evidence is not JSON
        --td-quote FILE: Azure with TDX: the TD quote, likewise
        --quote-message FILE: Azure, TPM: the quote's TPMS_ATTEST, likewise
        --quote-signature FILE: Azure, TPM: its signature, likewise
        --pcrs FILE: Azure, TPM: the register values, likewise
        --ak FILE: TPM: the attestation key, likewise
        --report-data HEX: what the evidence must sign: report data, extra data or nonce
        --policy FILE, required
        --at RFC3339: verify as of this time (default: now)

    Example:
        curtilage attest verify-evidence --tee sev-snp --evidence report.bin \
          --vek vcek.der --chain cert_chain.pem --crl crl.der \
          --policy clinic.yaml --at 2026-11-21T12:00:00Z --json
    """
    from curtilage.cli.attest.verify_evidence import run

    return run


@command(
    "import", attest, JSON, types={"SOURCE": Choice(SOURCES), "PART": Choice(PARTS)}
)
def attest_import() -> Run:
    r"""Verify the evidence that another service publishes.

    Verify the document of Tinfoil, Privatemode, Phala (dstack) or NEAR AI against a
    policy, offline, and print for each claim whether it was checked, is only stated or
    is unknown, and why. The measurement must be one of the policy's own `measurements`.
    Exit 1 if the document is refused.

    Options:
        --from SOURCE as source, required: whose document it is
        --evidence FILE, required: the document, as it was published
        --policy FILE, required
        --nonce HEX: the nonce that you sent for it (Privatemode: required)
        --part PART: NEAR: which of the machines in the document
        --manifest FILE: Privatemode: the manifest that you expect in force
        --report-data HEX: dstack: the 64 bytes that a plain quote must sign
        --vek FILE: SEV-SNP: the VCEK or VLEK certificate
        --chain FILE: SEV-SNP: ASK or ASVK, and ARK, in any order
        --crl FILE: SEV-SNP: the ARK's revocation list
        --certs FILE: SEV-SNP: the host's table of certificates
        --collateral FILE: TDX: QuoteCollateralV3 as JSON
        --at RFC3339: verify as of this time (default: now)

    Example:
        curtilage attest import --from near --evidence report.json --part gateway \
          --nonce 6f2a --collateral collateral.json --policy near.yaml --json
    """
    from curtilage.cli.attest.import_evidence import run

    return run
