"""What to do after ``curtilage deploy init``, by the files that are there."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from curtilage.cli.deploy import layouts

USUAL_OUT: Final = "deploy/run"
"""What ``compose.yaml`` mounts."""
ASK: Final = "curtilage ask --policy {policy} --relay http://127.0.0.1:8080/demo"
IMAGES: Final = (
    "make containers   # in a checkout; then, for each image of this file:",
    "docker load -i build/containers/IMAGE.tar",
)


NO_SANDBOX: Final = (
    "the release names no sandbox, so no client gets `no_write`: if one should, begin "
    "anew with --sandbox FILE and another --out (docs/containers.md)"
)


def usual_out(layout: str) -> str:
    """Return the folder of a layout if no other is named."""
    return USUAL_OUT if layout == layouts.ONE_OPERATOR else f"curtilage-{layout}"


def next_steps(
    layout: str,
    folder: Path,
    providers: Sequence[str] = (),
    *,
    unconfined: bool = False,
) -> Iterator[str]:
    """Yield the next steps, one a line.

    Args:
        layout: one of ``layouts``.
        folder: where its files are.
        providers: the profiles of ``enclave.yaml`` that make its kinds of evidence.
        unconfined: whether it has a release, which names no sandbox.
    """
    place = shlex.quote(str(folder))
    again = f"curtilage deploy init {layout} --policy default"
    if str(folder) != usual_out(layout):
        again += f" --out {place}"
    policy = folder / layouts.POLICY_FILE
    if layout == layouts.ONE_OPERATOR:
        yield from _one_operator(folder, place, again)
    elif layout == layouts.PROCESSES:
        yield from _processes(folder, place, again)
    elif layout == layouts.ENCLAVE:
        yield from _certified(f"{place}/enclave/tls/enclave")
        yield from _enclave(folder, place, "|".join(providers))
    elif layout == layouts.RELAY:
        yield from _certified(f"{place}/relay/tls/relay")
        yield from IMAGES
        yield f"docker compose -f {place}/relay.yaml up --wait"
    else:
        yield from _certified(f"{place}/client/tls/client")
        yield f"give each application its key, {place}/client/keys/NAME"
        yield from IMAGES
        yield f"docker compose -f {place}/client.yaml up --wait"
    if layout in {layouts.ONE_OPERATOR, layouts.PROCESSES} and policy.exists():
        yield ASK.format(policy=shlex.quote(str(policy)))
    if unconfined:
        yield NO_SANDBOX


def _one_operator(folder: Path, place: str, again: str) -> Iterator[str]:
    if (folder / layouts.POLICY_FILE).exists():
        yield from _dated(place)
        return
    variable = "" if str(folder) == USUAL_OUT else f"ENCLAVE_FILES={place} "
    yield from IMAGES
    yield f"{variable}docker compose --profile development up --wait"
    root = f"{place}/{layouts.ROOT_FILE}"
    yield f"docker compose cp emulator:/run/evidence/root.pem {root}"
    yield f"{again}   # writes the policy of a client"


def _processes(folder: Path, place: str, again: str) -> Iterator[str]:
    if (folder / layouts.POLICY_FILE).exists():
        yield from _dated(place)
        yield f"curtilage-enclave --config {place}/{layouts.ENCLAVE_TOML}"
        yield f"curtilage-relay --config {place}/relay.toml"
        return
    yield (
        "PYTHONPATH=dev python -m curtilage_dev.emulator "
        f"--state {place} --listen unix:{place}/evidence.sock "
        f"--release {place}/release   # in a checkout; leave it running"
    )
    yield f"{again}   # writes the policy of a client"


def _enclave(folder: Path, place: str, profile: str) -> Iterator[str]:
    yield from IMAGES
    yield f"docker compose -f {place}/enclave.yaml --profile {profile} up --wait"
    if (folder / layouts.ATTESTATION_FILE).exists():
        yield f"give {place}/{layouts.ATTESTATION_FILE} to clients, for their policies"
    else:
        compose = f"docker compose -f {place}/enclave.yaml --profile {profile}"
        root = f"{place}/{layouts.ROOT_FILE}"
        yield f"{compose} cp emulator:/run/evidence/root.pem {root}"
        yield "run this command again: it then writes the section for clients' policies"
    yield from _dated(place)
    yield "have others witness the log, whose only witness is yours (transparency.md)"


def _certified(stem: str) -> Iterator[str]:
    yield f"have {stem}.csr signed; put the certificate with its chain into {stem}.pem"
    yield f"chown 65532:65532 {stem}.key   # the containers' user"


def _dated(place: str) -> Iterator[str]:
    yield f"curtilage deploy refresh {place}   # once a day: it cosigns the log again"
