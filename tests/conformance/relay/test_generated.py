"""The generated text: deterministic, accepted by nginx, and true to its comments."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

import pytest

from curtilage.relay import forward, pool
from curtilage.relay.__main__ import main
from curtilage.relay.config import HTTPUpstream, parse_config
from curtilage.relay.errors import ConfigError
from curtilage.relay.nginx.config import NO_NAME, RUNTIME_FOLDER, nginx_config
from curtilage.relay.refusals import REFUSED_BY_GATEWAY, refused_body
from curtilage.relay.render import SPECIAL
from support.relay_certificates import Certificates
from support.relay_differences import DIFFERENCES
from support.relay_processes import NGINX, Tree

FOLDER = Path("/run/somewhere")
BARE: dict[str, object] = {
    "listen": "127.0.0.1:8080",
    "gateways": {"demo": "https://gateway.example"},
}
NOT_ON_THE_WIRE = {"addresses"}

Generate = Callable[..., str]


@pytest.fixture
def generate() -> Generate:
    def make(**changes: object) -> str:
        config = parse_config("", {**BARE, **changes})
        return nginx_config(config, FOLDER)

    return make


def test_the_same_configuration_gives_the_same_text(generate: Generate) -> None:
    hosts = ["b.example", "a.example", "c.example"]
    assert generate(hosts=hosts) == generate(hosts=list(reversed(hosts)))


def test_the_suite_and_the_text_name_the_same_differences(generate: Generate) -> None:
    listed = re.findall(r"^#   - ([a-z0-9-]+): ", generate(), re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) - NOT_ON_THE_WIRE == set(DIFFERENCES)


def test_every_difference_has_a_test_that_needs_it() -> None:
    used: set[str] = set()
    for file in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "differs":
                used.add(ast.literal_eval(node.args[0]))
    assert used == set(DIFFERENCES)


def test_every_limit_of_the_configuration_shows(generate: Generate) -> None:
    limits = {
        "max_request_bytes": 71001,
        "max_connections": 71,
        "max_upstream": 72,
        "header_timeout_s": 71.003,
        "idle_timeout_s": 71.004,
        "body_timeout_s": 71.005,
        "write_timeout_s": 71.006,
        "connect_timeout_s": 71.007,
        "upstream_read_timeout_s": 71.008,
        "fetch_timeout_s": 71.009,
        "cache_s": 7110,
        "shutdown_grace_s": 71.011,
    }
    clients = {
        "connections": 73,
        "requests_per_s": 74.0,
        "burst": 75,
        "exchanges": 76,
    }
    text = generate(limits=limits, clients=clients)
    for line in (
        "client_max_body_size 71001;",
        "client_body_buffer_size 71001;",
        "worker_connections 159;",
        "limit_conn curtilage_exchanges 72;",
        "client_header_timeout 71003ms;",
        "keepalive_timeout 71004ms;",
        "client_body_timeout 71005ms;",
        "send_timeout 71006ms;",
        "proxy_connect_timeout 71007ms;",
        "proxy_read_timeout 71008ms;",
        "proxy_read_timeout 71009ms;",
        "proxy_cache_valid 200 7110s;",
        "worker_shutdown_timeout 71011ms;",
        "limit_conn curtilage_clients 73;",
        "limit_conn curtilage_shares 76;",
        "rate=74r/s;",
        "limit_req zone=curtilage_rate burst=75 nodelay;",
    ):
        assert f" {line}\n" in text or f"\n{line}\n" in text, line


def test_nothing_is_logged(generate: Generate) -> None:
    lines = [line.split() for line in generate().splitlines()]
    logs = [words for words in lines if words and words[0].endswith("_log")]
    assert sorted(logs) == [
        ["access_log", "off;"],
        ["error_log", "/dev/null", "crit;"],
    ]


@pytest.mark.parametrize(
    ("per_second", "written"), [(50.0, "50r/s"), (0.5, "30r/m"), (0.001, "1r/m")]
)
def test_rates_are_written_as_nginx_can(
    generate: Generate, per_second: float, written: str
) -> None:
    assert f"rate={written};" in generate(clients={"requests_per_s": per_second})


def test_caps_that_are_off_leave_no_addresses(generate: Generate) -> None:
    off = {"connections": 0, "exchanges": 0, "requests_per_s": 0}
    assert "$binary_remote_addr" in generate()
    assert "$binary_remote_addr" not in generate(clients=off)
    assert "$binary_remote_addr" not in generate(listen="unix:/run/relay.sock")


def test_the_text_has_the_relays_own_constants(generate: Generate) -> None:
    text = generate()
    for kind in (*forward.REQUEST_TYPES, forward.OHTTP_KEYS, forward.EVIDENCE_BUNDLE):
        assert f" '{kind}' '{kind}';\n" in text
    for kind in forward.RESPONSE_TYPES:
        assert f" '200:{kind}' '{kind}';\n" in text
    for path in (forward.GATEWAY_PATH, forward.KEYS_PATH, forward.BUNDLE_PATH):
        assert f" proxy_pass https://curtilage_demo{path};\n" in text
    assert f" location = {forward.HEALTH_PATH} {{\n" in text
    assert f" '{forward.INCREMENTAL}';\n" in text
    assert f" keepalive_timeout {pool.IDLE_S:.0f}s;\n" in text
    content = refused_body(422).decode()
    content = content.replace("422", "$status")
    content = content.replace(REFUSED_BY_GATEWAY, "$curtilage_title")
    assert f" return 500 '{content}';\n" in text
    assert f" default '{REFUSED_BY_GATEWAY}';\n" in text


@pytest.fixture
def customer(generate: Generate) -> Callable[[str], str]:
    """Return a function: the key under which nginx counts an address."""
    rows = generate().partition('map "$remote_addr" $curtilage_client {\n')[2]
    keys = re.findall(r"^ +'~(.+)' '\$(\w+)';$", rows.partition("}\n")[0], re.MULTILINE)
    assert len(keys) == 3

    def key(address: str) -> str:
        for pattern, name in keys:
            if found := re.search(pattern.replace("(?<", "(?P<"), address):
                return found.groupdict().get(name, address)
        return address

    return key


def test_a_customer_of_ipv6_is_one_client(customer: Callable[[str], str]) -> None:
    network = ip_network("2001:db8:1:ab00::/56")
    inside = [str(network[index << 40 | 5 << 20 | index]) for index in range(256)]
    assert len({customer(address) for address in (*inside, str(network[1]))}) == 1
    others = ["2001:db8:1:ac00::1", "2001:db8:2:ab00::1", "2001:db9:1:ab00::1"]
    others += ["2001:db8::1", "2001:db8:1::1", "192.0.2.1", "::ffff:192.0.2.2"]
    others += ["192.0.2.2", "2001:db8:1:b00::1", "2001:db8:1:ab:1:2:3:4"]
    assert len({customer(address) for address in (inside[0], *others)}) == 11


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"listen": "127.0.0.1:0"}, "listen: nginx needs a port"),
        ({"access": {"keys": [f"a:{'0' * 32}:{'1' * 64}"]}}, "access.keys: nginx"),
        ({"gateways": {"a": "https://10.1.2.3"}}, "gateways.a: nginx verifies names"),
        ({"gateways": {"a": "https://[2001:db8::1]"}}, "gateways.a: nginx verifies"),
        (
            {"gateways": {"a": "unix:/run/a b"}},
            "gateways.a: 'unix:/run/a b' has",
        ),
        ({"gateways": {"a": {"b": "unix:/c"}}}, "gateways.a: nginx cannot put"),
        ({"listen": "unix:/run/$x"}, "listen: 'unix:/run/$x' has characters"),
        ({"upstream_ca_file": "ca.pem"}, "upstream_ca_file: nginx needs an absolute"),
        ({"upstream_ca_file": "/c;a"}, "upstream_ca_file: '/c;a' has characters"),
        (
            {"tls": {"certificate": "a.pem", "key": "/a.key"}},
            "tls.certificate: nginx needs an absolute path",
        ),
    ],
)
def test_what_nginx_cannot_do_is_refused(
    generate: Generate, changes: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        generate(**changes)
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(problem)


def test_a_gateway_that_nginx_would_misread_is_refused() -> None:
    config = parse_config("", BARE)
    odd = replace(config, gateways={"a": HTTPUpstream(origin="https://a;b{")})
    with pytest.raises(ConfigError, match=f"{SPECIAL} nginx"):
        nginx_config(odd, FOLDER)


@pytest.mark.parametrize("name", ["a.b", "a|b", "a;b", "A", ""])
def test_a_gateways_name_is_no_regular_expression(name: str) -> None:
    config = replace(
        parse_config("", BARE), gateways={name: HTTPUpstream(origin="https://a")}
    )
    with pytest.raises(ConfigError, match=NO_NAME):
        nginx_config(config, FOLDER)


def test_the_command_writes_the_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], generate: Generate
) -> None:
    file = tmp_path / "relay.toml"
    file.write_text('listen = "127.0.0.1:8080"\n[gateways]\n', "utf-8")
    file.write_text(file.read_text("utf-8") + 'demo = "https://gateway.example"\n')
    arguments = ["nginx-config", "--config", str(file), "--folder", str(FOLDER)]
    assert main(arguments) == 0
    assert capsys.readouterr().out == generate()


def test_the_command_reports_every_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "relay.toml"
    file.write_text('listen = "127.0.0.1:0"\n[gateways]\na = "unix:/a b"\n', "utf-8")
    assert main(["nginx-config", "--config", str(file)]) == 2
    read = capsys.readouterr()
    assert read.out == ""
    assert len(read.err.splitlines()) == 2


def test_the_command_needs_a_file_that_exists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["nginx-config", "--config", str(tmp_path / "absent.toml")]) == 2
    assert "absent.toml" in capsys.readouterr().err


def test_the_help_teaches_how_to_run_it() -> None:
    command = [sys.executable, "-m", "curtilage.relay", "nginx-config", "--help"]
    made = subprocess.run(command, check=True, capture_output=True, text=True)
    for part in ("nginx -t", "relay.toml > nginx.conf", "exit codes", "client_ca"):
        assert part in made.stdout


def test_the_example_of_deploy_is_what_it_says() -> None:
    folder = Path(__file__).resolve().parents[3] / "deploy" / "nginx"
    config = parse_config((folder / "relay.toml").read_text("utf-8"), {})
    text = nginx_config(config, RUNTIME_FOLDER)
    unit = (folder / "curtilage-relay-nginx.service").read_text("utf-8")
    assert "ssl_verify_client on;" in text
    assert f"RuntimeDirectory={RUNTIME_FOLDER.name}\n" in unit
    assert f"ssl_certificate_key /run/credentials/{unit_name(folder)}/" in text


def test_help_text_and_page_make_the_same_folder(
    capsys: pytest.CaptureFixture[str], generate: Generate
) -> None:
    page = Path(__file__).resolve().parents[3] / "deploy" / "nginx" / "README.md"
    with pytest.raises(SystemExit):
        main(["nginx-config", "--help"])
    command = "install -d -m 0711 "
    assert f"\n  {command}{RUNTIME_FOLDER}\n" in capsys.readouterr().out
    assert f"\n{command}{RUNTIME_FOLDER}\n" in page.read_text("utf-8")
    assert f" {command}{FOLDER}\n" in generate()


def unit_name(folder: Path) -> str:
    """Return the only systemd unit of a folder."""
    (file,) = folder.glob("*.service")
    return file.name


@pytest.mark.skipif(NGINX is None, reason="SKIPPED LOUDLY: nginx is not installed")
@pytest.mark.parametrize("change", ["bare", "all"])
def test_nginx_accepts_the_text(
    tmp_path: Path, tree: Tree, certificates: Certificates, change: str
) -> None:
    values = {**tree, "listen": "127.0.0.1:8080"}
    if change == "all":
        values["tls"] = certificates.settings(client_ca=True)
        values["listen"] = "[::1]:8443"
        values["clients"] = {"connections": 5, "requests_per_s": 0.5}
    file = tmp_path / "nginx.conf"
    text = nginx_config(parse_config("", values), tmp_path)
    file.write_text(text, "utf-8")
    checked = subprocess.run(
        [str(NGINX), "-t", "-q", "-c", str(file)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (checked.returncode, checked.stderr) == (0, "")
