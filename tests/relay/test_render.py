"""What a template of a configuration may be given, and what is refused."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from curtilage.relay.balancer.config import parse_balancer
from curtilage.relay.balancer.text import balancer_text
from curtilage.relay.config import (
    Environment,
    TLSSettings,
    UnixAddress,
    parse_config,
    parse_upstream,
)
from curtilage.relay.errors import ConfigError
from curtilage.relay.nginx.config import nginx_config
from curtilage.relay.render import (
    SPECIAL,
    Backend,
    backend_of,
    decimal_seconds,
    milliseconds,
    quoted,
    rate,
    render,
    whole_seconds,
)
from support.examples import examples

PATH = Path("/a.pem")
TLS = '[tls]\ncertificate = "/c.pem"\nkey = "/c.key"\nclient_ca = "/ca.pem"\n'
OFF = "[clients]\nexchanges = 0\nrequests_per_s = 0\n"
GATEWAYS = '[gateways]\na = "https://a.example"\nb = "unix:/b"\n'
RELAYS = '[relays]\n"r.example" = ["https://10.0.0.1", "https://10.0.0.2"]\n'
ENCLAVES = '[enclaves]\n"a.example" = "unix:/a"\n"b.example" = "unix:/b"\n'
TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[{};]|[^\s{};'"]+""")


def with_certificate(value: object) -> str:
    tls = {"certificate": value, "key": PATH, "client_ca": None}
    return render("tls.nginx.conf", tls=tls)


def test_a_template_gets_its_values() -> None:
    text = render("tls.nginx.conf", tls=TLSSettings(certificate=PATH, key=PATH))
    assert " ssl_certificate /a.pem;\n" in text
    assert "ssl_client_certificate" not in text
    assert with_certificate(7).splitlines()[0].strip() == "ssl_certificate 7;"


@pytest.mark.parametrize("kind", [str, Path])
@examples("special", list(";{}$'\"\\#\n\r\t |&*?~^()<>%!`\u00e9\u2028\0"))
def test_a_text_with_a_special_character_is_refused(special: str, kind: type) -> None:
    for text in (f"/a{special}b", f"/a{special}", special):
        with pytest.raises(ConfigError, match=f"{SPECIAL} nginx or Envoy"):
            with_certificate(kind(text))


@pytest.mark.parametrize("value", [1.5, True, None, "", b"/a", ["/a"], float("nan")])
def test_only_texts_paths_and_whole_numbers_are_put_in(value: object) -> None:
    with pytest.raises(ConfigError):
        with_certificate(value)


def test_a_text_of_ours_may_have_any_character() -> None:
    assert with_certificate(quoted("a'\\;$b")).splitlines()[0].strip() == (
        r"ssl_certificate 'a\'\\;$b';"
    )


def test_a_template_without_its_values_is_no_text() -> None:
    with pytest.raises(UndefinedError):
        render("tls.nginx.conf")


@pytest.mark.parametrize(
    ("text", "backend", "address"),
    [
        (
            "https://Gateway.example",
            Backend(
                scheme="https",
                authority="Gateway.example",
                host="gateway.example",
                port=443,
            ),
            "gateway.example:443",
        ),
        (
            "http://[::1]:9000",
            Backend(scheme="http", authority="[::1]:9000", host="::1", port=9000),
            "[::1]:9000",
        ),
        (
            "http://127.0.0.1",
            Backend(scheme="http", authority="127.0.0.1", host="127.0.0.1", port=80),
            "127.0.0.1:80",
        ),
    ],
)
def test_an_address_has_the_parts_that_templates_need(
    text: str, backend: Backend, address: str
) -> None:
    assert backend_of(parse_upstream(text, Environment.DEVELOPMENT)) == backend
    assert backend.address == address


def test_a_socket_is_spoken_to_without_tls() -> None:
    backend = backend_of(UnixAddress(path="/run/a.sock"))
    assert (backend.scheme, backend.host) == ("http", "localhost")
    assert backend.address == "unix:/run/a.sock"


def test_durations_are_never_zero_which_would_mean_for_ever() -> None:
    assert [milliseconds(each) for each in (1e-9, 0.5, 71.003)] == [
        "1ms",
        "500ms",
        "71003ms",
    ]
    assert [decimal_seconds(each) for each in (1e-9, 0.5, 600)] == [
        "0.001s",
        "0.5s",
        "600s",
    ]
    assert [whole_seconds(each) for each in (1e-9, 1.4, 1.6)] == [1, 1, 2]


def test_rates_are_whole_numbers_per_second_or_minute() -> None:
    assert [rate(each) for each in (50.0, 0.5, 0.001)] == ["50r/s", "30r/m", "1r/m"]


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def directives(text: str) -> list[str]:
    """Return the first words of nginx's directives; every one must end properly.

    This is checked without nginx too, which not every machine has.
    """
    lines = [line for line in text.splitlines() if re.match(" *[^ #]", line)]
    for line, following in pairwise(lines):
        # Without its semicolon, a directive takes the next one for its arguments.
        ended = line.endswith((";", "{", "}")) or indent(following) > indent(line)
        assert ended, line
    names, open_blocks, words = list[str](), 0, list[str]()
    for token in TOKEN.findall("\n".join(lines)):
        if token not in {"{", "}", ";"}:
            words.append(token)
            continue
        # Only a block's end has no words of its own.
        assert bool(words) == (token != "}"), (token, words, names[-1:])
        open_blocks += {"{": 1, "}": -1, ";": 0}[token]
        assert open_blocks >= 0
        names += words[:1]
        words = []
    assert (open_blocks, words) == (0, [])
    return names


@pytest.mark.parametrize("listen", ["127.0.0.1:80", "unix:/run/r.sock"])
@pytest.mark.parametrize("more", ["", TLS, OFF, 'hosts = ["a.example", "default"]\n'])
def test_every_directive_of_the_relay_on_nginx_ends(listen: str, more: str) -> None:
    if more == TLS and listen.startswith("unix:"):
        listen = "[::1]:80"
    toml = f'listen = "{listen}"\n{more}{GATEWAYS}'
    text = nginx_config(parse_config(toml, {}), Path("/run/f"))
    found = directives(text)
    assert "{{" not in text
    assert "{%" not in text
    assert found.count("server") == 1 + 2  # itself, and one in each upstream block
    assert found.count("location") == 5 + 2 * 3
    assert ("ssl_certificate" in found) == (more == TLS)
    assert ("limit_req" in found) == (more != OFF and not listen.startswith("unix:"))


@pytest.mark.parametrize("names", [RELAYS, ENCLAVES, RELAYS + OFF])
@pytest.mark.parametrize("more", ["", TLS])
def test_every_directive_of_the_balancer_on_nginx_ends(names: str, more: str) -> None:
    config = parse_balancer(f'listen = "127.0.0.1:80"\n{more}{names}')
    found = directives(balancer_text("nginx", config, Path("/run/f")))
    assert found.count("server_name") == len(config.names)
    assert ("least_conn" in found) == config.chooses
    assert ("ssl_certificate" in found) == (more == TLS)
    assert ("limit_req" in found) == (names == RELAYS)
