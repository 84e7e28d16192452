"""``curtilage deploy init`` and ``refresh``: the files of a deployment, and its log."""

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Final, cast

from curtilage.attest.claims import Measurement
from curtilage.attest.errors import RefusedError
from curtilage.attest.log.manifest import parse_manifest
from curtilage.attest.sandbox import Isolation
from curtilage.cli.declared import Arguments
from curtilage.cli.deploy import layouts
from curtilage.cli.deploy.files import File, Kept, text_file, write_files
from curtilage.cli.deploy.layouts import ENCLAVE_TOML, EnclaveModel
from curtilage.cli.deploy.next_steps import next_steps, usual_out
from curtilage.cli.deploy.release import (
    MAX_DESCRIPTION_BYTES,
    Machines,
    Sandbox,
    emulated_machines,
    machines_of,
    manifest_of,
    sandbox_of,
)
from curtilage.cli.deploy.sections import merged_policy
from curtilage.cli.terminal import DONE, HowFar, out, unix_text
from curtilage.client.errors import ConfigError, UsageError
from curtilage.client.local.registry.catalogue import DEFAULT_NAME, known
from curtilage.client.system.files import read_text
from curtilage.client.system.toml_tables import read_tree
from curtilage.transparency.files import make_folder, read_bounded
from curtilage.transparency.own_log import OwnLog
from curtilage.transparency.publisher import (
    digest_of,
    encoded,
    measurements_of,
    min_tcb_of,
)

MAX_SECTIONS_BYTES: Final = 256 * 1024
MAX_CONFIG_BYTES: Final = 64 * 1024
"""Of an enclave's configuration: the server reads no more."""
_HOST: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_GATEWAY: Final = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9-]{0,31})="
    r"(?P<address>https://[a-z0-9.-]{1,253}(?::[0-9]{1,5})?)"
)
_RELAY: Final = re.compile(
    r"https://[a-z0-9.-]{1,253}(?::[0-9]{1,5})?/[a-z0-9][a-z0-9-]{0,31}"
)
# What each layout takes, besides --out, --replace and --dry-run.
_TAKES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        layouts.ONE_OPERATOR: frozenset({"policy", "no_routing", "sandbox"}),
        layouts.PROCESSES: frozenset({"policy", "no_routing", "model", "sandbox"}),
        layouts.ENCLAVE: frozenset(
            {"policy", "no_routing", "model", "name", "measurements", "emulated"}
            | {"min_tcb", "sandbox"}
        ),
        layouts.RELAY: frozenset({"name", "gateway"}),
        layouts.GATEWAY: frozenset(
            {"policy", "no_routing", "name", "attestation", "relay", "application"}
        ),
    }
)
_NEEDS: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        layouts.ENCLAVE: ("name",),
        layouts.RELAY: ("name", "gateway"),
        layouts.GATEWAY: ("name", "attestation", "relay", "policy"),
    }
)


def run_init(arguments: Arguments) -> int:
    """Write the files; exit 2 if an option is wrong or a file cannot be used."""
    layout = str(arguments.layout)
    _require_options(arguments, layout)
    folder = Path(arguments.out or usual_out(layout))
    providers: Sequence[str] = ()
    unconfined = False
    if layout in {layouts.RELAY, layouts.GATEWAY}:
        _write(_without_enclave(arguments, layout, folder), arguments)
    else:
        with _refusals_of(folder):
            chosen = _with_enclave(arguments, layout, folder)
        providers, unconfined = chosen.machines.providers, chosen.sandbox is None
    if not arguments.dry_run:
        for name in layouts.FOLDERS.get(layout, ()):
            make_folder(folder / name)
        out("next:")
        for step in next_steps(layout, folder, providers, unconfined=unconfined):
            out(f"  {step}")
    return DONE


def _write(files: Sequence[File], arguments: Arguments) -> None:
    replace, dry_run = arguments.replace, arguments.dry_run
    for line in write_files(files, replace=replace, dry_run=dry_run):
        out(line)


def run_refresh(arguments: Arguments) -> int:
    """Cosign a deployment's log again; exit 2 if there is none."""
    folder = Path(arguments.folder)
    log = OwnLog(folder / "log")
    if not log.exists:
        raise ConfigError(f"{log.folder}: no log; `curtilage deploy init` makes one")
    target = _release_folder(folder)
    with _refusals_of(folder):
        log.refresh(now=datetime.now(UTC))
        log.copy_release(target)
    out(f"{target}: cosigned; a running enclave picks it up")
    out(_expiry(log))
    return DONE


@contextmanager
def _refusals_of(folder: Path) -> Generator[None]:
    """Say that a log contradicts itself: nothing may be built on it.

    Raises:
        ConfigError: instead of RefusedError.
    """
    try:
        yield
    except RefusedError as refusal:
        said = f"{refusal.code}: {refusal.detail}"
        raise ConfigError(f"{folder / 'log'}: REFUSED: {said}") from None


