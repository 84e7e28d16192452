"""The relay's configuration: one TOML file, some flags, every key known.

Knows addresses and numbers. An unknown key, a wrong type or an address of a
kind not listed here refuses the whole file, with all problems named at once.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from curtilage.relay.access_keys import KeyRecord, parse_key_record
from curtilage.relay.client_limits import ClientLimits
from curtilage.relay.errors import ConfigError
from curtilage.relay.forward import MAX_NODES
from curtilage.relay.telemetry import TelemetrySettings
from curtilage.relay.toml_reader import Table, read_toml

HOST: Final = re.compile(r"[a-z0-9.-]{1,253}|\[[0-9a-f:.]{2,45}\]")
ORIGIN: Final = re.compile(
    r"https?://(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?/?"
)
"""For Host and nginx's configuration: no byte that has a special meaning there."""
SAFE_TEXT: Final = re.compile(r"[A-Za-z0-9/._@:,+=\[\]-]+")
"""Characters without a special meaning in a text for nginx or Envoy."""
NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
RESERVED: Final = frozenset({"healthz"})
RESERVED_NODES: Final = frozenset({"keys", "bundle"})
"""Path segments below a pool's name that are not nodes."""
MAX_PORT: Final = 65535
KEYS: Final = frozenset(
    {
        "environment",
        "listen",
        "hosts",
        "gateways",
        "tls",
        "access",
        "clients",
        "limits",
        "telemetry",
        "upstream_ca_file",
    }
)


@unique
class Environment(StrEnum):
    """Environment of the relay; production is assumed."""

    PRODUCTION = "production"
    DEVELOPMENT = "development"


@dataclass(frozen=True, slots=True, kw_only=True)
class TCPAddress:
    """Address to listen at: a host and a port.

    Attributes:
        host: an address or a name.
        port: 0 takes a free one.
    """

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnixAddress:
    """A UNIX socket.

    Attributes:
        path: absolute.
    """

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPUpstream:
    """A gateway over TCP.

    Attributes:
        origin: ``https://host[:port]``, or ``http`` to this machine.
    """

    origin: str


