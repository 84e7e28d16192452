"""The command curtilage-relay: read the configuration, serve, stop on a signal."""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from curtilage.relay import access_keys as key_command
from curtilage.relay.app import Relay
from curtilage.relay.balancer import command as balancer_command
from curtilage.relay.config import RelayConfig, is_exposed, parse_config
from curtilage.relay.errors import ConfigError, StartError
from curtilage.relay.nginx import command as nginx_command
from curtilage.relay.process import (
    EXIT_CONFIG,
    OutputError,
    allow_descriptors,
    forbid_core_dumps,
    make_parser,
    parse,
    read_config_file,
    require_streams,
    say,
    version,
)
from curtilage.relay.telemetry import LogForm, StateLog, configure
from curtilage.relay.tls import make_client_context, make_server_context

EXIT_START: Final = 3

SUBCOMMANDS: Final[Mapping[str, Callable[[Sequence[str]], int]]] = {
    "make-key": key_command.run,
    "nginx-config": nginx_command.run,
    "balancer-config": balancer_command.run,
}
"""Subcommands that the first argument may name."""

DESCRIPTION: Final = """\
Pass sealed requests to gateways, and their sealed answers back.

The relay sees who sends a request; it cannot see its content, which is sealed to
the gateway's key. Three fields pass (Content-Type, the length, Incremental);
cookies, addresses, queries and everything else are dropped. It logs no request:
standard error gets one line when a gateway becomes unreachable, or reachable again.
"""
EPILOG: Final = """\
example (relay.toml):
  listen = "0.0.0.0:8443"                # or "unix:/run/relay/relay.sock"
  hosts = ["relay.example"]              # other names in Host: 421; absent: any
  upstream_ca_file = "/etc/ca.pem"       # absent: the system's certificates
  [gateways]
  demo = "https://gateway.example"       # or "unix:/run/enclave/gateway.sock"
  [gateways.many]                        # a pool: clients draw one of its nodes
  a = "https://a.gateway.example"
  b = "https://b.gateway.example"
  [tls]                                  # absent: plain HTTP, for a proxy in front
  certificate = "/etc/relay/chain.pem"
  key = "/etc/relay/key.pem"
  client_ca = "/etc/relay/clients.pem"   # only clients with a certificate from it
  [access]                               # absent: no key is required
  keys = ["hospital-a:salt:hash"]        # lines of curtilage-relay make-key
  [clients]                              # caps for one address (IPv6: one /56)
  connections = 32                       # 0 turns a cap off; required if a proxy
  exchanges = 4                          # in front hides the addresses
  requests_per_s = 50
  burst = 200
  [limits]                               # each has a default
  max_upstream = 48                      # requests at the gateways at once,
  place_wait_s = 10                      # and how long others wait for a place
  shutdown_grace_s = 30                  # for running requests, after SIGTERM
  drain_delay_s = 0                      # before it: /healthz reports "draining"

  curtilage-relay --config relay.toml --check
  curtilage-relay --config relay.toml

the same without a file, on one machine:
  curtilage-relay --listen 127.0.0.1:8080 --environment development \\
                  --gateway demo=http://127.0.0.1:9000

Clients then use http://127.0.0.1:8080/demo: POST /demo for a request,
GET /demo/keys, GET /demo/bundle (of a pool: POST /many/a for its node a, and
keys and bundles of all nodes in one list). GET /healthz answers "ok"; "degraded",
also with 200, while a gateway cannot be reached; "draining" with 503.

When it listens, it writes one line of JSON to standard output: {"ready": true,
"listen": "...", "transport": "plain", "access": "open"}. A request with
Incremental: ?1 (RFC 10036) is passed on as it arrives, and so is its answer; others
are read whole first.
Refusals have constant texts: 401 no key, 413 too large, 415 not OHTTP, 421 another
host, 429 too often or too many at once, 502 and 504 the gateway. Nothing is ever
sent twice.

signals: SIGTERM or SIGINT: stop listening, let running requests end, exit;
         a second one: exit at once.
other commands: curtilage-relay make-key --help: keys for clients
                curtilage-relay nginx-config --help: the same relay on nginx
                curtilage-relay balancer-config --help: for many relays or enclaves

exit codes: 0 stopped by a signal, or --check found nothing wrong;
            2 wrong usage or configuration; 3 cannot start (for --check: a file
            of TLS cannot be used), or cannot write to standard output or
            standard error.
"""
EXPOSED: Final = """\
curtilage-relay: no TLS towards clients: over a network this needs a proxy with TLS \
in front, or [tls] here
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    # First: what is read from here on, the TLS key included, must not reach a disk.
    forbid_core_dumps()
    try:
        require_streams()
        words = sys.argv[1:] if arguments is None else list(arguments)
        if words and words[0] in SUBCOMMANDS:
            return SUBCOMMANDS[words[0]](words[1:])
        return _command(parse(_parser(), words))
    except OutputError:
        return EXIT_START


def _command(options: argparse.Namespace) -> int:
    try:
        config = _load(options)
        if not options.check:
            return _run(config, LogForm(options.log))
        # TLS files are read as at start; a key must match its certificate.
        if config.tls is not None:
            make_server_context(config.tls)
        if config.upstream_ca_file is not None:
            make_client_context(config.upstream_ca_file)
        say(sys.stdout, f"{len(config.gateways)} gateway(s): configuration valid\n")
    except ConfigError as error:
        for problem in error.problems:
            say(sys.stderr, f"curtilage-relay: {problem}\n")
        return EXIT_CONFIG
    except StartError as error:
        say(sys.stderr, f"curtilage-relay: {error}\n")
        return EXIT_START
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = make_parser("curtilage-relay", DESCRIPTION, EPILOG)
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
        "--log",
        choices=[each.value for each in LogForm],
        default=LogForm.TEXT.value,
        help="how a change of state is written to standard error (default: text)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="validate the configuration and the files of TLS that it names; exit",
    )
    return parser


def _load(options: argparse.Namespace) -> RelayConfig:
    overrides: dict[str, object] = {
        key: value
        for key in ("listen", "environment")
        if (value := getattr(options, key)) is not None
    }
    gateways: dict[str, str] = {}
    for text in options.gateway:
        name, mark, upstream = text.partition("=")
        if not mark:
            raise ConfigError(f"--gateway {text!r}: expected NAME=UPSTREAM")
        gateways[name] = upstream
    if gateways:
        overrides["gateways"] = gateways
    text = "" if options.config is None else read_config_file(options.config)
    return parse_config(text, overrides)


def _run(config: RelayConfig, form: LogForm) -> int:
    if is_exposed(config):
        say(sys.stderr, EXPOSED)
    allow_descriptors(config.limits.max_connections + config.limits.max_upstream)
    make_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415 - an extra

        make_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(_serve(config, form))
    return 0


def _write(line: str) -> None:
    # The relay continues even if standard error cannot be written.
    with contextlib.suppress(OutputError):
        say(sys.stderr, line + "\n")


async def _serve(config: RelayConfig, form: LogForm) -> None:
    stopped, hurry = asyncio.Event(), asyncio.Event()

    # A second signal means: do not wait for running answers.
    def on_signal() -> None:
        (hurry if stopped.is_set() else stopped).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    transport = "plain"
    if config.tls is not None:
        transport = "tls" if config.tls.client_ca is None else "mutual tls"
    access = "keys" if config.keys else "open"
    telemetry = configure(config.telemetry)
    log = StateLog(config.gateways, form, write=_write)
    relay = Relay(config, telemetry=telemetry, log=log)
    try:
        address = await relay.start()
        # Not before it listens: a supervisor that reads the line sends requests at
        # once.
        ready = {
            "ready": True,
            "listen": address,
            "transport": transport,
            "access": access,
        }
        say(sys.stdout, json.dumps(ready) + "\n")
        await stopped.wait()
    finally:
        await relay.stop(hurry)
        telemetry.close()


if __name__ == "__main__":
    sys.exit(main())