def _require_options(arguments: Arguments, layout: str) -> None:
    taken = _TAKES[layout]
    for name in sorted(frozenset[str]().union(*_TAKES.values())):
        if getattr(arguments, name) and name not in taken:
            raise UsageError(f"--{_option(name)} is not for the layout {layout}")
    for name in _NEEDS.get(layout, ()):
        if not getattr(arguments, name):
            raise UsageError(f"the layout {layout} needs --{_option(name)}")
    if arguments.no_routing and not arguments.policy:
        raise UsageError("--no-routing needs --policy")
    relay = arguments.relay
    if relay and _RELAY.fullmatch(relay) is None:
        raise UsageError(
            "--relay: expected https://HOST[:PORT]/NAME, such as "
            "https://relay.example.org:8443/ward"
        )
    host = arguments.name
    if host and _HOST.fullmatch(host) is None:
        raise UsageError("--name: expected a host's name in lower case, without a port")


def _option(name: str) -> str:
    return name.replace("_", "-")


# What has no enclave.


def _without_enclave(arguments: Arguments, layout: str, folder: Path) -> Sequence[File]:
    if layout == layouts.RELAY:
        gateways = _gateways(arguments.gateway)
        return [*layouts.relay(folder, host=arguments.name, gateways=gateways)]
    source = Path(arguments.attestation)
    sections = read_text(source, MAX_SECTIONS_BYTES)
    # Before anything is written.
    policy = merged_policy(
        arguments.policy,
        sections,
        source=str(source),
        routed=not arguments.no_routing,
    )
    return [
        *layouts.gateway(
            folder,
            host=arguments.name,
            relay_url=arguments.relay,
            applications=arguments.application or (),
            policy=policy,
        )
    ]


