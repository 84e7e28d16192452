from pathlib import Path

import pytest

from curtilage.enclave_server.config import Limits as EnclaveLimits
from curtilage.relay.config import (
    Environment,
    HTTPUpstream,
    Limits,
    TCPAddress,
    UnixAddress,
    parse_config,
    parse_listen,
    parse_upstream,
)
from curtilage.relay.errors import ConfigError

MINIMAL = 'listen = "127.0.0.1:0"\n[gateways]\ndemo = "https://gateway.example"\n'
DEVELOPMENT = 'environment = "development"\n'


def problems(text: str, **overrides: object) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, overrides)
    return caught.value.problems


def test_places_at_the_gateway_fit_into_an_enclaves_connections() -> None:
    deployed = Path(__file__).resolve().parents[2] / "deploy" / "relay.toml"
    shipped = parse_config(deployed.read_text("utf-8"), {}).limits
    for limits in (Limits(), shipped):
        assert limits.max_upstream < EnclaveLimits().max_connections


def test_minimal_file_gets_the_defaults() -> None:
    config = parse_config(MINIMAL, {})
    assert config.environment is Environment.PRODUCTION
    assert config.listen == TCPAddress(host="127.0.0.1", port=0)
    assert config.gateways == {"demo": HTTPUpstream(origin="https://gateway.example")}
    assert config.limits == Limits()
    assert config.telemetry.otlp_endpoint is None
    assert config.telemetry.prometheus_port is None


def test_full_file() -> None:
    config = parse_config(
        DEVELOPMENT
        + 'upstream_ca_file = "/etc/ca.pem"\n'
        + MINIMAL
        + 'b = "unix:/run/b.sock"\nc = "http://127.0.0.1:9000/"\n'
        + "[limits]\ncache_s = 5\nidle_timeout_s = 1.5\nbody_timeout_s = 2\n"
        + '[telemetry]\notlp = "http://127.0.0.1:4318"\nprometheus = "[::1]:9464"\n',
        {},
    )
    assert config.gateways["b"] == UnixAddress(path="/run/b.sock")
    assert config.gateways["c"] == HTTPUpstream(origin="http://127.0.0.1:9000")
    assert config.limits == Limits(cache_s=5, idle_timeout_s=1.5, body_timeout_s=2)
    assert config.telemetry.otlp_endpoint == "http://127.0.0.1:4318"
    assert config.telemetry.prometheus_host == "::1"
    assert config.telemetry.prometheus_port == 9464
    assert config.upstream_ca_file == Path("/etc/ca.pem")


def test_a_pool_has_a_gateway_for_each_node() -> None:
    config = parse_config(
        MINIMAL + 'many = {b = "https://b.example", a = "unix:/run/a.sock"}\n', {}
    )
    assert config.pools == {"many": ("b", "a")}
    assert config.gateways["many/b"] == HTTPUpstream(origin="https://b.example")
    assert config.gateways["many/a"] == UnixAddress(path="/run/a.sock")


