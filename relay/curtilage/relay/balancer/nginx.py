"""Generates an nginx configuration for a balancer.

Pure: the same configuration gives the same bytes. Knows nginx 1.22 and later; the head
of the text lists how nginx differs from Envoy.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from curtilage.relay.balancer.config import (
    DROPPED,
    PROBLEM_TITLE,
    BalancerConfig,
)
from curtilage.relay.config import UnixAddress, Upstream
from curtilage.relay.nginx.config import FOLDER_MODE, SYSTEM_CA_FILE
from curtilage.relay.nginx.server import IDLE_UPSTREAM_S, gateway_of, listening
from curtilage.relay.nginx.text import (
    CUSTOMERS,
    Lines,
    comment,
    indented,
    listed,
    map_to,
    ms,
    pages,
    quoted,
    rate,
)
from curtilage.relay.refusals import PROBLEM_JSON

OWN_STATUSES: Final = (
    400,
    405,
    408,
    411,
    413,
    414,
    421,
    426,
    429,
    431,
    494,
    *range(500, 506),
)
"""Statuses that nginx itself may produce here."""

DIFFERENCES: Final[Mapping[str, str]] = {
    "checks": (
        "nginx does no health checks by itself. A relay that could not be reached is "
        "left out for limits.check_s, and detected by a request that is then sent to "
        "the next one; an enclave that is down costs each request its connect time"
    ),
    "addresses": (
        "where clients have shares, nginx keeps their addresses, as they are, in memory"
    ),
    "names": "backends' names are resolved once, when nginx starts",
    "server-field": "the Server field of its own refusals says nginx",
}
"""Differences that the head of the text describes to the operator."""


def nginx_balancer(config: BalancerConfig, folder: Path) -> str:
    """Return a whole nginx configuration that balances.

    Args:
        config: the balancer's own configuration.
        folder: for the pid file; best on a tmpfs.
    """
    limits = config.limits
    connections = 2 * limits.max_connections
    lines = [
        *_head(config, folder),
        "worker_processes 1;",
        f"worker_rlimit_nofile {2 * connections};",
        *comment("No crash may write memory, and so clients' addresses, to disk."),
        "worker_rlimit_core 0;",
        *comment("How long running requests may take after the signal to stop."),
        f"worker_shutdown_timeout {ms(limits.shutdown_grace_s)};",
        f"pid {folder}/nginx.pid;",
        *comment("Lines of a lower level contain clients' addresses."),
        "error_log /dev/null crit;",
        "",
        "events {",
        f"    worker_connections {connections};",
        "}",
        "",
        "http {",
        *indented(
            [
                *_common(config, folder),
                *_shares(config),
                *_backends(config),
                *_servers(config),
            ]
        ),
        "}",
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(config: BalancerConfig, folder: Path) -> Lines:
    words = [
        "A header-only balancer for nginx (1.22 or later), made by",
        "    curtilage-relay balancer-config nginx --config balancer.toml",
        "Do not edit it: change balancer.toml and generate it again.",
        "",
        "Before:     this folder must exist, best on a tmpfs",
        f"            install -d -m {FOLDER_MODE} {folder}",
        "Check it:   nginx -t -c /path/nginx.conf",
        "Run it:     nginx -c /path/nginx.conf -g 'daemon off;'",
        "Drain it:   nginx -s quit -c /path/nginx.conf",
        "",
        f"Backends: {'relays' if config.chooses else 'enclaves'}.",
        "Differences from Envoy:",
        *listed(DIFFERENCES),
    ]
    return [*comment(*words), ""]


def _common(config: BalancerConfig, folder: Path) -> Lines:
    limits = config.limits
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return [
        *comment("Disclose nothing: no log, no version, no marks on answers."),
        "access_log off;",
        "server_tokens off;",
        "etag off;",
        "gzip off;",
        "log_not_found off;",
        f"default_type {PROBLEM_JSON};",
        *comment("nginx requires these folders; nothing is ever in them."),
        *(f"{kind}_temp_path {folder}/{kind};" for kind in kinds),
        "",
        *comment("nginx's own refusals get our text; a backend's pass unchanged."),
        *pages(OWN_STATUSES, "@refused"),
        # No certificate, a wrong one, or no TLS: such a client gets no answer.
        *pages([495, 496, 497], "=444 @closed"),
        "",
        *comment("What one connection may hold, and for how long."),
        f"client_header_timeout {ms(limits.header_timeout_s)};",
        f"client_body_timeout {ms(limits.silence_s)};",
        f"send_timeout {ms(limits.silence_s)};",
        f"keepalive_timeout {ms(limits.idle_timeout_s)};",
        "keepalive_requests 1000000;",
        "reset_timedout_connection on;",
        "client_header_buffer_size 2k;",
        "large_client_header_buffers 4 8k;",
        *comment("Neither content nor its length is checked: the backend does that."),
        "client_max_body_size 0;",
        "tcp_nodelay on;",
        "",
        *comment(
            "Both directions stream, back-pressure included; nothing is written to",
            "disk, and a backend cannot steer nginx (X-Accel-*).",
        ),
        "proxy_http_version 1.1;",
        "proxy_buffering off;",
        "proxy_request_buffering off;",
        "proxy_max_temp_file_size 0;",
        "proxy_buffer_size 8k;",
        f"proxy_connect_timeout {ms(limits.connect_timeout_s)};",
        f"proxy_read_timeout {ms(limits.silence_s)};",
        f"proxy_send_timeout {ms(limits.silence_s)};",
        "proxy_redirect off;",
        "proxy_ignore_headers X-Accel-Redirect X-Accel-Expires X-Accel-Limit-Rate",
        "    X-Accel-Buffering X-Accel-Charset;",
        "proxy_pass_header Server;",
        "proxy_pass_header Date;",
        "proxy_ssl_verify on;",
        "proxy_ssl_verify_depth 8;",
        "proxy_ssl_server_name on;",
        "proxy_ssl_protocols TLSv1.2 TLSv1.3;",
        f"proxy_ssl_trusted_certificate {config.upstream_ca_file or SYSTEM_CA_FILE};",
        "",
    ]


def _shares(config: BalancerConfig) -> Lines:
    shares = config.shares
    lines = Lines()
    # Behind a UNIX socket all clients count as one.
    if config.chooses and not isinstance(config.listen, UnixAddress):
        if shares.exchanges or shares.requests_per_s:
            lines += [
                *comment("One client: an IPv4 address, or an IPv6 /56."),
                *map_to("$remote_addr", "client", CUSTOMERS, "$binary_remote_addr"),
                # Far below what error_log keeps: such a line names the client.
                "limit_conn_log_level info;",
                "limit_req_log_level info;",
                "limit_conn_status 429;",
                "limit_req_status 429;",
            ]
        if shares.exchanges:
            lines += [
                "limit_conn_zone $curtilage_client zone=curtilage_shares:1m;",
                f"limit_conn curtilage_shares {shares.exchanges};",
            ]
        if shares.requests_per_s:
            lines += [
                "limit_req_zone $curtilage_client zone=curtilage_rate:1m",
                f"    rate={rate(shares.requests_per_s)};",
                f"limit_req zone=curtilage_rate burst={shares.burst} nodelay;",
            ]
    return [*lines, ""] if lines else lines


def _backends(config: BalancerConfig) -> Lines:
    limits = config.limits
    # The only backend of a name is never left out: there is no other to try.
    fails = f"max_fails=1 fail_timeout={max(1, round(limits.check_s))}s"
    lines = Lines()
    for number, backends in enumerate(config.names.values()):
        lines += [
            f"upstream curtilage_{number} {{",
            f"    zone curtilage_{number} 64k;",
            *(["    least_conn;"] if config.chooses else []),
            *(
                f"    server {gateway_of(backend).address} "
                f"max_conns={limits.max_per_backend} {fails};"
                for backend in backends
            ),
            "    keepalive 32;",
            "    keepalive_requests 1000000;",
            f"    keepalive_timeout {IDLE_UPSTREAM_S}s;",
            "}",
        ]
    return lines


def _servers(config: BalancerConfig) -> Lines:
    listen, *tls = listening(config.listen, config.tls)
    problem = quoted(
        f'{{"type":"about:blank","status":$status,"title":"{PROBLEM_TITLE}"}}'
    )
    common = [
        # A client of HTTP/1.0 could not distinguish a truncation from the end.
        "if ($server_protocol = HTTP/1.0) { return 426; }",
        "location @closed {",
        "    return 444;",
        "}",
        "location @refused {",
        "    add_header Cache-Control no-store always;",
        f"    return 500 {problem};",
        "}",
    ]
    # Another name is refused, not guessed: it might be the other party's.
    lines = [
        "server {",
        *indented([listen, *tls, *common, "location / { return 421; }"]),
        "}",
    ]
    for number, (name, backends) in enumerate(config.names.items()):
        lines += [
            "server {",
            *indented(
                [
                    listen.replace(" default_server", ""),
                    *tls,
                    f"server_name {name};",
                    *common,
                    "location / {",
                    *indented(_passing(name, number, backends)),
                    "}",
                ]
            ),
            "}",
        ]
    return lines


def _passing(name: str, number: int, backends: Sequence[Upstream]) -> Lines:
    # A request is sent once (RFC 9458, section 6.5). nginx sends a POST to the next
    # relay only if nothing of it was sent; without a next one, never.
    again = "error timeout" if len(backends) > 1 else "off"
    return [
        f"proxy_next_upstream {again};",
        f"proxy_next_upstream_tries {len(backends)};",
        f"proxy_set_header Host {name};",
        # Else nginx sends "close", and each exchange would cost a handshake.
        "proxy_set_header Connection '';",
        *(f"proxy_set_header {field} '';" for field in DROPPED),
        f"proxy_ssl_name {name};",
        f"proxy_pass {gateway_of(backends[0]).scheme}://curtilage_{number};",
    ]
