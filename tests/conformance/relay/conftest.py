"""Both relays, each started once for each kind of configuration."""

import contextlib
import ssl
from collections.abc import Callable, Iterator

import pytest

from support.relay_certificates import Certificates, make_certificates
from support.relay_differences import DIFFERENCES, allowed
from support.relay_processes import (
    NGINX,
    Kind,
    RelayProcess,
    Tree,
    close_wires,
    free_port,
)
from support.relay_wire import HOST, Gateway

RELAYS = ("built-in", "nginx")
GENEROUS = {"connections": 0, "exchanges": 0, "requests_per_s": 0}
PATIENT = {"max_upstream": 64, "cache_s": 600, "max_answer_bytes": 1024 * 1024}
HASTY_HEADS = {**PATIENT, "header_timeout_s": 0.5, "idle_timeout_s": 0.5}
HASTY = {
    **PATIENT,
    "body_timeout_s": 0.5,
    "write_timeout_s": 0.5,
    "connect_timeout_s": 0.5,
    "upstream_read_timeout_s": 0.5,
    "fetch_timeout_s": 0.5,
}
StartRelay = Callable[..., RelayProcess]


@pytest.fixture(scope="session", params=RELAYS)
def relay_kind(request: pytest.FixtureRequest) -> Kind:
    if request.param == "nginx" and NGINX is None:
        pytest.skip(
            "SKIPPED LOUDLY: nginx is not installed, so the generated configuration "
            "was not tried; install it (apt-get install nginx-light)"
        )
    return "nginx" if request.param == "nginx" else "built-in"


@pytest.fixture(autouse=True)
def _connections() -> Iterator[None]:
    yield
    close_wires()


@pytest.fixture(autouse=True)
def _differences(request: pytest.FixtureRequest) -> None:
    if "relay_kind" not in request.fixturenames:
        return
    for name in allowed(request.function, request.getfixturevalue("relay_kind")):
        mark = pytest.mark.xfail(
            strict=True,
            raises=AssertionError,
            reason=f"{name}: {DIFFERENCES[name].reason}",
        )
        request.applymarker(mark)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def _gateway() -> Iterator[Gateway]:
    gateway = Gateway()
    yield gateway
    gateway.close()


@pytest.fixture
def gateway(_gateway: Gateway) -> Iterator[Gateway]:
    """Return the gateway ``demo``, without earlier requests."""
    _gateway.settle()
    _gateway.forget()
    yield _gateway
    close_wires()


@pytest.fixture(scope="session")
def _other_gateway() -> Iterator[Gateway]:
    gateway = Gateway()
    yield gateway
    gateway.close()


@pytest.fixture
def other_gateway(_other_gateway: Gateway) -> Gateway:
    """Return the gateway ``other``."""
    _other_gateway.settle()
    _other_gateway.forget()
    return _other_gateway


@pytest.fixture(scope="session")
def _tls_gateways(certificates: Certificates) -> Iterator[dict[str, Gateway]]:
    gateways = {
        "sealed": Gateway(certificates.server()),
        "untrusted": Gateway(certificates.server("untrusted")),
        "misnamed": Gateway(certificates.server("misnamed")),
    }
    yield gateways
    for gateway in gateways.values():
        gateway.close()


@pytest.fixture
def tls_gateways(_tls_gateways: dict[str, Gateway]) -> dict[str, Gateway]:
    """Return gateways behind TLS: a good certificate and two bad ones."""
    for gateway in _tls_gateways.values():
        gateway.forget()
    return _tls_gateways


@pytest.fixture(scope="session")
def tree(
    _gateway: Gateway,
    _other_gateway: Gateway,
    _tls_gateways: dict[str, Gateway],
    certificates: Certificates,
) -> Tree:
    """Return a configuration that both relays are made from."""
    gateways = {
        "demo": f"http://127.0.0.1:{_gateway.port}",
        "other": f"http://127.0.0.1:{_other_gateway.port}",
        "absent": f"http://127.0.0.1:{free_port()}",
    }
    for name, gateway in _tls_gateways.items():
        gateways[name] = f"https://localhost:{gateway.port}"
    return {
        "listen": "127.0.0.1:0",
        "environment": "development",
        "hosts": [HOST],
        "upstream_ca_file": str(certificates.authority),
        "gateways": gateways,
        "clients": GENEROUS,
        "limits": PATIENT,
    }


@pytest.fixture(scope="session")
def start_relay(
    relay_kind: Kind, tree: Tree, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartRelay]:
    """Start a relay of this kind; the arguments override ``tree``."""
    with contextlib.ExitStack() as stack:

        def start(**changes: object) -> RelayProcess:
            folder = tmp_path_factory.mktemp(relay_kind)
            relay = RelayProcess(relay_kind, {**tree, **changes}, folder)
            stack.callback(relay.stop)
            return relay

        yield start


@pytest.fixture(scope="session")
def relay(start_relay: StartRelay) -> RelayProcess:
    """Return a relay with no short deadlines."""
    return start_relay()


@pytest.fixture(scope="session")
def hasty_heads(start_relay: StartRelay) -> RelayProcess:
    """Return a relay that waits half a second for a head."""
    return start_relay(limits=HASTY_HEADS)


@pytest.fixture(scope="session")
def hasty(start_relay: StartRelay) -> RelayProcess:
    """Return a relay that waits half a second for anything but a head."""
    return start_relay(limits=HASTY)


@pytest.fixture(scope="session")
def tls_relay(start_relay: StartRelay, certificates: Certificates) -> RelayProcess:
    """Return a relay with TLS towards clients."""
    relay = start_relay(tls=certificates.settings())
    relay.tls = certificates.client()
    return relay


@pytest.fixture(scope="session")
def closed_relay(start_relay: StartRelay, certificates: Certificates) -> RelayProcess:
    """Return a relay that asks clients for a certificate."""
    relay = start_relay(tls=certificates.settings(client_ca=True))
    relay.tls = certificates.client("client")
    return relay


@pytest.fixture(scope="session")
def stranger(certificates: Certificates) -> ssl.SSLContext:
    """Return a client whose certificate is of another authority."""
    return certificates.client("untrusted")