Upstream = HTTPUpstream | UnixAddress
Listen = TCPAddress | UnixAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSSettings:
    """TLS towards clients.

    Attributes:
        certificate: PEM, the chain included.
        key: PEM, its private key.
        client_ca: PEM; only clients with a certificate from it may connect.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every bound of the relay, each with its reason.

    Attributes:
        max_request_bytes: the largest size class of an encapsulated request.
        max_answer_bytes: above the longest padded answer (4096 frames of 530).
        max_connections: with ``max_upstream`` below the usual 1024 descriptors.
        max_upstream: requests at the gateways at once; the next one waits.
            Below the 64 connections that an enclave takes by default, so that
            fetches of keys and bundle, and health checks, still find room when all
            places are taken.
        place_wait_s: how long a request may wait for one of these places; then it
            gets 429. Shorter than a client waits for the first frame (15 s).
        max_uploads: places for requests that are passed on piece by piece while they
            arrive (Incremental); the next one gets 429. A third of the places, so that
            slow senders cannot take them all. One client may have a quarter of these,
            unless the caps of ``clients`` are off.
        header_timeout_s: from the start of a connection, or a further request's
            first byte, to the end of its head.
        idle_timeout_s: how long a connection may wait for its next request.
        body_timeout_s: how long content may take beyond its minimum rate.
        min_body_bytes_per_s: slower content is refused.
        write_timeout_s: how long a client may leave a piece unread.
        connect_timeout_s: to reach a gateway.
        upstream_read_timeout_s: silence of a gateway; long, since an enclave
            that does not pace its answers is silent while a request waits.
        fetch_timeout_s: one whole fetch of keys or of the bundle.
        node_fetch_timeout_s: the same, of one of a pool's nodes: the list waits for
            the slowest, and a node that is too late is left out.
        cache_s: age at which a copy of keys or bundle is no longer served.
        drain_delay_s: after the signal to stop, how long to keep listening with
            ``/healthz`` reporting "draining", so that load balancers can react.
        shutdown_grace_s: time for running requests after that; several times the
            shortest padded answer (64 frames every 50 ms).
    """

    max_request_bytes: int = 1024 * 1024
    max_answer_bytes: int = 8 * 1024 * 1024
    max_connections: int = 512
    max_upstream: int = 48
    place_wait_s: float = 10.0
    max_uploads: int = 16
    header_timeout_s: float = 10.0
    idle_timeout_s: float = 30.0
    body_timeout_s: float = 10.0
    min_body_bytes_per_s: int = 4096
    write_timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    upstream_read_timeout_s: float = 120.0
    fetch_timeout_s: float = 10.0
    node_fetch_timeout_s: float = 3.0
    cache_s: int = 30
    drain_delay_s: float = 0.0
    shutdown_grace_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayConfig:
    """Configuration of one relay.

    Attributes:
        listen: the address that clients connect to.
        gateways: name to upstream; at least one. A pool's nodes are here as
            ``pool/node``.
        environment: development alone permits plain HTTP.
        hosts: names that Host may give; empty means any.
        tls: TLS towards clients; None leaves it to a proxy in front.
        keys: records of the access keys; none: no key is required.
        clients: limits for each client.
        limits: bounds.
        telemetry: where counts are sent; nowhere unless configured.
        upstream_ca_file: trust these certificates for gateways, not the system's.
    """

    listen: Listen
    gateways: Mapping[str, Upstream]
    environment: Environment = Environment.PRODUCTION
    hosts: frozenset[bytes] = frozenset()
    tls: TLSSettings | None = None
    keys: tuple[KeyRecord, ...] = ()
    clients: ClientLimits = field(default_factory=ClientLimits)
    limits: Limits = field(default_factory=Limits)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    upstream_ca_file: Path | None = None

    @property
    def pools(self) -> Mapping[str, tuple[str, ...]]:
        """The ids of each pool's nodes, by the pool's name."""
        pools: dict[str, tuple[str, ...]] = {}
        for name in self.gateways:
            pool, slash, node = name.partition("/")
            if slash:
                pools[pool] = (*pools.get(pool, ()), node)
        return pools


def parse_config(text: str, overrides: Mapping[str, object]) -> RelayConfig:
    """Read a configuration file's text.

    Args:
        text: TOML; may be empty.
        overrides: values from flags, under the file's keys; ``gateways`` is added
            to the file's, all others replace the file's.

    Raises:
        ConfigError: with every problem found.
    """
    tree = read_toml(text)
    for key, value in overrides.items():
        present = tree.get(key)
        if isinstance(value, dict) and isinstance(present, dict):
            tree[key] = {**present, **value}
        else:
            tree[key] = value
    return _config(Table(tree))


def _config(top: Table) -> RelayConfig:
    top.only(KEYS)
    environment = read_environment(top)
    listen = read_listen(top)
    gateways = _gateways(top, environment)
    hosts = top.texts("hosts")
    for name in hosts:
        if HOST.fullmatch(name) is None:
            top.problem(
                "hosts", f"{name!r}: expected a name in lower case, without a port"
            )
    tls = read_tls(top, listen)
    keys = _keys(top)
    clients = top.numbers("clients", ClientLimits())
    limits = top.numbers("limits", Limits())
    telemetry = _telemetry(top.table("telemetry"))
    ca_file = top.path("upstream_ca_file")
    # Last: what replaced a wrong value must never be served with.
    if top.problems or listen is None:
        raise ConfigError(*top.problems)
    return RelayConfig(
        listen=listen,
        gateways=gateways,
        environment=environment,
        hosts=frozenset(name.encode() for name in hosts),
        tls=tls,
        keys=keys,
        clients=clients,
        limits=limits,
        telemetry=telemetry,
        upstream_ca_file=ca_file,
    )


