"""The relay's configuration: one TOML file, some flags, every key known.

Knows addresses and numbers. An unknown key, a wrong type or an address of a
kind not listed here refuses the whole file, with all problems named at once.
"""

import ipaddress
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum, unique
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeVar, cast
from urllib.parse import urlsplit

from curtilage.relay.access_keys import KeyRecord, parse_key_record
from curtilage.relay.client_limits import ClientLimits
from curtilage.relay.errors import ConfigError
from curtilage.relay.forward import MAX_NODES
from curtilage.relay.telemetry import TelemetrySettings

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
MAY_BE_ZERO: Final = frozenset(
    {"drain_delay_s", "connections", "exchanges", "requests_per_s", "place_wait_s"}
)
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
    """Where the relay runs; production is assumed."""

    PRODUCTION = "production"
    DEVELOPMENT = "development"


@dataclass(frozen=True, slots=True, kw_only=True)
class TCPAddress:
    """Where to listen: a host and a port.

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
    """What one relay does.

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
    return TreeReader(tree).config()


def read_toml(text: str) -> dict[str, object]:
    """Return the tree of a configuration file's text.

    Raises:
        ConfigError: it is not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}") from None


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


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # names too: another machine may answer for them


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


_Numbers = TypeVar("_Numbers", bound=_Dataclass)


class TreeReader:
    """Reads a TOML tree once and collects all problems."""

    def __init__(self, tree: Mapping[str, object]) -> None:
        self._tree = tree
        self._problems: list[str] = []

    def config(self) -> RelayConfig:
        """Return the configuration in a relay's file.

        Raises:
            ConfigError: with every problem found.
        """
        self._refuse_unknown(KEYS)
        environment = self._environment()
        listen = self._listen()
        gateways = self._gateways(environment)
        hosts = self._texts(self._tree, "hosts", "hosts")
        self._problems += [
            f"hosts: {name!r}: expected a name in lower case, without a port"
            for name in hosts
            if HOST.fullmatch(name) is None
        ]
        tls = self._tls(listen)
        keys = self._keys()
        clients = self._numbers("clients", ClientLimits())
        limits = self._numbers("limits", Limits())
        telemetry = self._telemetry()
        ca_file = self._path(self._tree, "upstream_ca_file")
        if self._problems or listen is None:
            raise ConfigError(*self._problems)
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

    def _refuse_unknown(self, known: Collection[str]) -> None:
        # Not ignored: a misspelt limit would silently keep its default.
        self._problems += [
            f"{key}: unknown key; known: {', '.join(sorted(known))}"
            for key in sorted(self._tree.keys() - set(known))
        ]

    def _environment(self) -> Environment:
        named = self._tree.get("environment", Environment.PRODUCTION.value)
        if named in list(Environment):
            return Environment(str(named))
        self._problems.append('environment: expected "production" or "development"')
        # Continue as production, so that its problems are reported as well.
        return Environment.PRODUCTION

    def _listen(self) -> Listen | None:
        value = self._tree.get("listen")
        if not isinstance(value, str):
            self._problems.append("listen: expected host:port or unix:/path")
            return None
        try:
            return parse_listen(value)
        except ConfigError as error:
            self._problems.append(f"listen: {error}")
            return None

    def _gateways(self, environment: Environment) -> Mapping[str, Upstream]:
        gateways: dict[str, Upstream] = {}
        table = self._table("gateways")
        if not table:
            self._problems.append("gateways: expected at least one, name = upstream")
        for name, value in table.items():
            if NAME.fullmatch(name) is None or name in RESERVED:
                self._problems.append(
                    f"gateways.{name}: a name is 1 to 32 of a-z, 0-9 and -, "
                    "begins with a letter or digit, and is not healthz"
                )
            elif isinstance(value, str):
                self._gateway(name, value, environment, gateways)
            elif isinstance(value, dict):
                nodes = self._pool(name, cast("dict[str, object]", value))
                for node, address in nodes.items():
                    self._gateway(f"{name}/{node}", address, environment, gateways)
            else:
                self._problems.append(
                    f"gateways.{name}: expected a text, or a table of a pool's nodes"
                )
        return gateways

    def _gateway(
        self,
        name: str,
        address: str,
        environment: Environment,
        gateways: dict[str, Upstream],
    ) -> None:
        try:
            gateways[name] = parse_upstream(address, environment)
        except ConfigError as error:
            self._problems.append(f"gateways.{name}: {error}")

    def _pool(self, name: str, nodes: Mapping[str, object]) -> Mapping[str, str]:
        """Return the addresses of a pool's nodes with valid names."""
        if not 1 <= len(nodes) <= MAX_NODES:
            self._problems.append(
                f"gateways.{name}: a pool has 1 to {MAX_NODES} nodes, id = upstream"
            )
        found: dict[str, str] = {}
        for node, address in nodes.items():
            if NAME.fullmatch(node) is None or node in RESERVED_NODES:
                self._problems.append(
                    f"gateways.{name}.{node}: a node's id is 1 to 32 of a-z, 0-9 "
                    "and -, begins with a letter or digit, and is neither keys nor "
                    "bundle"
                )
            elif not isinstance(address, str):
                self._problems.append(f"gateways.{name}.{node}: expected a text")
            # One enclave under two ids would get two shares of the requests, and
            # clients, which compare keys, would take the second for a missing node.
            elif address in found.values():
                self._problems.append(f"gateways.{name}.{node}: listed twice")
            else:
                found[node] = address
        return found

    def _tls(self, listen: Listen | None) -> TLSSettings | None:
        if "tls" not in self._tree:
            return None
        table = self._table("tls")
        for key in sorted(table.keys() - {"certificate", "key", "client_ca"}):
            self._problems.append(f"tls.{key}: unknown key")
        if isinstance(listen, UnixAddress):
            self._problems.append("tls: not on a UNIX socket")
        certificate = self._path(table, "certificate", "tls.")
        private = self._path(table, "key", "tls.")
        client_ca = self._path(table, "client_ca", "tls.")
        if certificate is None or private is None:
            self._problems.append("tls: expected certificate and key, both paths")
            return None
        return TLSSettings(certificate=certificate, key=private, client_ca=client_ca)

    def _keys(self) -> tuple[KeyRecord, ...]:
        table = self._table("access")
        for key in sorted(table.keys() - {"keys"}):
            self._problems.append(f"access.{key}: unknown key")
        records: dict[str, KeyRecord] = {}
        for number, line in enumerate(self._texts(table, "keys", "access.keys"), 1):
            # Never the line itself: it might be a key that was put there by mistake.
            record = parse_key_record(line)
            if record is None or record.name in records:
                self._problems.append(
                    f"access.keys: entry {number} is not a line of "
                    "curtilage-relay make-key, or its name occurs twice"
                )
            else:
                records[record.name] = record
        if "access" in self._tree and not (records or self._problems):
            self._problems.append("access.keys: expected at least one")
        return tuple(records.values())

    def _texts(self, table: Mapping[str, object], key: str, label: str) -> list[str]:
        value = table.get(key, [])
        texts = cast("list[object]", value) if isinstance(value, list) else [value]
        found = [text for text in texts if isinstance(text, str)]
        if not isinstance(value, list) or len(found) < len(texts):
            self._problems.append(f"{label}: expected a list of texts")
        return found

    def _numbers(self, name: str, defaults: _Numbers) -> _Numbers:
        known = {item.name: item.type for item in fields(defaults)}
        chosen: dict[str, Any] = {}  # each checked against its field below
        for key, value in self._table(name).items():
            whole = known.get(key) is int
            # To Python a bool is an int. Neither NaN nor infinity is a number of
            # seconds that ever pass, so each would turn its limit off.
            if key not in known:
                self._problems.append(f"{name}.{key}: unknown key")
            elif isinstance(value, bool) or not isinstance(
                value, int if whole else int | float
            ):
                kind = "whole number" if whole else "number"
                self._problems.append(f"{name}.{key}: expected a {kind}")
            elif not 0 < value < float("inf") and not (
                value == 0 and key in MAY_BE_ZERO
            ):
                self._problems.append(f"{name}.{key}: expected more than 0")
            else:
                chosen[key] = value
        return replace(defaults, **chosen)

    def _telemetry(self) -> TelemetrySettings:
        table = self._table("telemetry")
        for key in sorted(table.keys() - {"otlp", "prometheus"}):
            self._problems.append(f"telemetry.{key}: unknown key")
        otlp, prometheus = table.get("otlp"), table.get("prometheus")
        if otlp is not None and not (
            isinstance(otlp, str) and otlp.startswith(("http://", "https://"))
        ):
            self._problems.append("telemetry.otlp: expected http(s)://host:port")
            otlp = None
        if prometheus is None:
            return TelemetrySettings(otlp_endpoint=otlp)
        try:
            address = parse_listen(str(prometheus))
        except ConfigError as error:
            self._problems.append(f"telemetry.prometheus: {error}")
            return TelemetrySettings()
        if isinstance(address, UnixAddress):
            self._problems.append("telemetry.prometheus: expected host:port")
            return TelemetrySettings()
        return TelemetrySettings(
            otlp_endpoint=otlp,
            prometheus_host=address.host,
            prometheus_port=address.port,
        )

    def _path(
        self, table: Mapping[str, object], key: str, label: str = ""
    ) -> Path | None:
        value = table.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            self._problems.append(f"{label}{key}: expected a path")
            return None
        return Path(value)

    def _table(self, key: str) -> Mapping[str, object]:
        value = self._tree.get(key, {})
        if isinstance(value, dict):
            return cast("dict[str, object]", value)  # TOML's names are texts
        self._problems.append(f"{key}: expected a table")
        return {}
