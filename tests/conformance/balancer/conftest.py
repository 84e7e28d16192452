"""Both programs, each started once for each kind of configuration."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from support.balancer_processes import (
    ABSENT,
    PLACES,
    Backend,
    BalancerProcess,
    Program,
)
from support.relay_certificates import Certificates, make_certificates
from support.relay_processes import close_wires
from support.relay_wire import HOST

QUICK = {"check_s": 1, "connect_timeout_s": 0.5, "shutdown_grace_s": 5}
PATIENT = {"check_s": 20, "connect_timeout_s": 20}
"""On a busy machine a live relay must not be taken for dead."""
UNCAPPED = {"exchanges": 0, "requests_per_s": 0}
StartBalancer = Callable[..., BalancerProcess]


@pytest.fixture(scope="session", params=["nginx", "envoy"])
def program(request: pytest.FixtureRequest) -> Program:
    name: Program = "nginx" if request.param == "nginx" else "envoy"
    if PLACES[name] is None:
        pytest.skip(ABSENT[name])
    return name


@pytest.fixture(autouse=True)
def _connections() -> Iterator[None]:
    yield
    close_wires()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def _backends() -> Iterator[tuple[Backend, Backend]]:
    pair = Backend(), Backend()
    yield pair
    for backend in pair:
        backend.close()


@pytest.fixture
def backends(_backends: tuple[Backend, Backend]) -> tuple[Backend, Backend]:
    """Return two backends, without earlier requests."""
    for backend in _backends:
        backend.healthy = True
        backend.forget()
    return _backends


@pytest.fixture(scope="session")
def start_balancer(
    program: Program, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartBalancer]:
    """Start a balancer with these configuration values."""
    with contextlib.ExitStack() as stack:

        def start(**tree: object) -> BalancerProcess:
            whole = {"environment": "development", "limits": QUICK, **tree}
            folder = tmp_path_factory.mktemp(program)
            balancer = BalancerProcess(program, whole, folder)
            stack.callback(balancer.stop)
            return balancer

        yield start


@pytest.fixture(scope="session")
def before_relays(
    start_balancer: StartBalancer, _backends: tuple[Backend, Backend]
) -> BalancerProcess:
    """Return a balancer in front of two relays."""
    addresses = [backend.address for backend in _backends]
    return start_balancer(relays={HOST: addresses}, clients=UNCAPPED)


@pytest.fixture(scope="session")
def before_enclaves(
    start_balancer: StartBalancer, _backends: tuple[Backend, Backend]
) -> BalancerProcess:
    """Return a balancer in front of two enclaves, ``a.example`` and ``b.example``."""
    a, b = _backends
    return start_balancer(enclaves={"a.example": a.address, "b.example": b.address})
