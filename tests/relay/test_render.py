"""What a template of a configuration may be given, and what is refused."""

from pathlib import Path

import pytest
from jinja2 import UndefinedError

from curtilage.relay.config import Environment, TLSSettings, UnixAddress, parse_upstream
from curtilage.relay.errors import ConfigError
from curtilage.relay.render import (
    Backend,
    backend_of,
    decimal_seconds,
    milliseconds,
    quoted,
    rate,
    render,
    whole_seconds,
)

PATH = Path("/a.pem")


def with_certificate(value: object) -> str:
    tls = {"certificate": value, "key": PATH, "client_ca": None}
    return render("tls.nginx.conf", tls=tls)


def test_a_template_gets_its_values() -> None:
    text = render("tls.nginx.conf", tls=TLSSettings(certificate=PATH, key=PATH))
    assert " ssl_certificate /a.pem;\n" in text
    assert "ssl_client_certificate" not in text
    assert with_certificate(7).splitlines()[0].strip() == "ssl_certificate 7;"


@pytest.mark.parametrize(
    "special", list(";{}$'\"\\#\n\r\t |&*?~^()<>%!`\u00e9\u2028\0")
)
@pytest.mark.parametrize("kind", [str, Path])
def test_a_text_with_a_special_character_is_refused(special: str, kind: type) -> None:
    for text in (f"/a{special}b", f"/a{special}", special):
        with pytest.raises(ConfigError, match="special meaning to nginx or Envoy"):
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
