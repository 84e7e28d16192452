"""The server block of an nginx configuration: every path and every refusal.

Expresses the relay's rules in nginx's directives. Everything that is sent on or
answered here is a constant of the text.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from curtilage.relay import forward, refusals
from curtilage.relay.config import (
    Listen,
    RelayConfig,
    TLSSettings,
    UnixAddress,
    Upstream,
)
from curtilage.relay.nginx.text import Lines, comment, indented, ms, pages, quoted
from curtilage.relay.refusals import Refusal

IDLE_UPSTREAM_S: Final = 10
"""As in the built-in relay: shorter than a gateway keeps connections."""
COPIES: Final = {
    "keys": forward.OHTTP_KEYS,
    "bundle": forward.EVIDENCE_BUNDLE,
}
_COPY_PATHS: Final = {"keys": forward.KEYS_PATH, "bundle": forward.BUNDLE_PATH}
OWN: Final[Mapping[int, Refusal]] = {
    400: Refusal.MALFORMED,
    405: Refusal.METHOD,
    408: Refusal.BODY_TOO_SLOW,
    413: Refusal.BODY_TOO_LARGE,
    429: Refusal.BUSY,
    500: Refusal.INTERNAL,
    502: Refusal.GATEWAY_UNREACHABLE,
    504: Refusal.GATEWAY_TIMEOUT,
}
"""Statuses that nginx itself may produce, and what they mean here."""
TRUE: Final = r"~^\?1( *;.*)?$"
"""A boolean Item; parameters are no error (RFC 9651, section 2)."""
KEY_REFUSAL: Final = 422
"""Its content passes: the problem type shows a client that its key is old."""
RATE_STATUS: Final = 598
"""Never sent: distinguishes nginx's two kinds of 429."""
_CLIENT_LEFT: Final = 499
"""nginx's status for a client that disconnected; no answer is sent."""
_COPY_ERRORS: Final = (400, 413, 429, 500, 502, 504)
"""Statuses that a fetch of keys may return unchanged; others become 502."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """A gateway's address in nginx's terms.

    Attributes:
        scheme: of ``proxy_pass``; http on a UNIX socket.
        authority: the value of Host.
        host: its name, as its certificate has it.
        address: of the server in its upstream block.
    """

    scheme: str
    authority: str
    host: str
    address: str


def gateway_of(upstream: Upstream) -> Gateway:
    """Split an address into its parts."""
    if isinstance(upstream, UnixAddress):
        local = "localhost"
        return Gateway(
            scheme="http",
            authority=local,
            host=local,
            address=f"unix:{upstream.path}",
        )
    url = urlsplit(upstream.origin)
    host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    return Gateway(
        scheme=url.scheme,
        authority=url.netloc,
        host=host,
        address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
    )


def upstreams(gateways: Mapping[str, Upstream]) -> Lines:
    """Define the pools of connections to the gateways."""
    lines = comment(
        "One pool of connections to each gateway, shared by all clients; names",
        "are looked up once, when nginx starts.",
    )
    for name, upstream in gateways.items():
        lines += [
            f"upstream curtilage_{name} {{",
            f"    server {gateway_of(upstream).address} max_fails=0;",
            "    keepalive 32;",
            "    keepalive_requests 1000000;",
            f"    keepalive_timeout {IDLE_UPSTREAM_S}s;",
            "}",
        ]
    return [*lines, ""]


def server(config: RelayConfig) -> Lines:
    """Write the server block: every path and every refusal."""
    hosts = [_refuse("$curtilage_host = ''", Refusal.MISDIRECTED)]
    lines = [
        *listening(config.listen, config.tls),
        "server_name _;",
        "",
        # In the order of ``forward``: the route of a request before its fields. nginx
        # evaluates these before it selects a location.
        *comment("Only the path identifies a sealed request."),
        _refuse("$request ~ '^[^ ]+ [^/]'", Refusal.MALFORMED),
        *(hosts if config.hosts else []),
        _refuse("$curtilage_known = 0", Refusal.UNKNOWN_PATH),
        _refuse("$http_expect != ''", Refusal.EXPECTATION),
        _refuse("$http_content_encoding != ''", Refusal.CONTENT_ENCODING),
        _refuse("$http_upgrade != ''", Refusal.MALFORMED),
        "",
        *_error_pages(),
        f"location = {forward.HEALTH_PATH} {{",
        *indented(
            [
                _refuse("$request_method != 'GET'", Refusal.METHOD),
                *answer_fields("GET"),
                "default_type '';",
                "add_header Content-Type $curtilage_health_type always;",
                "return 200 'ok\\n';",
            ]
        ),
        "}",
    ]
    for name, upstream in config.gateways.items():
        gateway = gateway_of(upstream)
        lines += ["", *_exchange(config, name, gateway)]
        for suffix in COPIES:
            lines += ["", *_copy(config, name, suffix, gateway)]
    return ["server {", *indented(lines), "}"]


def listening(listen: Listen, tls: TLSSettings | None) -> Lines:
    """Return the listen and TLS directives; no session is kept."""
    address = listen_text(listen)
    if tls is None:
        return [f"listen {address} default_server;"]
    lines = [
        f"listen {address} default_server ssl;",
        f"ssl_certificate {tls.certificate};",
        f"ssl_certificate_key {tls.key};",
        *comment("TLS 1.2 sends a client's certificate in clear."),
        "ssl_protocols TLSv1.3;",
        *comment("A resumed session would mark a client: there is none."),
        "ssl_session_cache off;",
        "ssl_session_tickets off;",
        "ssl_early_data off;",
    ]
    if tls.client_ca is not None:
        lines += [
            *comment("Only clients with a certificate from this CA may connect."),
            f"ssl_client_certificate {tls.client_ca};",
            "ssl_verify_client on;",
            "ssl_verify_depth 8;",
        ]
    return lines


def _error_pages() -> Lines:
    # Every status that is not ours is listed: for any other, nginx sends its own page,
    # or passes a gateway's.
    special = {414, *range(494, 500), 501, RATE_STATUS, KEY_REFUSAL, *OWN}
    gateway = [code for code in range(401, 600) if code not in special]
    # A refusal's content, with nginx's variables for status and title.
    words = refusals.refused_body(KEY_REFUSAL).decode()
    words = words.replace(str(KEY_REFUSAL), "$status")
    words = words.replace(refusals.REFUSED_BY_GATEWAY, "$curtilage_title")
    return [
        *comment("nginx's own refusals get our text; redirects never pass."),
        *pages(OWN, "@refused"),
        # A line or a head that is too long, a coding that nginx does not know: the
        # built-in relay reports all of them as malformed.
        *pages([414, 494, 501], "=400 @refused"),
        # No certificate, a wrong one, or no TLS: such a client gets no answer.
        *pages([495, 496, 497], "=444 @closed"),
        *pages([RATE_STATUS], "=429 @refused_rate"),
        *pages(range(300, 400), "=502 @refused_answer"),
        *pages(gateway, "@refused"),
        "location @refused {",
        f"    return 500 {quoted(words)};",
        "}",
        "location @refused_answer {",
        f"    return 502 {_body(Refusal.GATEWAY_ANSWER)};",
        "}",
        "location @refused_rate {",
        "    add_header Cache-Control no-store always;",
        f"    return 429 {_body(Refusal.RATE)};",
        "}",
        "location @closed {",
        "    return 444;",
        "}",
        "",
    ]


def _exchange(config: RelayConfig, name: str, gateway: Gateway) -> Lines:
    share = f"limit_conn curtilage_shares {config.clients.exchanges};"
    body = [
        _refuse("$request_method != 'POST'", Refusal.METHOD),
        _refuse("$http_early_data != ''", Refusal.EARLY_DATA),
        _refuse("$curtilage_request_type = ''", Refusal.MEDIA_TYPE),
        _refuse("$curtilage_no_stream != ''", Refusal.INCREMENTAL),
        f"limit_conn curtilage_exchanges {config.limits.max_upstream};",
        *([share] if caps(config, config.clients.exchanges) else []),
        *_client_caps(config),
        # A query would be a channel from the client to the gateway.
        "set $args '';",
        *_toward(gateway),
        "proxy_set_header Content-Type $curtilage_request_type;",
        "proxy_set_header Incremental $curtilage_incremental;",
        "add_header Content-Type $curtilage_answer_type always;",
        "add_header Incremental $curtilage_answer_incremental always;",
        *answer_fields("POST"),
        f"proxy_pass {gateway.scheme}://curtilage_{name}{forward.GATEWAY_PATH};",
    ]
    return [f"location = /{name} {{", *indented(body), "}"]


def _copy(config: RelayConfig, name: str, suffix: str, gateway: Gateway) -> Lines:
    limits = config.limits
    # This is the cache key as well: it contains no byte that a client chose, else each
    # client could have a copy of its own.
    place = f"{name}/{suffix}"
    kept = {*_COPY_ERRORS, _CLIENT_LEFT, RATE_STATUS}
    others = [code for code in range(300, 600) if code not in kept]
    body = [
        _refuse("$request_method != 'GET'", Refusal.METHOD),
        *_client_caps(config),
        "set $args '';",
        *comment("One copy for all clients, fetched once, never served when older."),
        "proxy_buffering on;",
        "proxy_cache curtilage_copies;",
        f"proxy_cache_key {place};",
        f"proxy_cache_valid 200 {limits.cache_s}s;",
        "proxy_no_cache $curtilage_not_a_copy;",
        "proxy_cache_lock on;",
        f"proxy_cache_lock_timeout {ms(limits.fetch_timeout_s)};",
        f"proxy_cache_lock_age {ms(limits.fetch_timeout_s)};",
        f"proxy_read_timeout {ms(limits.fetch_timeout_s)};",
        *_toward(gateway),
        # A fetch serves all clients: nothing that one client sends is passed on. And 0
        # would mean no limit.
        "proxy_set_header Content-Length '';",
        "proxy_pass_request_body off;",
        "client_max_body_size 1;",
        f"add_header Content-Type $curtilage_{suffix}_type always;",
        *answer_fields("GET", control="$curtilage_copy_control"),
        *pages(_COPY_ERRORS, "@refused"),
        *pages([RATE_STATUS], "=429 @refused_rate"),
        *pages(others, "=502 @refused_answer"),
        f"proxy_pass {gateway.scheme}://curtilage_{name}{_COPY_PATHS[suffix]};",
    ]
    return [f"location = /{place} {{", *indented(body), "}"]


def caps(config: RelayConfig, cap: float) -> bool:
    """Return whether a cap is on; behind a UNIX socket all clients count as one."""
    return cap > 0 and not isinstance(config.listen, UnixAddress)


def _client_caps(config: RelayConfig) -> Lines:
    clients, lines = config.clients, Lines()
    if caps(config, clients.connections):
        lines.append(f"limit_conn curtilage_clients {clients.connections};")
    if caps(config, clients.requests_per_s):
        burst = f"burst={clients.burst} nodelay"
        lines.append(f"limit_req zone=curtilage_rate {burst};")
    return lines


def answer_fields(method: str = "", *, control: str = "no-store") -> Lines:
    """Return our own fields; a location with any of its own needs them repeated."""
    lines = [
        f"add_header Cache-Control {control} always;",
        "add_header Proxy-Status $curtilage_proxy_status always;",
    ]
    if method:
        lines.append(f"add_header Allow $curtilage_allow_{method.lower()} always;")
    return lines


def _toward(gateway: Gateway) -> Lines:
    lines = [
        f"proxy_set_header Host {gateway.authority};",
        # Else nginx sends "close", and each exchange would cost a handshake.
        "proxy_set_header Connection '';",
    ]
    if gateway.scheme == "https":
        # nginx would look for the name of its upstream block in the certificate.
        lines.append(f"proxy_ssl_name {gateway.host};")
    return lines


def _refuse(condition: str, refusal: Refusal) -> str:
    status = refusals.status_of(refusal)
    return f"if ({condition}) {{ return {status} {_body(refusal)}; }}"


def _body(refusal: Refusal) -> str:
    return quoted(refusals.refusal_body(refusal).decode())


def listen_text(listen: Listen) -> str:
    """Return the address to listen on."""
    if isinstance(listen, UnixAddress):
        return f"unix:{listen.path}"
    host = f"[{listen.host}]" if ":" in listen.host else listen.host
    return f"{host}:{listen.port}"