def _gateways(given: Sequence[str]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for text in given:
        match = _GATEWAY.fullmatch(text)
        if match is None or match["name"] == "healthz":
            raise UsageError(
                "--gateway: expected NAME=https://HOST[:PORT], such as "
                "ward=https://enclave.example.net:8443"
            )
        found[match["name"]] = match["address"]
    return found


# What has an enclave, and so a release.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Enclave:
    machines: Machines
    model: EnclaveModel
    sandbox: Sandbox | None


def _with_enclave(arguments: Arguments, layout: str, folder: Path) -> _Enclave:
    chosen = _chosen(arguments, layout, folder)
    # Named first, so that a mistake in an option leaves nothing behind.
    files = [*_enclave_files(arguments, layout, folder, chosen)]
    if chosen.sandbox is not None and not arguments.replace:
        _require_same_isolation(files, chosen.sandbox)
    log = _require_log(arguments, folder, chosen)
    _write(files, arguments)
    if not arguments.dry_run:
        target = _release_folder(folder)
        log.copy_release(target)
        out(f"{target}: the log's files, for the enclave")
        _write(_policy_files(arguments, folder, chosen.machines), arguments)
    for kind, measured in chosen.machines.measurements.items():
        for registers in measured:
            said = " ".join(f"{name}={value}" for name, value in registers.items())
            out(f"measurement of the release: {kind} {said}")
    return chosen


def _chosen(arguments: Arguments, layout: str, folder: Path) -> _Enclave:
    if layout != layouts.ENCLAVE or arguments.emulated:
        if arguments.measurements or arguments.min_tcb:
            raise UsageError("--emulated excludes --measurements and --min-tcb")
        machines = emulated_machines()
    elif not arguments.measurements:
        raise UsageError(
            "the layout enclave needs --measurements, a file that the image's build "
            "prints (docs/image.md); --emulated is for trying"
        )
    else:
        measured = measurements_of(map(Path, arguments.measurements))
        levels = dict(min_tcb_of(text) for text in arguments.min_tcb)
        machines = machines_of(measured, levels)
    sandbox = _sandbox(arguments.sandbox, OwnLog(folder / "log"))
    model = _model(arguments.model, layout)
    if sandbox is not None:
        model = replace(model, isolation=sandbox.isolation)
    return _Enclave(machines=machines, model=model, sandbox=sandbox)


def _sandbox(given: str | None, log: OwnLog) -> Sandbox | None:
    """Return the sandbox that is described, or that the log's release names.

    Raises:
        ConfigError: something else is described.
        FileError: a file cannot be read.
    """
    if given is not None:
        found = sandbox_of(read_bounded(Path(given), MAX_DESCRIPTION_BYTES))
        if found is None:
            raise ConfigError(
                f"{given}: no description of a sandbox; `curtilage-enclave sandbox` "
                "on the enclave's machine prints one"
            )
        return found
    if not log.exists:
        return None
    log.require_complete()
    manifest = parse_manifest(log.manifest())
    if manifest.isolation is None:
        return None
    return Sandbox(digest=manifest.sandbox, isolation=manifest.isolation)


def _model(given: str | None, layout: str) -> EnclaveModel:
    if given is None:
        embedded = known(DEFAULT_NAME)
        if embedded is None:
            raise ConfigError("this installation has no embedded model: --model")
        return EnclaveModel(path="embedded", sha256=embedded.sha256)
    path = Path(given)
    inside = layout == layouts.ENCLAVE
    place = f"/models/{path.name}" if inside else str(path.resolve())
    return EnclaveModel(path=place, sha256=digest_of(given, HowFar().hashed))


def _require_log(arguments: Arguments, folder: Path, chosen: _Enclave) -> OwnLog:
    """Make log and release, unless they are there; return the log.

    Raises:
        FileError: a part of it is missing.
        ConfigError: its release is of something else.
    """
    log = OwnLog(folder / "log")
    if log.exists:
        log.require_complete()
        _require_same_release(log, chosen)
        out(f"{log.folder}: kept, with its keys")
        out(_expiry(log))
        return log
    if arguments.dry_run:
        out(f"{log.folder}: would be made: a log, its witness and their keys")
        return log
    now = datetime.now(UTC)
    manifest = encoded(
        manifest_of(
            chosen.machines,
            version=version("curtilage"),
            model=chosen.model.sha256,
            sandbox=chosen.sandbox,
            now=now,
        )
    )
    host = arguments.name or "curtilage.invalid"
    made = OwnLog.create(log.folder, origin=f"{host}/log", witness=f"{host}/witness")
    made.publish(manifest, now=now)
    out(f"{log.folder}: a log with this release; the keys in private/ have mode 0600")
    return made


def _require_same_release(log: OwnLog, chosen: _Enclave) -> None:
    """Refuse to configure an enclave for another release than the log's."""
    manifest = parse_manifest(log.manifest())
    logged = {kind: _sorted(each) for kind, each in manifest.measurements.items()}
    wanted = {
        kind.value: _sorted(each) for kind, each in chosen.machines.measurements.items()
    }
    sandbox = chosen.sandbox
    found = (logged, manifest.models, manifest.sandbox, manifest.isolation)
    if found != (
        *(wanted, (chosen.model.sha256,)),
        *(("", None) if sandbox is None else (sandbox.digest, sandbox.isolation)),
    ):
        raise ConfigError(
            f"{log.folder}: its release names other measurements, another model or "
            "another sandbox; publish the new release there (docs/transparency.md), or "
            "choose another --out"
        )


def _require_same_isolation(files: Sequence[File], sandbox: Sandbox) -> None:
    """Refuse a release that the configuration which is kept cannot be served under.

    Raises:
        ConfigError: it separates requests in another way, or is not TOML.
    """
    for path in (each.path for each in files if each.path.name == ENCLAVE_TOML):
        if not path.exists():
            continue
        model = read_tree(path, MAX_CONFIG_BYTES).get("model")
        given = cast("dict[str, object]", model) if isinstance(model, dict) else {}
        found = given.get("isolation", Isolation.SHARED.value)
        if found != sandbox.isolation.value:
            raise ConfigError(
                f"{path}: model.isolation is {found!r}, and the sandbox's is "
                f"{sandbox.isolation.value!r}; change it, or --replace writes it again"
            )


def _sorted(measured: Sequence[Measurement]) -> list[list[tuple[str, str]]]:
    return sorted(sorted(registers.items()) for registers in measured)


def _expiry(log: OwnLog) -> str:
    until = unix_text(parse_manifest(log.manifest()).not_after)
    return f"its release expires {until}: publish the next one before"


def _enclave_files(
    arguments: Arguments, layout: str, folder: Path, chosen: _Enclave
) -> Iterator[File]:
    machines, model = chosen.machines, chosen.model
    if layout == layouts.ONE_OPERATOR:
        return layouts.one_operator(folder, machines, model)
    if layout == layouts.PROCESSES:
        return layouts.processes(folder, machines, model)
    return layouts.enclave(folder, machines, model, host=arguments.name)


def _release_folder(folder: Path) -> Path:
    # Of two operators the enclave's files are in a folder of their own, for compose.
    own = folder / layouts.ENCLAVE
    return (own if own.is_dir() else folder) / "release"


def _policy_files(
    arguments: Arguments, folder: Path, machines: Machines
) -> Sequence[File]:
    root = folder / layouts.ROOT_FILE
    if machines.emulated and not root.exists():
        return []  # the emulator writes it; the next step says so
    sections = layouts.sections(folder, machines)
    path = folder / layouts.ATTESTATION_FILE
    files = [text_file(path, "what clients must see", sections, Kept.NEVER)]
    if arguments.policy:
        text = merged_policy(
            arguments.policy,
            sections,
            source=str(path),
            routed=not arguments.no_routing,
        )
        what = f"the profile {arguments.policy}, with that section"
        policy = folder / layouts.POLICY_FILE
        files.append(text_file(policy, what, text, Kept.NEVER))
    return files
