"""Write a policy for the development deployment.

The shipped default profile, unchanged, followed by an ``attestation:`` section with
this deployment's emulated roots and its log, and a ``transport:`` section with the
parameters of its release. The roots are part of the policy, so the policy's digest
covers them.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from curtilage.attest.amd_tcb import Product
from curtilage.attest.encoding.strict_json import parse_object
from curtilage.attest.evidence import DeviceKind, Tee
from curtilage.attest.expectations import SNP_TEES
from curtilage.attest.log.manifest import GpuRelease, parse_manifest
from curtilage.cli.deploy import sections
from curtilage.policy.document.load import profile_text
from curtilage.transparency.own_log import LOG_FILE, MANIFEST_FILE, MAX_LOG_FILE_BYTES
from curtilage.wire.shaping import PADDED, TransportParameters
from curtilage_dev.deployment import RELEASE_NAME
from curtilage_dev.emulated.gpu import PRODUCT as GPU_PRODUCT
from curtilage_dev.emulated.gpu import ordinary_expectations
from curtilage_dev.emulated.machines import KINDS, MAX_GPUS
from curtilage_dev.emulated.snp_pki import DEFAULT_TCB
from curtilage_dev.emulator import GPU_ROOT_FILE, ROOT_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """The emulated machine that a policy accepts.

    Attributes:
        root_pem: the emulator's ``root.pem``.
        tee: the kind of its evidence.
        gpu_root_pem: the emulator's ``gpu-root.pem``; empty without GPUs.
        gpus: how many GPUs there must be.
    """

    root_pem: bytes
    tee: Tee = Tee.EMULATED_SEV_SNP
    gpu_root_pem: bytes = b""
    gpus: int = 0


def development_policy(
    *,
    machine: Emulated,
    log: bytes,
    transport: TransportParameters = PADDED,
    profile: str = "",
    routed: bool = False,
) -> str:
    """Return the whole policy as YAML.

    Args:
        machine: whose evidence it accepts.
        log: the development log's ``log.json``.
        transport: the only parameters that it accepts.
        profile: the text before the sections; empty: the shipped default.
        routed: with the profile's section ``routing``; without it, everything that
            may be sent is sent, as most tests need.
    """
    text = profile or profile_text("default")
    text = (text if routed else sections.unrouted(text)).rstrip()
    section = attestation_section(machine=machine, log=log)
    return f"{text}\n\n{section}{sections.transport_section(transport)}"


def aimed(policy: str, aim: str) -> str:
    """Return a policy's text with another aim in its section ``routing``.

    Args:
        policy: the text; it has an aim.
        aim: as YAML, such as ``{local_percent: 50}``.
    """
    text, found = re.subn(r"(?m)^  aim: .*$", f"  aim: {aim}", policy)
    if found != 1:
        raise ValueError("the policy has no aim, or more than one")
    return text


def with_server(policy: str, *, address: str, model: str, ca: str = "") -> str:
    """Return a policy's text with an on-premises server among its tiers.

    It is trusted with everything that must not leave.

    Args:
        policy: the text; its section ``routing`` has the tier ``local``.
        address: ``https://host[:port][/path]``, or ``unix:/path``.
        model: the server's name for its model.
        ca: name of the file of its authorities, next to the policy; empty: none.
    """
    given = {
        "id": "on-premises",
        "kind": "on_premises",
        "address": address,
        "model": model,
    }
    tier = {**given, **({"ca": ca} if ca else {}), "trusted": ["*"]}
    # JSON is YAML.
    text, found = re.subn(
        r"(?m)^(  - \{id: local, .*\n)",
        lambda local: f"{local[1]}  - {json.dumps(tier)}\n",
        policy,
    )
    if found != 1:
        raise ValueError("the policy has no tier `local`")
    return text


def attestation_section(*, machine: Emulated, log: bytes) -> str:
    """Return the ``attestation:`` section alone."""
    product = product_of(machine)
    roots = [sections.Root(kind="emulated", product=product, pem=machine.root_pem)]
    devices: dict[str, int] = {}
    ordinary = ordinary_expectations()
    if machine.gpus:
        pem = machine.gpu_root_pem
        roots.append(sections.Root(kind="emulated", product=GPU_PRODUCT, pem=pem))
        devices[DeviceKind.EMULATED_NVIDIA_GPU.value] = machine.gpus
    trust = sections.Trust(
        environment="development",
        roots=roots,
        kinds=[machine.tee],
        name=RELEASE_NAME,
        log=parse_object(log, where="log", limit_bytes=MAX_LOG_FILE_BYTES),
        min_tcb={Product(product): DEFAULT_TCB} if machine.tee in SNP_TEES else {},
        devices=devices,
        gpu=GpuRelease(
            drivers=tuple(ordinary.drivers),
            vbioses=tuple(ordinary.vbioses),
            golden=tuple(ordinary.golden),
        ),
    )
    return sections.attestation_section(
        trust,
        comment="Written by the development tools: emulated evidence, which proves no "
        "isolation.",
    )


def product_of(machine: Emulated) -> str:
    """Return the root's product, as in a policy and a configuration."""
    if machine.tee in SNP_TEES:
        root = x509.load_pem_x509_certificate(machine.root_pem)
        return _common_name(root).removeprefix("ARK-")
    return machine.tee.value.removeprefix("emulated-")


def _common_name(certificate: x509.Certificate) -> str:
    (name,) = certificate.subject.get_attributes_for_oid(x509.oid.NameOID.COMMON_NAME)
    return str(name.value)


class _Arguments(argparse.Namespace):
    state: Path
    log: Path | None
    out: Path
    tee: Tee
    gpus: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m curtilage_dev.policy",
        description="Write a policy that trusts the development deployment.",
    )
    parser.add_argument(
        "--state",
        required=True,
        type=Path,
        metavar="DIR",
        help="holds root.pem, and gpu-root.pem where there are GPUs",
    )
    parser.add_argument(
        "--log",
        type=Path,
        metavar="DIR",
        help="holds log.json and manifest.json; default: --state",
    )
    parser.add_argument("--out", required=True, type=Path, metavar="FILE")
    parser.add_argument(
        "--tee", default=Tee.EMULATED_SEV_SNP, type=Tee, choices=list(KINDS)
    )
    parser.add_argument(
        "--gpus", default=0, type=int, choices=range(MAX_GPUS + 1), metavar="N"
    )
    read = parser.parse_args(arguments, namespace=_Arguments())
    folder = read.log or read.state
    text = development_policy(
        machine=read_emulated(read.state, read.tee, read.gpus),
        log=(folder / LOG_FILE).read_bytes(),
        transport=parse_manifest((folder / MANIFEST_FILE).read_bytes()).transport,
    )
    read.out.write_text(text, encoding="utf-8")
    return 0


def read_emulated(state: Path, tee: Tee, gpus: int) -> Emulated:
    """Read the roots that an emulator wrote."""
    return Emulated(
        root_pem=(state / ROOT_FILE).read_bytes(),
        tee=tee,
        gpu_root_pem=(state / GPU_ROOT_FILE).read_bytes() if gpus else b"",
        gpus=gpus,
    )


if __name__ == "__main__":
    sys.exit(main())
