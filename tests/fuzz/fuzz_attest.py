"""Invariant: any bytes give a value or a RefusedError, never anything else.

Runs for a number of seconds (first argument, default 60) over every parser of
``curtilage.attest``, with random bytes and with mutations of valid inputs:

    python tests/fuzz/fuzz_attest.py 60
"""

import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "dev"))

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


def mutate(seed: bytes) -> bytes:
    """Return random bytes, or the seed with a few places changed."""
    if secrets.randbelow(8) == 0:
        return secrets.token_bytes(secrets.randbelow(256))
    data = bytearray(seed)
    for _ in range(1 + secrets.randbelow(4)):
        position = secrets.randbelow(len(data) + 1)
        choice = secrets.randbelow(4)
        if choice == 0:
            del data[position : position + 1 + secrets.randbelow(8)]
        elif choice == 1:
            data[position:position] = secrets.token_bytes(1 + secrets.randbelow(4))
        elif choice == 2:
            data = data[:position]
        elif position < len(data):
            data[position] ^= 1 << secrets.randbelow(8)
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


def main(seconds: float) -> int:
    """Run until the time is up; returns how many inputs were tried."""
    chosen = targets()
    end = time.monotonic() + seconds
    tried = 0
    while time.monotonic() < end:
        for target in chosen:
            data = mutate(target.seed)
            tried += 1
            try:
                target.parse(data)
            except RefusedError:
                continue
            except BaseException:
                sys.stderr.write(f"{target.name}: {data.hex()}\n")
                raise
    return tried


if __name__ == "__main__":
    count = main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
    sys.stdout.write(f"{count} inputs, nothing but values and refusals\n")
