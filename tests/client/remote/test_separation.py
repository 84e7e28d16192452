import pytest

from curtilage.client.errors import ConfigError
from curtilage.client.remote.separation import host_of, require_apart

RELAY = "https://relay.operator.example/ward"


@pytest.mark.parametrize(
    ("relay", "mirror", "gateway"),
    [
        (RELAY, "https://keys.operator.example/list", None),
        (RELAY, None, "https://enclave.operator.example"),
        ("https://relay.operator.example.", None, "https://operator.example"),
        ("https://RELAY.Operator.Example:84/x", None, "https://a.operator.example:9"),
        ("https://example/x", None, "https://example"),
        ("https://a.b.example/x", None, "https://c.b.example"),
        (RELAY, "https://keys.other.test/x", "https://enclave.other.test"),
        ("https://relay.bücher.example/x", None, "https://xn--bcher-kva.example"),
    ],
)
@pytest.mark.parametrize("development", [True, False])
def test_one_domain_is_one_party(
    relay: str, mirror: str | None, gateway: str | None, *, development: bool
) -> None:
    with pytest.raises(ConfigError, match="different organisations"):
        require_apart(
            development=development, relay=relay, mirror=mirror, gateway=gateway
        )


def test_other_domains_are_other_parties() -> None:
    require_apart(
        development=False,
        relay="https://relay.example.org/x",
        mirror="https://keys.example.net/x",
        gateway="https://enclave.example.com",
    )
    require_apart(development=False, relay=RELAY, mirror=None, gateway=None)


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/x",
        "https://[::1]:9/x",
        "https://localhost/x",
        "https://localhost./x",
        "https://a.localhost/x",
        "https://192.0.2.7/x",
        "https://[2001:db8::7]/x",
    ],
)
def test_numbers_and_this_machine_are_for_development(url: str) -> None:
    require_apart(development=True, relay=url, mirror=url, gateway=url)
    for parties in ({"relay": url}, {"relay": RELAY, "mirror": url}):
        with pytest.raises(ConfigError, match="environment: development"):
            require_apart(development=False, **parties)


def test_an_odd_name_is_refused() -> None:
    for odd in ("https://a..b/x", "https://[x"):
        with pytest.raises(ConfigError):
            host_of(odd)
    assert host_of(None) is None
    assert host_of("https:///x") is None
