"""The balancer's configuration, and what its texts say before a program runs them."""

import json
import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml

from curtilage.enclave_server.config import Limits as EnclaveLimits
from curtilage.relay.balancer import command
from curtilage.relay.balancer.command import RUNTIME_FOLDER
from curtilage.relay.balancer.config import (
    DROPPED,
    BalancerConfig,
    BalancerLimits,
    Shares,
    parse_balancer,
)
from curtilage.relay.balancer.text import TEMPLATES, balancer_text
from curtilage.relay.config import HTTPUpstream, TCPAddress, UnixAddress
from curtilage.relay.errors import ConfigError
from curtilage.relay.render import SPECIAL
from support.examples import examples

LISTEN = 'listen = "127.0.0.1:8443"\n'
TLS = '[tls]\ncertificate = "/a.pem"\nkey = "/a.key"\n'
RELAYS = '[relays]\n"relay.example" = ["https://10.0.0.1", "https://10.0.0.2"]\n'
ENCLAVES = '[enclaves]\n"a.example" = "https://10.0.0.1"\n'
FOLDER = Path("/run/somewhere")
DIFFERENCES = {
    "nginx": ["checks", "addresses", "names", "server-field"],
    "envoy": ["shares", "addresses", "connection-cap", "stopping"],
}
DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "balancer"


@pytest.fixture(params=sorted(TEMPLATES))
def program(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def text_of(program: str, text: str) -> str:
    return balancer_text(program, parse_balancer(text), FOLDER)


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse_balancer(text)
    return caught.value.problems


def test_relays_are_alike() -> None:
    config = parse_balancer(LISTEN + TLS + RELAYS)
    assert config.listen == TCPAddress(host="127.0.0.1", port=8443)
    assert config.chooses
    assert config.names == {
        "relay.example": (
            HTTPUpstream(origin="https://10.0.0.1"),
            HTTPUpstream(origin="https://10.0.0.2"),
        )
    }
    assert (config.shares, config.limits) == (Shares(), BalancerLimits())


def test_an_enclave_is_alone_behind_its_name() -> None:
    row = '"b.example" = "unix:/run/b.sock"\n'
    config = parse_balancer(LISTEN + ENCLAVES + row)
    assert not config.chooses
    assert config.names["b.example"] == (UnixAddress(path="/run/b.sock"),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        # Each enclave has its own key, and no balancer may steer a client to one.
        (
            '[enclaves]\n"a.example" = ["https://10.0.0.1", "https://10.0.0.2"]\n',
            "enclaves.a.example: expected one address: each enclave has a key",
        ),
        (
            ENCLAVES + '"b.example" = "https://10.0.0.1"\n',
            "enclaves: 'https://10.0.0.1' is named twice",
        ),
        (ENCLAVES + "[clients]\nburst = 3\n", "clients: before enclaves each client"),
        (RELAYS + ENCLAVES, "expected [relays] or [enclaves], not both"),
        ("", "expected [relays] or [enclaves]"),
        ("[relays]\n", "relays: expected at least one name"),
        (
            '[relays]\n"r.example" = "https://10.0.0.1"\n',
            "relays.r.example: expected a list of addresses",
        ),
        (
            '[relays]\n"r.example" = []\n',
            "relays.r.example: expected a list of addresses",
        ),
        (
            '[relays]\n"r.example" = [1]\n',
            "relays.r.example: expected a list of addresses",
        ),
        (
            '[relays]\n"r.example" = ["https://10.0.0.1", "https://10.0.0.1"]\n',
            "relays: 'https://10.0.0.1' is named twice",
        ),
        (
            '[relays]\n"r.example" = ["https://10.0.0.1", "unix:/run/r.sock"]\n',
            "relays.r.example: expected one kind of address for all",
        ),
        (
            '[relays]\n"r.example" = ["http://127.0.0.1:8080"]\n',
            "relays.r.example: 'http://127.0.0.1:8080': plain http only with",
        ),
        (
            'environment = "development"\n[relays]\n"r.example" = ["http://10.0.0.1"]\n',
            "relays.r.example: 'http://10.0.0.1': plain http only to a loopback",
        ),
        (
            '[relays]\n"r.example" = ["unix:/run/r;.sock"]\n',
            "relays.r.example: 'unix:/run/r;.sock' has characters that nginx or",
        ),
        (
            '[relays]\n"R.example:8443" = ["https://10.0.0.1"]\n',
            "relays.R.example:8443: expected a name in lower case, without a port",
        ),
        (
            '[relays]\n"r.example; }" = ["https://10.0.0.1"]\n',
            "relays.r.example; }: expected a name in lower case, without a port",
        ),
        (
            '[relays]\n"*" = ["https://10.0.0.1"]\n',
            "relays.*: expected a name in lower case, without a port",
        ),
        ('access = "x"\n' + RELAYS, "access: unknown key; known: clients, enclaves,"),
        ('environment = "test"\n' + RELAYS, "environment: expected"),
        (RELAYS + "[limits]\nmax_upstream = 3\n", "limits.max_upstream: unknown key"),
        (RELAYS + "[limits]\ncheck_s = 0\n", "limits.check_s: expected more than 0"),
        (RELAYS + "[clients]\nconnections = 3\n", "clients.connections: unknown key"),
        (
            'upstream_ca_file = "ca.pem"\n' + RELAYS,
            "upstream_ca_file: expected an absolute path",
        ),
        (
            'upstream_ca_file = "/c a.pem"\n' + RELAYS,
            "upstream_ca_file: '/c a.pem' has characters that nginx or Envoy",
        ),
        (
            RELAYS + TLS + 'client_ca = "clients.pem"\n',
            "tls.client_ca: expected an absolute path",
        ),
    ],
)
def test_what_would_not_do_is_refused(text: str, problem: str) -> None:
    (found,) = problems(LISTEN + text)
    assert found.startswith(problem)


