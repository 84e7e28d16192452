"""Generates an Envoy configuration (JSON, which is valid YAML) for a balancer.

Pure: the same configuration gives the same bytes. Written for Envoy 1.36 and later,
tried with 1.40; the head of the text lists how Envoy differs from nginx.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from curtilage.relay.balancer.config import (
    DROPPED,
    PROBLEM_TITLE,
    BalancerConfig,
)
from curtilage.relay.config import Listen, UnixAddress, Upstream
from curtilage.relay.nginx.config import FOLDER_MODE, SYSTEM_CA_FILE
from curtilage.relay.nginx.server import IDLE_UPSTREAM_S, gateway_of
from curtilage.relay.nginx.text import comment, listed
from curtilage.relay.refusals import PROBLEM_JSON

Tree = dict[str, object]

BUFFER_BYTES: Final = 64 * 1024
"""Of each direction of a connection; beyond it, the sender has to wait."""
HEALTH_PATH: Final = "/healthz"
"""The same at a relay and at an enclave; 503 while it drains or cannot answer."""
SPARE_CONNECTIONS: Final = 4
CLIENTS_KEPT: Final = 20_000
"""Addresses whose rate is counted; the one silent the longest is replaced."""
SOCKET_MODE: Final = 0o600
_TYPE: Final = "type.googleapis.com/envoy"
_HTTP_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

DIFFERENCES: Final[Mapping[str, str]] = {
    "shares": (
        "Envoy does not count one client's running requests: clients.exchanges is "
        "not applied, so a few addresses can take every place at the relays"
    ),
    "addresses": (
        "where clients have a rate, Envoy keeps their addresses, as they are, in memory"
    ),
    "connection-cap": "connections beyond the cap are closed without an answer",
    "stopping": (
        "SIGTERM cuts off running answers; drain first, as described above. Its socket "
        "for that exposes data about the balancer, so only root may connect"
    ),
}
"""Differences that the head of the text describes to the operator."""


def envoy_balancer(config: BalancerConfig, folder: Path) -> str:
    """Return a whole Envoy configuration that balances.

    Args:
        config: the balancer's own configuration.
        folder: for the socket by which it is drained; best on a tmpfs.
    """
    limits = config.limits
    tree: Tree = {
        "admin": {
            "address": {"pipe": {"path": f"{folder}/admin.sock", "mode": SOCKET_MODE}}
        },
        "overload_manager": {
            "resource_monitors": [
                {
                    "name": "envoy.resource_monitors.global_downstream_max_connections",
                    "typed_config": {
                        "@type": f"{_TYPE}.extensions.resource_monitors"
                        ".downstream_connections.v3.DownstreamConnectionsConfig",
                        "max_active_downstream_connections": limits.max_connections,
                    },
                }
            ]
        },
        "static_resources": {
            "listeners": [_listener(config)],
            "clusters": [
                _cluster(config, number, name, backends)
                for number, (name, backends) in enumerate(config.names.items())
            ],
        },
    }
    return "\n".join([*_head(config, folder), json.dumps(tree, indent=1), ""])


def _head(config: BalancerConfig, folder: Path) -> list[str]:
    grace_s = max(1, round(config.limits.shutdown_grace_s))
    words = [
        "A header-only balancer for Envoy (1.36 or later), made by",
        "    curtilage-relay balancer-config envoy --config balancer.toml",
        "Do not edit it: change balancer.toml and generate it again.",
        "",
        "Before:     this folder must exist, best on a tmpfs, and be Envoy's own",
        f"            install -d -m {FOLDER_MODE} {folder}",
        "Check it:   envoy --mode validate -l off -c /path/envoy.yaml",
        "Run it:     envoy -c /path/envoy.yaml -l off --disable-hot-restart",
        "            (-l off: its log would contain clients' addresses)",
        f"Drain it:   curl --unix-socket {folder}/admin.sock -X POST \\",
        "                http://localhost/drain_listeners",
        f"            sleep {grace_s}; then SIGTERM",
        "",
        f"Backends: {'relays' if config.chooses else 'enclaves'}.",
        "Differences from nginx:",
        *listed(DIFFERENCES),
    ]
    return [*comment(*words), ""]


def _listener(config: BalancerConfig) -> Tree:
    limits = config.limits
    manager: Tree = {
        "@type": f"{_TYPE}.extensions.filters.network.http_connection_manager.v3"
        ".HttpConnectionManager",
        "stat_prefix": "clients",
        "codec_type": "HTTP1",
        "http_protocol_options": _spelling(),
        # The connection's own address counts, not one that a client sends in a field;
        # and no backend receives it.
        "use_remote_address": True,
        "skip_xff_append": True,
        "internal_address_config": {},
        "generate_request_id": False,
        "server_header_transformation": "PASS_THROUGH",
        "strip_any_host_port": True,
        "max_request_headers_kb": 16,
        "request_headers_timeout": _s(limits.header_timeout_s),
        "stream_idle_timeout": _s(limits.silence_s),
        "common_http_protocol_options": {"idle_timeout": _s(limits.idle_timeout_s)},
        "drain_timeout": _s(IDLE_UPSTREAM_S),
        "local_reply_config": _refusal(),
        "route_config": {
            "name": "names",
            # A head without the fields in which proxies name the client.
            "request_headers_to_remove": [field.lower() for field in DROPPED],
            "virtual_hosts": [
                *(
                    {
                        "name": name,
                        "domains": [name],
                        "routes": [_route(number, name, len(backends))],
                    }
                    for number, (name, backends) in enumerate(config.names.items())
                ),
                # Another name is refused, not guessed.
                {
                    "name": "strangers",
                    "domains": ["*"],
                    "routes": [
                        {"match": {"prefix": "/"}, "direct_response": {"status": 421}}
                    ],
                },
            ],
        },
        "http_filters": [
            *_rate(config),
            {
                "name": "router",
                "typed_config": {
                    "@type": f"{_TYPE}.extensions.filters.http.router.v3.Router",
                    "suppress_envoy_headers": True,
                },
            },
        ],
    }
    chain: Tree = {"filters": [{"name": "http", "typed_config": manager}]}
    if config.tls is not None:
        tls = config.tls
        common: Tree = {
            # TLS 1.2 sends a client's certificate in clear.
            "tls_params": {"tls_minimum_protocol_version": "TLSv1_3"},
            "alpn_protocols": ["http/1.1"],
            "tls_certificates": [
                {
                    "certificate_chain": {"filename": str(tls.certificate)},
                    "private_key": {"filename": str(tls.key)},
                }
            ],
        }
        if tls.client_ca is not None:
            common["validation_context"] = {
                "trusted_ca": {"filename": f"{tls.client_ca}"}
            }
        chain["transport_socket"] = {
            "name": "tls",
            "typed_config": {
                "@type": f"{_TYPE}.extensions.transport_sockets.tls.v3"
                ".DownstreamTlsContext",
                "common_tls_context": common,
                "require_client_certificate": tls.client_ca is not None,
                # A resumed session would mark a client: there is none.
                "disable_stateless_session_resumption": True,
                "disable_stateful_session_resumption": True,
            },
        }
    return {
        "name": "clients",
        "address": _listen_address(config.listen),
        "per_connection_buffer_limit_bytes": BUFFER_BYTES,
        "filter_chains": [chain],
    }


def _refusal() -> Tree:
    # One form for all of Envoy's own answers, as in nginx's text.
    any_status: Tree = {
        "comparison": {
            "op": "GE",
            "value": {"default_value": 0, "runtime_key": "curtilage.none"},
        }
    }
    body = (
        f'{{"type":"about:blank","status":%RESPONSE_CODE%,"title":"{PROBLEM_TITLE}"}}'
    )
    return {
        "mappers": [
            {
                "filter": {"status_code_filter": any_status},
                "headers_to_add": [
                    {"header": {"key": "Cache-Control", "value": "no-store"}}
                ],
            }
        ],
        "body_format": {
            "text_format_source": {"inline_string": body},
            "content_type": PROBLEM_JSON,
        },
    }


def _route(number: int, name: str, count: int) -> Tree:
    route: Tree = {
        "cluster": f"backends_{number}",
        "host_rewrite_literal": name,
        # An answer may take minutes; only its silences are bounded.
        "timeout": "0s",
    }
    if count > 1:
        # A request is sent once (RFC 9458, section 6.5): only one that could not be
        # sent at all is sent to the next relay.
        route["retry_policy"] = {
            "retry_on": "connect-failure",
            "num_retries": count - 1,
            # A dead relay has the fewest requests, and would be drawn again.
            "host_selection_retry_max_attempts": 64,
            "retry_host_predicate": [
                {
                    "name": "another",
                    "typed_config": {
                        "@type": f"{_TYPE}.extensions.retry.host.previous_hosts.v3"
                        ".PreviousHostsPredicate"
                    },
                }
            ],
        }
    return {"match": {"prefix": "/"}, "route": route}


def _rate(config: BalancerConfig) -> list[Tree]:
    shares = config.shares
    # Behind a UNIX socket all clients count as one.
    if (
        not config.chooses
        or not shares.requests_per_s
        or isinstance(config.listen, UnixAddress)
    ):
        return []
    # Envoy fills a bucket twenty times a second at most.
    each_s = max(1.0, 1 / shares.requests_per_s)
    address: Tree = {
        "masked_remote_address": {"v4_prefix_mask_len": 32, "v6_prefix_mask_len": 56}
    }
    return [
        {
            "name": "rate",
            "typed_config": {
                "@type": f"{_TYPE}.extensions.filters.http.local_ratelimit.v3"
                ".LocalRateLimit",
                "stat_prefix": "rate",
                "filter_enabled": {"default_value": {"numerator": 100}},
                "filter_enforced": {"default_value": {"numerator": 100}},
                "rate_limits": [{"actions": [address]}],
                "max_dynamic_descriptors": CLIENTS_KEPT,
                "descriptors": [
                    {
                        # Without a value: a bucket for each client.
                        "entries": [{"key": "masked_remote_address"}],
                        "token_bucket": {
                            "max_tokens": max(1, shares.burst),
                            "tokens_per_fill": round(each_s * shares.requests_per_s),
                            "fill_interval": _s(each_s),
                        },
                    }
                ],
            },
        }
    ]


def _cluster(
    config: BalancerConfig, number: int, name: str, backends: tuple[Upstream, ...]
) -> Tree:
    limits = config.limits
    label = f"backends_{number}"
    requests = limits.max_per_backend * len(backends)
    secure = gateway_of(backends[0]).scheme == "https"
    cluster: Tree = {
        "name": label,
        # Names are resolved again while it runs; a socket has none.
        "type": "STRICT_DNS" if secure else "STATIC",
        "connect_timeout": _s(limits.connect_timeout_s),
        "per_connection_buffer_limit_bytes": BUFFER_BYTES,
        "lb_policy": "LEAST_REQUEST",
        # A backend that is known to be down gets no request, even if all are: a client
        # is then refused at once, and can use another relay or answer locally.
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "circuit_breakers": {
            "thresholds": [
                {
                    # When every place is taken, the next request is refused once it has
                    # a connection, and would wait for one without these few.
                    "max_connections": requests + SPARE_CONNECTIONS,
                    "max_pending_requests": requests,
                    "max_requests": requests,
                    "max_retries": requests,
                }
            ]
        },
        "health_checks": [
            {
                "timeout": _s(limits.check_s),
                "interval": _s(limits.check_s),
                "no_traffic_interval": _s(limits.check_s),
                "unhealthy_threshold": 2,
                "healthy_threshold": 1,
                "http_health_check": {"host": name, "path": HEALTH_PATH},
            }
        ],
        "typed_extension_protocol_options": {
            _HTTP_OPTIONS: {
                "@type": f"type.googleapis.com/{_HTTP_OPTIONS}",
                "common_http_protocol_options": {"idle_timeout": _s(IDLE_UPSTREAM_S)},
                "explicit_http_config": {"http_protocol_options": _spelling()},
            }
        },
        "load_assignment": {
            "cluster_name": label,
            "endpoints": [
                {
                    "lb_endpoints": [
                        {"endpoint": {"address": _backend_address(each)}}
                        for each in backends
                    ]
                }
            ],
        },
    }
    if secure:
        san: Tree = {"san_type": "DNS", "matcher": {"exact": name}}
        cluster["transport_socket"] = {
            "name": "tls",
            "typed_config": {
                "@type": f"{_TYPE}.extensions.transport_sockets.tls.v3"
                ".UpstreamTlsContext",
                "sni": name,
                "max_session_keys": 0,
                "common_tls_context": {
                    "tls_params": {"tls_minimum_protocol_version": "TLSv1_2"},
                    "alpn_protocols": ["http/1.1"],
                    "validation_context": {
                        "trusted_ca": {
                            "filename": str(config.upstream_ca_file or SYSTEM_CA_FILE)
                        },
                        "match_typed_subject_alt_names": [san],
                    },
                },
            },
        }
    return cluster


def _spelling() -> Tree:
    # Else it would write field names in lower case, and a message that passed a
    # balancer could be distinguished from one that did not.
    return {
        "header_key_format": {
            "stateful_formatter": {
                "name": "as they came",
                "typed_config": {
                    "@type": f"{_TYPE}.extensions.http.header_formatters"
                    ".preserve_case.v3.PreserveCaseFormatterConfig"
                },
            }
        }
    }


def _listen_address(listen: Listen) -> Tree:
    if isinstance(listen, UnixAddress):
        return {"pipe": {"path": listen.path, "mode": SOCKET_MODE}}
    return {"socket_address": {"address": listen.host, "port_value": listen.port}}


def _backend_address(backend: Upstream) -> Tree:
    if isinstance(backend, UnixAddress):
        return {"pipe": {"path": backend.path}}
    host, _, port = gateway_of(backend).address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    return {"socket_address": {"address": host, "port_value": int(port)}}


def _s(seconds: float) -> str:
    """Format a duration; at least a millisecond, since 0 means for ever."""
    return f"{max(0.001, round(seconds, 3)):g}s"
