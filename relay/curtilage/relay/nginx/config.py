"""Generates an nginx configuration from a relay's configuration.

For operators who need more than the built-in relay. Pure: the same configuration gives
the same bytes. Knows nginx 1.22 and later; refuses what nginx cannot do safely, and
lists what it does differently (``DIFFERENCES``) in the head of its text.
"""

import ipaddress
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from curtilage.relay import forward, refusals
from curtilage.relay.config import (
    SAFE_TEXT,
    RelayConfig,
    UnixAddress,
    named_files,
    upstream_text,
)
from curtilage.relay.errors import ConfigError
from curtilage.relay.nginx.server import (
    COPIES,
    KEY_REFUSAL,
    OWN,
    RATE_STATUS,
    TRUE,
    answer_fields,
    caps,
    gateway_of,
    listen_text,
    server,
    upstreams,
)
from curtilage.relay.nginx.text import (
    CUSTOMERS,
    DIFFERENCES,
    HIDDEN_FIELDS,
    Lines,
    comment,
    indented,
    listed,
    map_to,
    ms,
    rate,
)

RUNTIME_FOLDER: Final = Path("/run/curtilage-relay-nginx")
FOLDER_MODE: Final = "0711"
"""Anybody may enter, no other user may list: only the workers can read its content."""
SYSTEM_CA_FILE: Final = "/etc/ssl/certs/ca-certificates.crt"
"""The path of the system's certificates on Debian, Ubuntu and Alpine."""
SPARE_CONNECTIONS: Final = 16
"""Connections for fetches of keys and bundles, in addition to the exchanges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Settings that the relay's configuration file lacks.

    Attributes:
        folder: for the pid file and the copies of keys; best on a tmpfs.
    """

    folder: Path = RUNTIME_FOLDER