@pytest.mark.parametrize(
    ("listen", "problem"),
    [
        ("0.0.0.0:8443", "tls: needed where other machines reach this"),
        ("127.0.0.1:0", "listen: expected a port; 0 cannot be found by clients"),
        ("unix:/run/$x", "listen: 'unix:/run/$x' has characters that nginx or"),
        ("nonsense", "listen: 'nonsense': expected host:port or unix:/path"),
    ],
)
def test_where_it_must_not_listen(listen: str, problem: str) -> None:
    (found,) = problems(f'listen = "{listen}"\n{RELAYS}')
    assert found.startswith(problem)


def test_where_it_listens_is_an_address() -> None:
    text = f'listen = "localhost:8443"\n{RELAYS}{TLS}'
    (problem,) = problems(text)
    assert re.match("listen: .* address, .* name$", problem)


def test_every_problem_is_reported() -> None:
    assert len(problems(f'listen = "0.0.0.0:0"\nodd = 1\n{RELAYS}{ENCLAVES}')) == 4


def test_health_checks_find_room_at_a_busy_enclave() -> None:
    assert BalancerLimits().max_per_backend < EnclaveLimits().max_connections


def test_the_same_configuration_gives_the_same_text(program: str) -> None:
    made = [text_of(program, LISTEN + RELAYS) for _ in "ab"]
    assert made[0] == made[1]


def test_the_head_lists_this_programs_differences(program: str) -> None:
    text = text_of(program, LISTEN + RELAYS)
    assert re.findall(r"^#   - ([a-z-]+): ", text, re.MULTILINE) == DIFFERENCES[program]


def test_every_limit_shows(program: str) -> None:
    limits = {
        each.name: 71 + index / (1000 if each.type is float else 1)
        for index, each in enumerate(fields(BalancerLimits))
    }
    rows = [
        f"{name} = {value if '_s' in name else int(value)}\n"
        for name, value in limits.items()
    ]
    whole = LISTEN + RELAYS + "[limits]\n" + "".join(rows)
    text = text_of(program, whole)
    bare = text_of(program, LISTEN + RELAYS)
    for row in rows:
        without = whole.replace(row, "")
        assert text_of(program, without) != text, row
    assert text != bare


def test_no_log_and_no_mark_are_configured_for_nginx() -> None:
    text = text_of("nginx", LISTEN + RELAYS)
    lines = [line.split() for line in text.splitlines()]
    logs = [words for words in lines if words and words[0].endswith("_log")]
    assert sorted(logs) == [
        ["access_log", "off;"],
        ["error_log", "/dev/null", "crit;"],
    ]
    for field in DROPPED:
        assert f" proxy_set_header {field} '';\n" in text


