"""The configuration of a balancer: what it serves, and its bounds.

Its backends are interchangeable relays, or enclaves, which are not. A file that would
let the balancer choose an enclave, or see both clients and enclaves, is refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from curtilage.relay.config import (
    SAFE_TEXT,
    Environment,
    Listen,
    TCPAddress,
    TLSSettings,
    Upstream,
    is_address,
    is_remote,
    named_files,
    parse_upstream,
    read_environment,
    read_listen,
    read_tls,
    upstream_text,
)
from curtilage.relay.errors import ConfigError
from curtilage.relay.toml_reader import Table, read_toml

KEYS: Final = frozenset(
    {
        "clients",
        "enclaves",
        "environment",
        "limits",
        "listen",
        "relays",
        "tls",
        "upstream_ca_file",
    }
)
NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*")
DROPPED: Final = (
    "Forwarded",
    "Via",
    "X-Envoy-External-Address",
    "X-Envoy-Internal",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Real-IP",
    "X-Request-ID",
)
"""Fields of a request that stop here: those in which proxies name the client. All
others are sent unchanged to a relay, which reads three of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The limits of one client in front of relays; 0 turns a cap off.

    The relays see only the balancer's address, so their own caps must be off.

    Attributes:
        exchanges: requests of one client in progress at once.
        requests_per_s: in the long run.
        burst: requests at once, after a pause.
    """

    exchanges: int = 8
    requests_per_s: float = 50.0
    burst: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancerLimits:
    """Every bound of a balancer, each with its reason.

    Attributes:
        max_connections: of clients, at once.
        max_per_backend: requests at one backend at once; the next one is refused.
            Below the 64 connections that an enclave takes by default, so that health
            checks still find room; a relay serves as many as it has places (48), and
            the others wait in its queue.
        connect_timeout_s: to reach a backend. Short: meanwhile a person waits.
        header_timeout_s: from a connection's begin to the end of a head.
        idle_timeout_s: how long a connection may wait for its next request.
        silence_s: the longest silence within a request or an answer; as long as a
            relay waits for an enclave.
        check_s: between two health checks of a backend, and how long each may take: a
            backend that is only busy must not be left out. A relay's
            ``drain_delay_s`` must be longer.
        shutdown_grace_s: time for running requests after the signal to stop.
    """

    max_connections: int = 1024
    max_per_backend: int = 56
    connect_timeout_s: float = 2.0
    header_timeout_s: float = 10.0
    idle_timeout_s: float = 30.0
    silence_s: float = 120.0
    check_s: float = 5.0
    shutdown_grace_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancerConfig:
    """Configuration of one balancer.

    Attributes:
        listen: the address that clients connect to.
        tls: TLS towards clients; None for this machine only.
        names: values of Host, with the backends of each. Several are relays: each can
            answer any request. An enclave is always the only backend of its name.
        chooses: whether the backends are relays, so that the balancer may choose.
        shares: limits for each client; only clients of relays are counted.
        limits: bounds.
        upstream_ca_file: trust these certificates for backends, not the system's.
    """

    listen: Listen
    tls: TLSSettings | None
    names: Mapping[str, tuple[Upstream, ...]]
    chooses: bool
    shares: Shares = field(default_factory=Shares)
    limits: BalancerLimits = field(default_factory=BalancerLimits)
    upstream_ca_file: Path | None = None


def parse_balancer(text: str) -> BalancerConfig:
    """Read a balancer's configuration file.

    Raises:
        ConfigError: with every problem found.
    """
    top = Table(read_toml(text))
    top.only(KEYS)
    listen = read_listen(top)
    tls = read_tls(top, listen)
    chooses = "relays" in top.values
    # A balancer in front of both would see the client and the enclave that answers:
    # knowledge that is to be divided between two parties.
    if chooses == ("enclaves" in top.values):
        both = ", not both: no balancer may see both clients and enclaves"
        top.problems.append(f"expected [relays] or [enclaves]{both if chooses else ''}")
    names = _names(top, "relays" if chooses else "enclaves")
    if not chooses and "clients" in top.values:
        top.problem(
            "clients", "before enclaves each client is a relay with all its own"
        )
    shares = top.numbers("clients", Shares())
    limits = top.numbers("limits", BalancerLimits())
    ca_file = top.path("upstream_ca_file")
    _check_listen(top, listen, tls)
    _check_files(top, tls, ca_file)
    if top.problems or listen is None:
        raise ConfigError(*top.problems)
    return BalancerConfig(
        listen=listen,
        tls=tls,
        names=names,
        chooses=chooses,
        shares=shares,
        limits=limits,
        upstream_ca_file=ca_file,
    )


def _names(top: Table, key: str) -> Mapping[str, tuple[Upstream, ...]]:
    environment = read_environment(top)
    rows = top.table(key)
    if not rows.values and key in top.values:
        top.problem(key, "expected at least one name")
    choose = key == "relays"
    names = {
        name: _backends(rows, name, environment, choose=choose) for name in rows.values
    }
    seen = [backend for backends in names.values() for backend in backends]
    # Listed twice, it would get twice its share.
    for backend in dict.fromkeys(seen):
        if seen.count(backend) > 1:
            top.problem(key, f"{upstream_text(backend)!r} is named twice")
    return names


def _backends(
    rows: Table, name: str, environment: Environment, *, choose: bool
) -> tuple[Upstream, ...]:
    if NAME.fullmatch(name) is None:
        rows.problem(name, "expected a name in lower case, without a port")
    texts, wanted = rows.values.get(name), "expected a list of addresses"
    if not choose:
        # A request is sealed to one enclave's key and cannot be opened elsewhere; and a
        # balancer that could choose could steer a client to an enclave.
        texts = [texts]
        wanted = "expected one address: each enclave has a key of its own"
    if not isinstance(texts, list) or not texts:
        rows.problem(name, wanted)
        return ()
    backends: list[Upstream] = []
    for text in cast("list[object]", texts):
        if not isinstance(text, str):
            rows.problem(name, wanted)
            continue
        try:
            backends.append(parse_upstream(text, environment))
        except ConfigError as error:
            rows.problem(name, str(error))
        _check_text(rows, name, text)
    # The same transport for all backends of one name: the next address to be tried
    # must not be a weaker one.
    if len({upstream_text(backend).partition(":")[0] for backend in backends}) > 1:
        rows.problem(name, "expected one kind of address for all")
    return tuple(backends)


def _check_listen(top: Table, listen: Listen | None, tls: TLSSettings | None) -> None:
    if not isinstance(listen, TCPAddress):
        return
    if tls is None and is_remote(listen):
        # An observer of the line would see names, media types and where each message
        # ends, and a relay's access keys.
        top.problem("tls", "needed where other machines reach this")
    if listen.port == 0:
        top.problem("listen", "expected a port; 0 cannot be found by clients")
    if not is_address(listen.host):
        top.problem("listen", "expected an address, not a name")


def _check_files(top: Table, tls: TLSSettings | None, ca_file: Path | None) -> None:
    for key, path in named_files(tls, ca_file).items():
        _check_text(top, key, path)
        if not path.startswith("/"):
            top.problem(key, "expected an absolute path")
    listen = top.values.get("listen")
    if isinstance(listen, str):
        _check_text(top, "listen", listen)


def _check_text(table: Table, key: str, text: str) -> None:
    # A semicolon or a brace in a path would end our line and begin another directive.
    if SAFE_TEXT.fullmatch(text) is None:
        table.problem(
            key,
            f"{text!r} has characters that nginx or Envoy would read as its own",
        )
