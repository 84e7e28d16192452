"""The command curtilage-relay: read the configuration, serve, stop on a signal."""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from curtilage.relay.app import Relay
from curtilage.relay.config import RelayConfig, parse_config
from curtilage.relay.errors import ConfigError, StartError
from curtilage.relay.process import (
    OutputError,
    forbid_core_dumps,
    parse,
    require_streams,
    say,
    version,
)
from curtilage.relay.telemetry import configure
from curtilage.relay.view import BANNER

EXIT_CONFIG: Final = 2
EXIT_START: Final = 3

DESCRIPTION: Final = """\
Pass sealed requests to gateways, and their sealed answers back.

The relay sees who asks; it cannot see what is asked, since everything is sealed
to the gateway's key. Three fields pass (Content-Type, the length, Incremental);
cookies, addresses, queries and everything else stop here. It keeps no log.
"""
EPILOG: Final = """\
example (relay.toml):
  listen = "127.0.0.1:8080"              # or "unix:/run/relay/relay.sock"
  [gateways]
  demo = "https://gateway.example"       # or "unix:/run/enclave/gateway.sock"

  curtilage-relay --config relay.toml --check
  curtilage-relay --config relay.toml

the same without a file, on one machine:
  curtilage-relay --listen 127.0.0.1:8080 --environment development \\
                  --gateway demo=http://127.0.0.1:9000

Clients then use http://127.0.0.1:8080/demo: POST /demo for a request,
GET /demo/keys, GET /demo/bundle; GET /healthz answers "ok". When it listens, one
line of JSON on standard output says where: {"ready": true, "listen": "..."}.

exit codes: 0 stopped by a signal, or --check found nothing wrong;
            2 wrong usage or configuration; 3 cannot start, or cannot write
            to standard output or standard error.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    forbid_core_dumps()
    try:
        require_streams()
        return _command(parse(_parser(), arguments))
    except OutputError:
        return EXIT_START


def _command(options: argparse.Namespace) -> int:
    try:
        config = _load(options)
        if options.check:
            say(sys.stdout, f"{len(config.gateways)} gateway(s): configuration valid\n")
            return 0
        return _run(config)
    except ConfigError as error:
        for problem in error.problems:
            say(sys.stderr, f"curtilage-relay: {problem}\n")
        return EXIT_CONFIG
    except StartError as error:
        say(sys.stderr, f"curtilage-relay: {error}\n")
        return EXIT_START


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="curtilage-relay",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version()}")
    parser.add_argument("--config", metavar="FILE", help="configuration, TOML")
    parser.add_argument("--listen", metavar="ADDRESS", help="host:port or unix:/path")
    parser.add_argument(
        "--gateway",
        metavar="NAME=UPSTREAM",
        action="append",
        default=[],
        help="a gateway by name; may be repeated",
    )
    parser.add_argument(
        "--environment",
        choices=["production", "development"],
        help="development permits plain http to this machine (default: production)",
    )
    parser.add_argument(
        "--unsafe-record-view",
        metavar="FILE",
        help="development only: record what an operator could see, as JSON lines",
    )
    parser.add_argument(
        "--check", action="store_true", help="validate the configuration and exit"
    )
    return parser


def _load(options: argparse.Namespace) -> RelayConfig:
    overrides: dict[str, object] = {
        key: value
        for key in ("listen", "environment", "unsafe_record_view")
        if (value := getattr(options, key)) is not None
    }
    if options.gateway:
        overrides["gateways"] = dict(_split_gateway(text) for text in options.gateway)
    return parse_config(_read(options.config), overrides)


def _split_gateway(text: str) -> tuple[str, str]:
    name, mark, upstream = text.partition("=")
    if not mark:
        raise ConfigError(f"--gateway {text!r}: expected NAME=UPSTREAM")
    return name, upstream


def _read(path: str | None) -> str:
    if path is None:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path}: {error}") from None


def _run(config: RelayConfig) -> int:
    if config.unsafe_record_view is not None:
        say(sys.stderr, f"{BANNER}{config.unsafe_record_view}\n")
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(config))
    return 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(config: RelayConfig) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    telemetry = configure(config.telemetry)
    relay = Relay(config, telemetry=telemetry)
    try:
        address = await relay.start()
        say(sys.stdout, json.dumps({"ready": True, "listen": address}) + "\n")
        await stopped.wait()
    finally:
        await relay.stop()
        telemetry.close()


if __name__ == "__main__":
    sys.exit(main())
