"""The command ``curtilage-enclave``: arguments and exit codes.

``curtilage-enclave evidence`` is a separate process with its own arguments; the server
never loads its modules or opens its device. ``curtilage-enclave sandbox`` only prints
what a server with this configuration locks itself into.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final

from curtilage.attest.sandbox import PROMISED, Isolation
from curtilage.enclave_server.config import (
    MAX_CONFIG_BYTES,
    EnclaveConfig,
    parse_config,
)
from curtilage.enclave_server.confinement import (
    SETTINGS,
    description,
    lock,
    require_described,
)
from curtilage.enclave_server.errors import (
    BundleError,
    ConfigError,
    EnclaveError,
    SandboxError,
)
from curtilage.enclave_server.evidence.release import (
    read_anchors,
    read_release,
    require_sandbox,
)
from curtilage.enclave_server.http.frame_loop import frame_loop
from curtilage.enclave_server.http.tls import server_context
from curtilage.enclave_server.model import open_model, start_starter
from curtilage.enclave_server.process import (
    OutputError,
    forbid_core_dumps,
    notice,
    out,
    parse,
    require_streams,
    restart_with,
    say,
    version,
)
from curtilage.enclave_server.service import Surroundings, serve_until_signalled
from curtilage.enclave_server.telemetry import LogForm

VALID: Final = "the configuration is valid"
EXIT_OK: Final = 0
EXIT_CONFIG: Final = 2
EXIT_FAILED: Final = 3
SERVE: Final = "serve"
EVIDENCE: Final = "evidence"
SANDBOX: Final = "sandbox"
UNCONFINED: Final = (
    'NO SANDBOX STATED: engine = "openai": this server connects to another one'
)

EXAMPLE: Final = """\
``curtilage-enclave evidence --help``: the process that talks to the TEE device.
``curtilage-enclave sandbox >sandbox.json``: the description for ``curtilage deploy
init --sandbox sandbox.json`` and ``curtilage release manifest``; with ``--isolation
process``, or with ``--config FILE`` where that says so, or sets layers on a GPU.

example:
  curtilage-enclave --config /etc/curtilage/enclave.toml

  environment = "development"
  listen = "unix:/run/curtilage/enclave.sock"    # or "192.0.2.1:443" with [tls]
  evidence = "unix:/run/curtilage/evidence.sock"
  release = "/var/lib/curtilage/release"

  [[trust_anchors]]
  kind = "emulated"                              # or amd, intel, aws, nvidia
  product = "Genoa"                              # for amd and emulated
  certificate = "/var/lib/curtilage/root.pem"    # optional for a vendor's

  [log]
  origin = "log.example/releases"
  key = "base64 of 32 bytes"
  quorum = 1
  [[log.witnesses]]
  name = "witness.example"
  key = "base64 of 32 bytes"

  [model]
  path = "embedded"                              # or a path, with its sha256

  [tls]                                          # with an IP address only
  certificate = "/etc/curtilage/enclave.pem"
  key = "/etc/curtilage/enclave.key"

  [counters]                                     # optional: GET /metrics, coarse
  listen = "unix:/run/curtilage/counters.sock"

exit codes: 0 stopped or checked, 2 usage or configuration, 3 model, evidence,
            address, or a standard stream that cannot be written to
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == [EVIDENCE]:
        from curtilage.enclave_server.acquire import command as evidence_command  # noqa: PLC0415 - another process

        return evidence_command.main(given[1:])
    # Before there is a key or a request in memory.
    forbid_core_dumps()
    try:
        require_streams()
        # With arguments of a caller, the process is the caller's, who still needs it.
        parser = _parser(needs_config=SANDBOX not in given)
        return _command(parse(parser, given), locks=arguments is None)
    except OutputError:
        return EXIT_FAILED


def _command(options: argparse.Namespace, *, locks: bool) -> int:
    path: Path = options.config or Path(SANDBOX)
    try:
        if options.command == SANDBOX:
            return _describe(options.config, options.landlock, options.isolation)
        config = _read_config(path)
        if options.check:
            return _check(config)
        if locks:
            # glibc and Python read these when they start.
            restart_with(SETTINGS)
        _serve(config, LogForm(options.log), locks=locks)
    except ConfigError as error:
        for problem in error.problems:
            notice(f"{path}: {problem}")
        return EXIT_CONFIG
    except EnclaveError as error:
        notice(f"cannot serve: {error}")
        return EXIT_FAILED
    except OSError as error:
        notice(f"cannot listen: {error.strerror or type(error).__name__}")
        return EXIT_FAILED
    return EXIT_OK