@examples("special", [";", "{", '"', "'", "\\", "\n", "$", "#", " "])
@pytest.mark.parametrize(
    "changed", ["listen", "certificate", "key", "client_ca", "ca", "name", "backend"]
)
def test_a_value_that_a_program_would_misread_is_refused(
    program: str, changed: str, special: str
) -> None:
    # The parser refuses these as well; the texts do not rely on that.
    config = parse_balancer(LISTEN + TLS + RELAYS)
    path = f"/a{special}b"
    odd = Path(path)
    assert config.tls is not None
    changes: dict[str, BalancerConfig] = {
        "listen": replace(config, listen=UnixAddress(path=path)),
        "certificate": replace(config, tls=replace(config.tls, certificate=odd)),
        "key": replace(config, tls=replace(config.tls, key=odd)),
        "client_ca": replace(config, tls=replace(config.tls, client_ca=odd)),
        "ca": replace(config, upstream_ca_file=odd),
        "name": replace(config, names={path: config.names["relay.example"]}),
        "backend": replace(config, names={"a": (UnixAddress(path=path),)}),
    }
    with pytest.raises(ConfigError, match=SPECIAL):
        balancer_text(program, changes[changed], FOLDER)


def envoy_tree(text: str) -> dict[str, object]:
    whole: dict[str, object] = yaml.safe_load(text_of("envoy", text))
    return whole


def test_no_log_and_no_mark_are_configured_for_envoy() -> None:
    text = json.dumps(envoy_tree(LISTEN + RELAYS))
    assert "access_log" not in text
    assert '"generate_request_id": false' in text
    assert '"skip_xff_append": true' in text


def test_its_socket_is_for_its_own_user_alone() -> None:
    admin = envoy_tree(LISTEN + RELAYS)["admin"]
    pipe = {"path": f"{FOLDER}/admin.sock", "mode": 0o600}
    assert admin == {"address": {"pipe": pipe}}


@pytest.mark.parametrize("off", ["enclaves", "zero", "socket"])
def test_addresses_are_kept_only_where_clients_have_shares(
    program: str, off: str
) -> None:
    def kept(text: str) -> bool:
        made = text_of(program, text)
        return "$binary_remote_addr" in made or "masked_remote_address" in made

    zero = RELAYS + "[clients]\nexchanges = 0\nrequests_per_s = 0\n"
    silent = {
        "enclaves": LISTEN + ENCLAVES,
        "zero": LISTEN + zero,
        "socket": f'listen = "unix:/run/b.sock"\n{RELAYS}',
    }
    assert kept(LISTEN + RELAYS)
    assert not kept(silent[off])


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(program: str, text: str, *more: str) -> tuple[int, str, str]:
        file = tmp_path / "balancer.toml"
        file.write_text(text, "utf-8")
        code = command.run([program, "--config", str(file), *more])
        read = capsys.readouterr()
        return code, read.out, read.err

    return run


def test_the_command_writes_the_text(run: Run, program: str) -> None:
    code, out, err = run(program, LISTEN + RELAYS)
    assert (code, err) == (0, "")
    assert out == balancer_text(
        program, parse_balancer(LISTEN + RELAYS), RUNTIME_FOLDER
    )


@pytest.mark.parametrize("folder", ["here", "/run/a b", "/run/a;b"])
def test_the_command_reports_every_problem(run: Run, program: str, folder: str) -> None:
    code, out, err = run(program, ENCLAVES, "--folder", folder)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 2


def test_the_command_needs_a_file_that_exists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = str(tmp_path / "absent.toml")
    assert command.run(["envoy", "--config", absent]) == 2
    assert "absent.toml" in capsys.readouterr().err


def test_the_help_is_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.run(["--help"])
    text = capsys.readouterr().out
    example = text.partition("(balancer.toml):\n")[2].partition(
        "\nin front of enclaves"
    )[0]
    other = text.partition("and [clients]:\n")[2].partition("\n\n")[0]
    assert parse_balancer(example).chooses
    assert not parse_balancer(LISTEN + other).chooses


@pytest.mark.parametrize("name", ["relays", "enclaves"])
def test_what_deploy_shows_is_accepted(program: str, name: str) -> None:
    text = (DEPLOY / f"{name}.toml").read_text("utf-8")
    config = parse_balancer(text)
    assert config.chooses == (name == "relays")
    assert balancer_text(program, config, RUNTIME_FOLDER)


def test_the_unit_runs_what_the_text_says() -> None:
    text = (DEPLOY / "relays.toml").read_text("utf-8")
    head = balancer_text("envoy", parse_balancer(text), RUNTIME_FOLDER)
    unit = (DEPLOY / "curtilage-balancer-envoy.service").read_text("utf-8")
    assert f"RuntimeDirectory={RUNTIME_FOLDER.name}\n" in unit
    for words in ("-l off --disable-hot-restart", "admin.sock", "drain_listeners"):
        assert words in head
        assert words in unit
    assert "sleep 30;" in head
    assert "/sleep 30\n" in unit