def test_overrides_replace_and_gateways_add() -> None:
    config = parse_config(
        MINIMAL,
        {"listen": "unix:/run/r.sock", "gateways": {"b": "https://b.example"}},
    )
    assert config.listen == UnixAddress(path="/run/r.sock")
    assert sorted(config.gateways) == ["b", "demo"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = 1\n" + MINIMAL, "x: unknown key"),
        ("listen = [", "not TOML"),
        ("", "listen: expected host:port"),
        ("", "gateways: expected at least one"),
        (MINIMAL.replace("127.0.0.1:0", "nowhere"), "listen: 'nowhere': expected"),
        (MINIMAL.replace("127.0.0.1:0", "a:65536"), "listen: 'a:65536': expected"),
        (MINIMAL.replace("127.0.0.1:0", "unix:rel"), "listen: 'unix:rel': expected"),
        ("gateways = 7\n", "gateways: expected a table"),
        (MINIMAL + "b = 7\n", "gateways.b: expected a text"),
        (MINIMAL + "b = {}\n", "gateways.b: a pool has 1 to 32 nodes"),
        (MINIMAL + 'b = {A = "https://b"}\n', "gateways.b.A: a node's id is"),
        (MINIMAL + 'b = {keys = "https://b"}\n', "gateways.b.keys: a node's id"),
        (MINIMAL + "b = {a = 7}\n", "gateways.b.a: expected a text"),
        (MINIMAL + 'b = {a = "http://c"}\n', "gateways.b/a: 'http://c': plain"),
        (
            MINIMAL + 'b = {a = "https://c", d = "https://c"}\n',
            "gateways.b.d: listed twice",
        ),
        (MINIMAL + 'healthz = "https://b"\n', "gateways.healthz: a name is"),
        (MINIMAL + 'Upper = "https://b"\n', "gateways.Upper: a name is"),
        (MINIMAL + '"a/b" = "https://b"\n', "gateways.a/b: a name is"),
        (MINIMAL + '"a\\n" = "https://b"\n', "gateways.a\n: a name is"),
        (MINIMAL + 'b = "http://127.0.0.1:1"\n', "gateways.b: 'http://127.0.0.1:1'"),
        ('hosts = "relay.example"\n' + MINIMAL, "hosts: expected a list of texts"),
        ('hosts = ["a", 7]\n' + MINIMAL, "hosts: expected a list of texts"),
        ("upstream_ca_file = 7\n" + MINIMAL, "upstream_ca_file: expected a path"),
        (MINIMAL + "[tls]\nx = 1\n", "tls.x: unknown key"),
        (MINIMAL + "[tls]\nkey = 1\n", "tls.key: expected a path"),
        ('environment = "test"\n' + MINIMAL, "environment: expected"),
        ("environment = []\n" + MINIMAL, "environment: expected"),
        # The relay keeps no record, whatever a file of an earlier version says.
        ('unsafe_record_view = "x"\n' + MINIMAL, "unsafe_record_view: unknown key"),
        (MINIMAL + "[limits]\nx = 1\n", "limits.x: unknown key"),
        (MINIMAL + "[limits]\ncache_s = 1.5\n", "limits.cache_s: expected a whole"),
        (MINIMAL + "[limits]\ncache_s = true\n", "limits.cache_s: expected a whole"),
        (MINIMAL + "[limits]\ncache_s = 0\n", "limits.cache_s: expected more than 0"),
        (MINIMAL + '[limits]\nidle_timeout_s = "1"\n', "limits.idle_timeout_s: expec"),
        (MINIMAL + "[limits]\nidle_timeout_s = inf\n", "limits.idle_timeout_s: expec"),
        (MINIMAL + "[limits]\nidle_timeout_s = nan\n", "limits.idle_timeout_s: expec"),
        (MINIMAL + "[telemetry]\nx = 1\n", "telemetry.x: unknown key"),
        (MINIMAL + "[telemetry]\notlp = 1\n", "telemetry.otlp: expected"),
        (MINIMAL + '[telemetry]\notlp = "ftp://x"\n', "telemetry.otlp: expected"),
        (MINIMAL + '[telemetry]\nprometheus = "x"\n', "telemetry.prometheus: 'x'"),
        (MINIMAL + '[telemetry]\nprometheus = "unix:/x"\n', "telemetry.prometheus: ex"),
        (MINIMAL + "[telemetry]\nprometheus = 7\n", "telemetry.prometheus: expected"),
    ],
)
def test_wrong_files_are_refused_with_the_key(text: str, problem: str) -> None:
    assert any(found.startswith(problem) for found in problems(text))


def test_all_problems_are_reported_at_once() -> None:
    assert len(problems("x = 1\nlisten = 7\n[limits]\ny = 1\n")) == 4


@pytest.mark.parametrize(
    "text",
    [
        "gateway.example",
        "ftp://gateway.example",
        "https://",
        "https://gateway.example/path",
        "https://gateway.example?x",
        "https://gateway.example#x",
        "https://user@gateway.example",
        "https://gateway.example:0",
        "https://gateway.example:99999",
        "https://gateway.example:x",
        "http://gateway.example",
        "http://localhost:80",
        "http://10.0.0.1:80",
        "http://169.254.169.254",
        "http://[::ffff:10.0.0.1]",
        "http://2130706433",
        "http://0x7f000001",
        "http://1[7",
        "https://a;x",
        "https://a b",
        "https://a\n",
        "https://gateway.exämple",
        "https://a,b",
        "https://{x}",
        "https://$host",
        "unix:relative",
        "unix:",
    ],
)
def test_other_upstreams_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_upstream(text, Environment.DEVELOPMENT)


@pytest.mark.parametrize("text", ["http://127.0.0.1:9", "http://[::1]:9"])
def test_plain_http_is_for_development_on_loopback(text: str) -> None:
    upstream = parse_upstream(text, Environment.DEVELOPMENT)
    assert upstream == HTTPUpstream(origin=text)
    with pytest.raises(ConfigError, match="development"):
        parse_upstream(text, Environment.PRODUCTION)


def test_listen_takes_ipv6_in_brackets() -> None:
    assert parse_listen("[::1]:8080") == TCPAddress(host="::1", port=8080)