def read_environment(top: Table) -> Environment:
    """Read where the program runs; absent: production."""
    named = top.values.get("environment", Environment.PRODUCTION.value)
    if named in list(Environment):
        return Environment(str(named))
    top.problem("environment", 'expected "production" or "development"')
    # Continue as production, so that its problems are reported as well.
    return Environment.PRODUCTION


def read_listen(top: Table) -> Listen | None:
    """Read the address to listen at; None: it is wrong."""
    return top.parsed("listen", parse_listen, "expected host:port or unix:/path")


def read_tls(top: Table, listen: Listen | None) -> TLSSettings | None:
    """Read the files of TLS towards clients; None: none are named, or wrong."""
    if "tls" not in top.values:
        return None
    table = top.table("tls")
    table.only({"certificate", "key", "client_ca"})
    if isinstance(listen, UnixAddress):
        top.problem("tls", "not on a UNIX socket")
    certificate, private = table.path("certificate"), table.path("key")
    client_ca = table.path("client_ca")
    if certificate is None or private is None:
        top.problem("tls", "expected certificate and key, both paths")
        return None
    return TLSSettings(certificate=certificate, key=private, client_ca=client_ca)


def _gateways(top: Table, environment: Environment) -> Mapping[str, Upstream]:
    table = top.table("gateways")
    if not table.values:
        top.problem("gateways", "expected at least one, name = upstream")
    addresses: dict[str, str] = {}
    for name, value in table.values.items():
        if NAME.fullmatch(name) is None or name in RESERVED:
            table.problem(
                name,
                "a name is 1 to 32 of a-z, 0-9 and -, begins with a letter or digit, "
                "and is not healthz",
            )
        elif isinstance(value, str):
            addresses[name] = value
        elif isinstance(value, dict):
            nodes = _pool(table, name).items()
            addresses |= {f"{name}/{node}": address for node, address in nodes}
        else:
            table.problem(name, "expected a text, or a table of a pool's nodes")
    gateways: dict[str, Upstream] = {}
    for name, address in addresses.items():
        try:
            gateways[name] = parse_upstream(address, environment)
        except ConfigError as error:
            table.problem(name, str(error))
    return gateways


def _pool(gateways: Table, name: str) -> Mapping[str, str]:
    """Return the addresses of a pool's nodes with valid names."""
    nodes = gateways.table(name)
    if not 1 <= len(nodes.values) <= MAX_NODES:
        gateways.problem(name, f"a pool has 1 to {MAX_NODES} nodes, id = upstream")
    found: dict[str, str] = {}
    for node, address in nodes.values.items():
        if NAME.fullmatch(node) is None or node in RESERVED_NODES:
            nodes.problem(
                node,
                "a node's id is 1 to 32 of a-z, 0-9 and -, begins with a letter or "
                "digit, and is neither keys nor bundle",
            )
        elif not isinstance(address, str):
            nodes.problem(node, "expected a text")
        # One enclave under two ids would get two shares of the requests, and
        # clients, which compare keys, would take the second for a missing node.
        elif address in found.values():
            nodes.problem(node, "listed twice")
        else:
            found[node] = address
    return found


def _keys(top: Table) -> tuple[KeyRecord, ...]:
    table = top.table("access")
    table.only({"keys"})
    records: dict[str, KeyRecord] = {}
    for number, line in enumerate(table.texts("keys"), 1):
        # Never the line itself: it might be a key that was put there by mistake.
        record = parse_key_record(line)
        if record is None or record.name in records:
            table.problem(
                "keys",
                f"entry {number} is not a line of curtilage-relay make-key, or its "
                "name occurs twice",
            )
        else:
            records[record.name] = record
    if "access" in top.values and not (records or top.problems):
        table.problem("keys", "expected at least one")
    return tuple(records.values())


