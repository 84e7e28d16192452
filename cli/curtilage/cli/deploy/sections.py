"""A policy's sections ``attestation:`` and ``transport:``, as text.

The operator of an enclave writes them for its clients; a client merges them into a
policy. Only roots, public keys and numbers are in them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from curtilage.attest.amd_tcb import Product, Tcb
from curtilage.attest.encoding.strict_json import Fields
from curtilage.attest.evidence import Tee
from curtilage.attest.expectations import SNP_TEES, TDX_TEES
from curtilage.attest.log.manifest import GpuRelease
from curtilage.client.errors import ConfigError
from curtilage.policy.document.checks import Tree
from curtilage.policy.document.load import load_policy, profile_text, read_tree
from curtilage.wire.shaping import Shape, TransportParameters

SECTIONS: Final = ("attestation", "transport")
MAX_CHECKPOINT_AGE_S: Final = 86400
_MAX_WITNESSES: Final = 16
_MAX_NAME: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A root at which evidence may end.

    Attributes:
        kind: ``amd``, ``intel``, ``aws``, ``nvidia`` or ``emulated``.
        product: where the kind has several; else empty.
        pem: its certificate; empty: the one that the vendor publishes.
    """

    kind: str
    product: str = ""
    pem: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """What the clients of a deployment trust.

    Attributes:
        environment: ``production`` or ``development``.
        roots: at least one.
        kinds: of evidence, one of which an enclave must show.
        devices: how many devices of a kind it must have.
        name: of its releases.
        log: ``log.json`` of the releases' log.
        min_tcb: AMD's lowest patch levels, for each product.
        gpu: what is accepted of the devices.
        sandboxes: SHA-256 of the descriptions of sandboxes that cannot write, hex.
    """

    environment: str
    roots: Sequence[Root]
    kinds: Sequence[Tee]
    name: str
    log: Fields
    min_tcb: Mapping[Product, Tcb] = field(default_factory=dict[Product, Tcb])
    devices: Mapping[str, int] = field(default_factory=dict[str, int])
    gpu: GpuRelease = field(default_factory=GpuRelease)
    sandboxes: Sequence[str] = ()


def attestation_section(trust: Trust, *, comment: str) -> str:
    """Return the section ``attestation:``.

    Args:
        trust: see there.
        comment: a line above it.
    """
    log, kinds = trust.log, ", ".join(kind.value for kind in trust.kinds)
    roots = "".join(map(_root, trust.roots))
    return f"""\
# {comment}
attestation:
  environment: {trust.environment}
  trust_anchors:
{roots}\
  required_cpu_tees: [{kinds}]
{_devices(trust)}\
  releases:
    names: [{trust.name}]
    log:
      origin: {_quoted(log, "origin")}
      key: {_quoted(log, "key")}
      witnesses:
{_witnesses(log)}
      quorum: {log.integer("quorum")}
    max_checkpoint_age_s: {MAX_CHECKPOINT_AGE_S}
{_sandboxes(trust)}\
{_rules(trust)}\
{_gpu_rules(trust)}\
  freshness:
    max_key_lifetime_s: 43200
    max_evidence_age_s: 43200
    clock_skew_s: 60
"""


def transport_section(transport: TransportParameters) -> str:
    """Return the ``transport:`` section that accepts only these parameters."""
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


def unrouted(profile: str) -> str:
    """Return a policy's text without its section ``routing``."""
    # To its last indented line; comments may be in between.
    return re.sub(r"(?m)^routing:\n(?:(?:[ #].*)?\n)*[ ].*\n", "", profile)


def merged_policy(profile: str, sections: str, *, source: str, routed: bool) -> str:
    """Return a shipped profile with the sections below it.

    Args:
        profile: its name.
        sections: ``attestation:`` and ``transport:``, and nothing else.
        source: what to call the sections in errors.
        routed: with the profile's own ``routing:``; without, everything that may be
            sent is sent.

    Raises:
        PolicyError: no policy comes of it.
        ConfigError: there is something else in the sections.
    """
    _require_only_sections(read_tree(sections, lambda _: (), source=source), source)
    text = profile_text(profile)
    text = f"{(text if routed else unrouted(text)).rstrip()}\n\n{sections}"
    load_policy(text, source=source)
    return text


def _require_only_sections(tree: Tree, source: str) -> None:
    found = tuple(tree) if isinstance(tree, dict) else ()
    # Other sections would change what may leave, and they come from who receives it.
    others = sorted(set(found) - set(SECTIONS))
    if others:
        raise ConfigError(
            f"{source}: {', '.join(others)}: only {' and '.join(SECTIONS)} may be here"
        )
    if SECTIONS[0] not in found:
        raise ConfigError(f"{source}: there is no section {SECTIONS[0]}")


def _root(root: Root) -> str:
    lines = [f"    - kind: {root.kind}"]
    if root.product:
        lines.append(f"      product: {root.product}")
    if root.pem:
        certificate = x509.load_pem_x509_certificate(root.pem)
        pem = certificate.public_bytes(Encoding.PEM).decode("ascii")
        lines.append("      certificate: |")
        lines += [f"        {line}" for line in pem.splitlines()]
    return "\n".join(lines) + "\n"


def _devices(trust: Trust) -> str:
    if not trust.devices:
        return ""
    named = ", ".join(f"{kind}: {count}" for kind, count in trust.devices.items())
    return f"  required_devices: {{{named}}}\n"


def _sandboxes(trust: Trust) -> str:
    return f"  sandbox: {json.dumps(trust.sandboxes)}\n" if trust.sandboxes else ""


def _rules(trust: Trust) -> str:
    kinds, rules = set(trust.kinds), ""
    if kinds & SNP_TEES:
        rules += (
            "  snp:\n    min_version: 3\n    vmpl: [0]\n    allow_vlek: false\n"
            "    allow_masked_chip: false\n    min_tcb:\n"
        )
        rules += "".join(
            f"      - product: {product.value}\n{_levels(product, tcb)}"
            for product, tcb in trust.min_tcb.items()
        )
    if kinds & TDX_TEES:
        rules += "  tdx:\n    statuses: [UpToDate]\n"
    return rules


def _levels(product: Product, tcb: Tcb) -> str:
    levels = {"bl": tcb.bl, "tee": tcb.tee, "snp": tcb.snp, "ucode": tcb.ucode}
    if product is Product.TURIN:
        levels["fmc"] = tcb.fmc
    return "".join(f"        {name}: {level}\n" for name, level in levels.items())


def _gpu_rules(trust: Trust) -> str:
    if not trust.devices:
        return ""
    gpu = trust.gpu
    return f"""\
  gpu:
    drivers: {json.dumps(sorted(gpu.drivers))}
    vbioses: {json.dumps(sorted(gpu.vbioses))}
    golden: {json.dumps(sorted(gpu.golden))}
"""


def _witnesses(log: Fields) -> str:
    return "\n".join(
        f"        - name: {_quoted(witness, 'name')}\n"
        f"          key: {_quoted(witness, 'key')}"
        for witness in log.children("witnesses", limit=_MAX_WITNESSES)
    )


def _quoted(fields: Fields, name: str) -> str:
    # A JSON string of ASCII is a YAML double-quoted scalar.
    return json.dumps(fields.text(name, limit=_MAX_NAME))