def _serve(config: EnclaveConfig, log: LogForm, *, locks: bool) -> None:
    """Serve until a signal; raises as ``serve_until_signalled``.

    Args:
        config: the configuration.
        log: how changes of state are written.
        locks: whether this process locks itself, if it can do with what it has.
    """
    if locks and config.model.peer is not None:
        notice(UNCONFINED)
        locks = False
    # While this process has nothing to hide, and may still start one.
    starter = start_starter() if locks else None
    make_loop, timer = frame_loop()
    around = Surroundings(
        out=out,
        notice=notice,
        open_model=partial(open_model, sized=notice, starter=starter),
        lock=lock if locks else None,
        watch=None if starter is None else starter.watch,
        log=log,
        timer=timer,
    )
    try:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(serve_until_signalled(config, around))
    finally:
        if starter is not None:
            starter.close()


def _describe(path: Path | None, landlock: int, given: str | None) -> int:
    model = None if path is None else _read_config(path).model
    if model is not None and given not in {None, model.isolation}:
        raise ConfigError(f"model.isolation: not {given}")
    if model is not None and model.peer is not None:
        raise ConfigError('model.engine: "openai" needs connections, so no sandbox')
    isolation = Isolation(model.isolation if model else given or Isolation.SHARED)
    text = description(
        landlock=landlock,
        devices=model is not None and model.gpu_layers > 0,
        forks=isolation is Isolation.PROCESS,
    )
    # Without a line feed: the digest is that of the file.
    say(sys.stdout, text.decode("ascii"))
    notice(
        f"sha256 {sha256(text).hexdigest()}; for the manifest: --isolation {isolation}"
        f" --ephemerality {PROMISED[isolation]}"
    )
    return EXIT_OK


def _parser(*, needs_config: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="curtilage-enclave",
        description=(
            "Answer encapsulated chat requests with a local model, under a key"
            " that evidence binds to this release. Connects to nothing but the"
            " evidence process; stores nothing. Before it has a key, it locks itself as"
            " far as the kernel can, and tries to get out."
        ),
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "command",
        nargs="?",
        choices=(SERVE, SANDBOX),
        default=SERVE,
        help="serve, which may be omitted, or print the description of its sandbox",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version()}")
    parser.add_argument(
        "--config",
        type=Path,
        required=needs_config,
        metavar="FILE",
        help="TOML file; sandbox: the usual one's, if it is left out",
    )
    parser.add_argument(
        "--log",
        choices=[each.value for each in LogForm],
        default=LogForm.TEXT.value,
        help="how a change of state is written to standard error (default: text)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="read the configuration and the files it names, then exit",
    )
    parser.add_argument(
        "--isolation",
        choices=[each.value for each in Isolation],
        help="with sandbox: what separates requests, without a configuration (default:"
        " shared)",
    )
    parser.add_argument(
        "--landlock",
        type=int,
        choices=range(1, 8),
        default=0,
        metavar="1..7",
        help="with sandbox: the kernel's version of Landlock (default: this kernel's)",
    )
    return parser


def _read_config(path: Path) -> EnclaveConfig:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {type(error).__name__}") from None
    if len(data) > MAX_CONFIG_BYTES:
        raise ConfigError(f"more than {MAX_CONFIG_BYTES} bytes")
    return parse_config(text)


def _check(config: EnclaveConfig) -> int:
    read_anchors(config.anchors)
    try:
        manifest = read_release(config.release).manifest
        # Only at its start does a server enter a sandbox; here it is known which.
        if manifest.sandbox and config.model.peer is not None:
            require_sandbox(manifest, None)
        elif manifest.sandbox:
            require_described(
                manifest.sandbox,
                devices=config.model.gpu_layers > 0,
                forks=config.model.isolation == "process",
            )
    except (BundleError, SandboxError) as error:
        raise ConfigError(f"release: {error}") from None
    if config.tls is not None:
        server_context(config.tls)
    if config.model.path is not None and not config.model.path.is_file():
        raise ConfigError("model.path: no such file")
    notice(VALID)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