def nginx_config(config: RelayConfig, setting: Setting) -> str:
    """Return a whole nginx configuration with the relay's behaviour.

    Args:
        config: the relay's own configuration.
        setting: settings that only nginx needs.

    Raises:
        ConfigError: nginx cannot do what the configuration asks for; all
            reasons at once.
    """
    _refuse_what_nginx_cannot(config, setting)
    lines = [
        *_head(config, setting),
        *_main(config, setting),
        "http {",
        *indented(
            [
                *_silence(setting),
                *_limits(config),
                *_maps(config),
                *_zones(config),
                *upstreams(config.gateways),
                *server(config),
            ]
        ),
        "}",
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _refuse_what_nginx_cannot(config: RelayConfig, setting: Setting) -> None:
    # All problems before a line is written: a text that is nearly right gets deployed.
    problems: list[str] = []
    if not isinstance(config.listen, UnixAddress) and config.listen.port == 0:
        problems.append("listen: nginx needs a port; 0 lets it choose none")
    if config.keys:
        problems.append(
            "access.keys: nginx cannot check salted hashes; use tls.client_ca"
        )
    problems += [
        f"gateways.{pool}: nginx cannot put the bundles of a pool's nodes together"
        for pool in config.pools
    ]
    files = named_files(config.tls, config.upstream_ca_file)
    paths = {"--folder": str(setting.folder), **files}
    texts = {**paths, "listen": listen_text(config.listen)}
    for name, upstream in config.gateways.items():
        texts[f"gateways.{name}"] = upstream_text(upstream)
        gateway = gateway_of(upstream)
        if gateway.scheme == "https" and _is_address(gateway.host):
            problems.append(
                f"gateways.{name}: nginx verifies names, not addresses; use a name"
            )
    # A semicolon or a brace in a path would end our line and begin another directive.
    problems += [
        f"{key}: {text!r} has characters with a special meaning to nginx"
        for key, text in texts.items()
        if SAFE_TEXT.fullmatch(text) is None
    ]
    problems += [
        f"{key}: nginx needs an absolute path"
        for key, text in paths.items()
        if not text.startswith("/")
    ]
    if problems:
        raise ConfigError(*problems)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _head(config: RelayConfig, setting: Setting) -> Lines:
    words = [
        "Curtilage relay for nginx (1.22 or later), made by",
        "    curtilage-relay nginx-config --config relay.toml > nginx.conf",
        "Do not edit it: change relay.toml and generate it again.",
        "",
        "Before:     this folder must exist, best on a tmpfs; nginx's workers, which",
        "            run as another user if root starts it, must be able to enter it",
        f"            install -d -m {FOLDER_MODE} {setting.folder}",
        "Check it:   nginx -t -c /path/nginx.conf",
        "Run it:     nginx -c /path/nginx.conf -g 'daemon off;'",
        "Drain it:   nginx -s quit -c /path/nginx.conf",
        "",
        f"Gateways: {', '.join(config.gateways)}.",
        "It behaves like the built-in relay, except:",
        *listed(DIFFERENCES),
    ]
    return [*comment(*words), ""]


def _main(config: RelayConfig, setting: Setting) -> Lines:
    limits = config.limits
    connections = limits.max_connections + limits.max_upstream + SPARE_CONNECTIONS
    return [
        *comment(
            "One worker carries far more than one gateway. For each additional worker",
            "the connections below count again; all other caps are shared.",
        ),
        "worker_processes 1;",
        f"worker_rlimit_nofile {2 * connections};",
        *comment("No crash may write memory, and so clients' addresses, to disk."),
        "worker_rlimit_core 0;",
        *comment("How long running requests may take after the signal to stop."),
        f"worker_shutdown_timeout {ms(limits.shutdown_grace_s)};",
        f"pid {setting.folder}/nginx.pid;",
        *comment("Lines of a lower level contain clients' addresses."),
        "error_log /dev/null crit;",
        "",
        *comment(
            f"{limits.max_connections} clients, {limits.max_upstream} exchanges, "
            "and fetches of keys."
        ),
        "events {",
        f"    worker_connections {connections};",
        "}",
        "",
    ]


def _silence(setting: Setting) -> Lines:
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return [
        *comment("Disclose nothing: no log, no version, no marks on answers."),
        "access_log off;",
        "server_tokens off;",
        "etag off;",
        "gzip off;",
        "max_ranges 0;",
        "if_modified_since off;",
        "log_not_found off;",
        f"default_type {refusals.PROBLEM_JSON};",
        *answer_fields(),
        "",
        *comment(
            "nginx requires these folders; nothing of an exchange is ever in them.",
            "The copies are of key lists and bundles, which are public and the same",
            "for all clients; on a tmpfs they are kept in memory.",
        ),
        *(f"{kind}_temp_path {setting.folder}/{kind};" for kind in kinds),
        f"proxy_cache_path {setting.folder}/copies keys_zone=curtilage_copies:1m",
        "    levels=1 max_size=16m inactive=1h use_temp_path=off;",
        "",
    ]


def _limits(config: RelayConfig) -> Lines:
    limits = config.limits
    return [
        *comment(
            "The client's hop. Heads: bounded in time as a whole. Content: bounded in",
            "size and in silence, and in memory as a whole, never on disk.",
        ),
        f"client_header_timeout {ms(limits.header_timeout_s)};",
        f"client_body_timeout {ms(limits.body_timeout_s)};",
        f"send_timeout {ms(limits.write_timeout_s)};",
        f"keepalive_timeout {ms(limits.idle_timeout_s)};",
        "keepalive_requests 1000000;",
        "reset_timedout_connection on;",
        "lingering_time 2s;",
        "lingering_timeout 2s;",
        "client_header_buffer_size 2k;",
        "large_client_header_buffers 4 8k;",
        f"client_max_body_size {limits.max_request_bytes};",
        f"client_body_buffer_size {limits.max_request_bytes};",
        "tcp_nodelay on;",
        "",
        *comment(
            "The gateway's hop. Of a request's fields none passes but those set in",
            "its location; both ways stream, back-pressure included; nothing is sent",
            "twice, and a gateway cannot steer nginx (X-Accel-*).",
        ),
        "proxy_http_version 1.1;",
        "proxy_pass_request_headers off;",
        "proxy_buffering off;",
        "proxy_request_buffering off;",
        "proxy_max_temp_file_size 0;",
        "proxy_buffer_size 8k;",
        f"proxy_connect_timeout {ms(limits.connect_timeout_s)};",
        f"proxy_read_timeout {ms(limits.upstream_read_timeout_s)};",
        f"proxy_send_timeout {ms(limits.upstream_read_timeout_s)};",
        "proxy_next_upstream off;",
        "proxy_redirect off;",
        "proxy_intercept_errors on;",
        "proxy_ignore_headers X-Accel-Redirect X-Accel-Expires X-Accel-Limit-Rate",
        "    X-Accel-Buffering X-Accel-Charset Expires Cache-Control Set-Cookie Vary;",
        "proxy_ssl_verify on;",
        "proxy_ssl_verify_depth 8;",
        "proxy_ssl_server_name on;",
        "proxy_ssl_protocols TLSv1.2 TLSv1.3;",
        f"proxy_ssl_trusted_certificate {config.upstream_ca_file or SYSTEM_CA_FILE};",
        "",
        *comment("Fields of a gateway's answer that stop here."),
        "proxy_headers_hash_max_size 2048;",
        "proxy_headers_hash_bucket_size 128;",
        *(f"proxy_hide_header {name};" for name in HIDDEN_FIELDS),
        "",
    ]


def _maps(config: RelayConfig) -> Lines:
    # Of what a name may hold, a pattern reads the hyphen alone, and only in brackets.
    names = "|".join(re.escape(name).replace(r"\-", "-") for name in config.gateways)
    hosts = [
        *comment("Names that Host may give; nginx lowers it and drops the port."),
        *map_to("$host", "host", {name.decode(): "1" for name in sorted(config.hosts)}),
    ]
    titles = {
        f"1{status}": str(json.loads(refusals.refusal_body(refusal))["title"])
        for status, refusal in OWN.items()
    }
    return [
        "map_hash_bucket_size 128;",
        *(hosts if config.hosts else []),
        *comment("Paths as they were sent: nothing is decoded or normalised."),
        "map $request_uri $curtilage_known {",
        f'    "~^/(healthz|({names})(/keys|/bundle)?)([?#]|$)" 1;',
        "    default 0;",
        "}",
        *comment("Every value that goes on is a constant of this file."),
        *map_to("$content_type", "request_type", {t: t for t in forward.REQUEST_TYPES}),
        *map_to("$http_incremental", "incremental", {TRUE: forward.INCREMENTAL}),
        *map_to(
            "$server_protocol$curtilage_incremental",
            "no_stream",
            {f"HTTP/1.0{forward.INCREMENTAL}": "1"},
        ),
        *map_to(
            "$upstream_status:$upstream_http_content_type",
            "answer_type",
            {
                **{f"200:{t}": t for t in forward.RESPONSE_TYPES},
                f"{KEY_REFUSAL}:{refusals.PROBLEM_JSON}": refusals.PROBLEM_JSON,
            },
        ),
        *map_to(
            "$upstream_http_incremental",
            "answer_incremental",
            {TRUE: forward.INCREMENTAL},
        ),
        *(
            line
            for suffix, kind in COPIES.items()
            for line in map_to(
                "$upstream_http_content_type", f"{suffix}_type", {kind: kind}
            )
        ),
        # Neither a key list nor a bundle: kept, an error would be everybody's.
        *map_to("$curtilage_keys_type$curtilage_bundle_type", "not_a_copy", {"": "1"}),
        *comment("Words of our own answers; a gateway's errors get ours as well."),
        # Where no head came from a gateway, the status is nginx's own: so its 429 and
        # 502 can be distinguished from a gateway's.
        *map_to("$upstream_header_time", "own", {"": "1", "-": "1"}),
        *map_to("$curtilage_own$status", "title", titles, refusals.REFUSED_BY_GATEWAY),
        *map_to("$curtilage_own$status", "allow_post", {"1405": "POST"}),
        *map_to("$curtilage_own$status", "allow_get", {"1405": "GET"}),
        *map_to("$status", "health_type", {"200": "text/plain"}, refusals.PROBLEM_JSON),
        *map_to(
            "$status",
            "copy_control",
            {"200": f"public, max-age={config.limits.cache_s}"},
            "no-store",
        ),
        *map_to(
            "$curtilage_own$status",
            "proxy_status",
            {
                "1429": "relay; error=connection_limit_reached",
                "1501": "relay; error=incremental_refused",
            },
        ),
        "",
    ]


def _zones(config: RelayConfig) -> Lines:
    lines = [
        *comment("All exchanges at once, from all clients; the next one gets 429."),
        'limit_conn_zone "exchanges" zone=curtilage_exchanges:1m;',
        "limit_conn_status 429;",
        f"limit_req_status {RATE_STATUS};",
        # Far below what error_log keeps: such a line names the client.
        "limit_conn_log_level info;",
        "limit_req_log_level info;",
    ]
    clients = config.clients
    counted = (clients.connections, clients.exchanges, clients.requests_per_s)
    if any(caps(config, cap) for cap in counted):
        lines += [
            *comment(
                "One client: an IPv4 address, or what a provider gives one (/56)."
            ),
            *map_to("$remote_addr", "client", CUSTOMERS, "$binary_remote_addr"),
        ]
    if caps(config, config.clients.exchanges):
        lines += [
            *comment("One client's share of them; its address is kept as below."),
            "limit_conn_zone $curtilage_client zone=curtilage_shares:1m;",
        ]
    if caps(config, config.clients.connections):
        lines += [
            *comment(
                "Requests of one client at once. While one runs, nginx keeps the",
                "client's address, as it is, in shared memory; never on disk.",
            ),
            "limit_conn_zone $curtilage_client zone=curtilage_clients:1m;",
        ]
    if caps(config, config.clients.requests_per_s):
        lines += [
            *comment(
                "Requests of one client. nginx keeps its address, as it is, in shared",
                "memory until the place is needed: a core dump or debugger shows it.",
            ),
            "limit_req_zone $curtilage_client zone=curtilage_rate:1m",
            f"    rate={rate(config.clients.requests_per_s)};",
        ]
    return [*lines, ""]
