"""Write a policy for the development deployment.

The shipped default profile, unchanged, followed by an ``attestation:`` section
that names this deployment's emulated root and its log, and a ``transport:``
section that accepts the ways of its release. The root stands inside
the policy, so the policy's digest covers it.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from curtilage.attest.evidence import Tee
from curtilage.attest.manifest import parse_manifest
from curtilage.attest.strictjson import Fields, parse_object
from curtilage.policy.load import profile_text
from curtilage.wire.shaping import PADDED, Shape, TransportParameters
from curtilage_dev.deployment import RELEASE_NAME
from curtilage_dev.devlog import LOG_FILE, MANIFEST_FILE
from curtilage_dev.emulator import ROOT_FILE
from curtilage_dev.pki import DEFAULT_TCB

_FILE_LIMIT: Final = 64 * 1024


def development_policy(
    *,
    root_pem: bytes,
    log: bytes,
    transport: TransportParameters = PADDED,
    profile: str = "",
) -> str:
    """Return the whole policy as YAML.

    Args:
        root_pem: the emulator's ``root.pem``.
        log: the development log's ``log.json``.
        transport: what it accepts, and nothing else.
        profile: the text that the sections follow; empty: the shipped default.
    """
    section = attestation_section(root_pem=root_pem, log=log)
    shaping = transport_section(transport)
    return f"{(profile or profile_text('default')).rstrip()}\n\n{section}{shaping}"


def transport_section(transport: TransportParameters) -> str:
    """Return the ``transport:`` section that accepts these parameters alone."""
    if transport.shape is Shape.UNSAFE_UNPADDED:
        return "transport:\n  accept: []\n  unsafe_unpadded: true\n"
    return f"""\
transport:
  accept:
    - frame_bytes: {transport.frame_bytes}
      period_ms: {transport.period_ms}
      first_bucket: {transport.first_bucket}
      buckets: {transport.buckets}
"""


def attestation_section(*, root_pem: bytes, log: bytes) -> str:
    """Return the ``attestation:`` section alone."""
    root = x509.load_pem_x509_certificate(root_pem)
    product = _common_name(root).removeprefix("ARK-")
    pem = root.public_bytes(Encoding.PEM).decode("ascii")
    tcb = DEFAULT_TCB
    names = parse_object(log, where="log", limit_bytes=_FILE_LIMIT)
    return f"""\
# Written by the development tools: emulated evidence, which proves no isolation.
attestation:
  environment: development
  trust_anchors:
    - kind: emulated
      product: {product}
      certificate: |
{_indent(pem, 8)}
  required_cpu_tees: [{Tee.EMULATED_SEV_SNP.value}]
  releases:
    names: [{RELEASE_NAME}]
    log:
      origin: {_quoted(names, "origin")}
      key: {_quoted(names, "key")}
      witnesses:
{_witnesses(names)}
      quorum: {names.integer("quorum")}
    max_checkpoint_age_s: 86400
  snp:
    min_version: 3
    vmpl: [0]
    allow_vlek: false
    allow_masked_chip: false
    min_tcb:
      - product: {product}
        bl: {tcb.bl}
        tee: {tcb.tee}
        snp: {tcb.snp}
        ucode: {tcb.ucode}
  freshness:
    max_key_lifetime_s: 43200
    max_evidence_age_s: 43200
    clock_skew_s: 60
"""


def _witnesses(log: Fields) -> str:
    return "\n".join(
        f"        - name: {_quoted(witness, 'name')}\n"
        f"          key: {_quoted(witness, 'key')}"
        for witness in log.children("witnesses", limit=16)
    )


def _quoted(fields: Fields, name: str) -> str:
    # A JSON string of ASCII is a YAML double-quoted scalar.
    return json.dumps(fields.text(name, limit=256))


def _indent(text: str, spaces: int) -> str:
    return "\n".join(" " * spaces + line for line in text.splitlines())


def _common_name(certificate: x509.Certificate) -> str:
    (name,) = certificate.subject.get_attributes_for_oid(x509.oid.NameOID.COMMON_NAME)
    return str(name.value)


class _Arguments(argparse.Namespace):
    state: Path
    log: Path | None
    out: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m curtilage_dev.policy",
        description="Write a policy that trusts the development deployment.",
    )
    parser.add_argument(
        "--state", required=True, type=Path, metavar="DIR", help="holds root.pem"
    )
    parser.add_argument(
        "--log",
        type=Path,
        metavar="DIR",
        help="holds log.json and manifest.json; default: --state",
    )
    parser.add_argument("--out", required=True, type=Path, metavar="FILE")
    read = parser.parse_args(arguments, namespace=_Arguments())
    folder = read.log or read.state
    text = development_policy(
        root_pem=(read.state / ROOT_FILE).read_bytes(),
        log=(folder / LOG_FILE).read_bytes(),
        transport=parse_manifest((folder / MANIFEST_FILE).read_bytes()).transport,
    )
    read.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
