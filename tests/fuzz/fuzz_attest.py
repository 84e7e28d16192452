"""Invariant: any bytes give a value or a RefusedError, never anything else.

Run ``python tests/fuzz/fuzz_attest.py --seconds 60``: every parser of
``curtilage.attest`` gets random bytes and damaged valid inputs, drawn from a seed
that a failure prints. ``--seed`` draws the same damage again; keys are new each
time, so the failing bytes are printed too.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "dev"))

from fuzz.common import Source, run

from curtilage.attest.certificates import parse_certificate, parse_revocation_list
from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import encode_bundle, parse_bundle, parse_cpu_evidence
from curtilage.attest.manifest import parse_manifest
from curtilage.attest.snp_report import parse_report
from curtilage.attest.tlog import TrustedLog, verify_proof
from curtilage.attest.verify import UNFORESEEN, verify
from curtilage_dev.deployment import make_deployment
from curtilage_dev.pki import generate_root_keys, make_platform


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One parser and a valid input to start from."""

    name: str
    seed: bytes
    parse: Callable[[bytes], object]


def mutated(source: Source, seed: bytes) -> bytes:
    """Return random bytes, or the seed with a few places changed."""
    if source.below(8) == 0:
        return source.octets(source.below(256))
    data = bytearray(seed)
    for _ in range(1 + source.below(4)):
        position = source.below(len(data) + 1)
        choice = source.below(4)
        if choice == 0:
            del data[position : position + 1 + source.below(8)]
        elif choice == 1:
            data[position:position] = source.octets(1 + source.below(4))
        elif choice == 2:
            data = data[:position]
        elif position < len(data):
            data[position] ^= 1 << source.below(8)
    return bytes(data)


def targets() -> list[Target]:
    """Make the valid inputs; takes seconds for the RSA keys."""
    now = datetime.now(UTC)
    deployment = make_deployment(make_platform(generate_root_keys(), now=now), now=now)
    bundle = deployment.bundle()
    expectations = deployment.expectations()
    log = TrustedLog(
        origin=deployment.log.signer.name,
        key=deployment.log.signer.public,
        witnesses=tuple(w.public for w in deployment.log.witnesses),
    )

    def proof(data: bytes) -> object:
        text = data.decode("utf-8", errors="replace")
        return verify_proof(text, leaf=bundle.release.manifest, log=log)

    def whole(data: bytes) -> object:
        try:
            return verify(data, expectations, now=now)
        except RefusedError as error:
            # An unforeseen exception is a refusal for a client, a bug here.
            if error.detail == UNFORESEEN:
                raise AssertionError(UNFORESEEN) from error
            raise

    encoded = encode_bundle(bundle)
    return [
        Target(name="bundle", seed=encoded, parse=parse_bundle),
        Target(name="cpu", seed=encoded, parse=parse_cpu_evidence),
        Target(name="verify", seed=encoded, parse=whole),
        Target(name="report", seed=bundle.cpu.report, parse=parse_report),
        Target(
            name="vek", seed=bundle.cpu.vek, parse=lambda d: parse_certificate(d, "VEK")
        ),
        Target(
            name="ask", seed=bundle.cpu.ask, parse=lambda d: parse_certificate(d, "ASK")
        ),
        Target(name="crl", seed=bundle.cpu.crl, parse=parse_revocation_list),
        Target(name="manifest", seed=deployment.manifest, parse=parse_manifest),
        Target(name="proof", seed=bundle.release.proof.encode(), parse=proof),
    ]


TARGETS: Final = targets()


def make_input(source: Source) -> bytes:
    """Return one octet that names the target, and its input."""
    number = source.below(len(TARGETS))
    return bytes([number]) + mutated(source, TARGETS[number].seed)


def check(data: bytes, _: Source) -> None:
    """Try one input; anything but a refusal escapes."""
    try:
        TARGETS[data[0]].parse(data[1:])
    except RefusedError:
        return


if __name__ == "__main__":
    sys.exit(run("fuzz_attest", check, make_input))