def _telemetry(table: Table) -> TelemetrySettings:
    table.only({"otlp", "prometheus"})
    otlp = table.values.get("otlp")
    if otlp is not None and not (
        isinstance(otlp, str) and otlp.startswith(("http://", "https://"))
    ):
        table.problem("otlp", "expected http(s)://host:port")
        otlp = None
    if "prometheus" not in table.values:
        return TelemetrySettings(otlp_endpoint=otlp)
    address = table.parsed("prometheus", parse_listen, "expected host:port")
    if isinstance(address, UnixAddress):
        table.problem("prometheus", "expected host:port")
    if not isinstance(address, TCPAddress):
        return TelemetrySettings()
    return TelemetrySettings(
        otlp_endpoint=otlp,
        prometheus_host=address.host,
        prometheus_port=address.port,
    )


def named_files(tls: TLSSettings | None, ca_file: Path | None) -> Mapping[str, str]:
    """Return the paths that a configuration names, by their keys."""
    files = {"upstream_ca_file": ca_file}
    if tls is not None:
        files["tls.certificate"] = tls.certificate
        files["tls.key"] = tls.key
        files["tls.client_ca"] = tls.client_ca
    return {key: str(path) for key, path in files.items() if path is not None}


def is_exposed(config: RelayConfig) -> bool:
    """Return whether other machines can reach this relay without TLS."""
    return config.tls is None and is_remote(config.listen)


def is_remote(listen: Listen) -> bool:
    """Return whether other machines can reach this address."""
    return isinstance(listen, TCPAddress) and not _is_loopback(listen.host)


def parse_listen(text: str) -> Listen:
    """Read ``host:port`` or ``unix:/path``.

    Raises:
        ConfigError: neither.
    """
    if text.startswith("unix:"):
        return _unix(text)
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isdecimal() and int(port) <= MAX_PORT):
        raise ConfigError(f"{text!r}: expected host:port or unix:/path")
    return TCPAddress(host=host, port=int(port))


def parse_upstream(text: str, environment: Environment) -> Upstream:
    """Read ``https://host[:port]``, ``unix:/path`` or, for development, http.

    Raises:
        ConfigError: none of these, or plain HTTP where it is not allowed.
    """
    if text.startswith("unix:"):
        return _unix(text)
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise ConfigError(f"{text!r}: not a host or not a port") from None
    # Matched as written: what urlsplit makes of unusual characters is not what is put
    # into Host, or into nginx's configuration.
    if ORIGIN.match(text) is None or not url.hostname or port == 0:
        raise ConfigError(f"{text!r}: expected https://host[:port] or unix:/path")
    if ORIGIN.fullmatch(text) is None:
        raise ConfigError(f"{text!r}: only scheme, host and port; paths are fixed")
    # Over plain HTTP the content is still sealed, but an observer sees the time and
    # length of each exchange, and an active attacker can answer for the gateway.
    if url.scheme == "http" and not _is_loopback(url.hostname):
        raise ConfigError(f"{text!r}: plain http only to a loopback address")
    if url.scheme == "http" and environment is not Environment.DEVELOPMENT:
        raise ConfigError(f'{text!r}: plain http only with environment = "development"')
    return HTTPUpstream(origin=f"{url.scheme}://{url.netloc}")


def upstream_text(upstream: Upstream) -> str:
    """Write an address as ``parse_upstream`` reads it."""
    if isinstance(upstream, UnixAddress):
        return f"unix:{upstream.path}"
    return upstream.origin


def _unix(text: str) -> UnixAddress:
    path = text.removeprefix("unix:")
    if not path.startswith("/") or "\0" in path:
        raise ConfigError(f"{text!r}: expected unix: and an absolute path")
    return UnixAddress(path=path)


def is_address(host: str) -> bool:
    """Return whether a host is an IP address, and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    # No name is: another machine may answer for it.
    return is_address(host) and ipaddress.ip_address(host).is_loopback
