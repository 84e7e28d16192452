import socket
import ssl
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from curtilage_dev.certificates import Authority, Server

NOW = datetime.now(UTC)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.make(tmp_path / "tls", now=NOW)


def handshake(server: Server, trusted: Path, *, name: str) -> None:
    """Connect two ends of a pair; raises what the client's end raises."""
    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ours.load_cert_chain(server.certificate, server.key)
    theirs = ssl.create_default_context(cafile=str(trusted))
    one, other = socket.socketpair()

    def serve() -> None:
        try:
            with ours.wrap_socket(one, server_side=True) as wrapped:
                wrapped.recv(1)
        except OSError:
            one.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with theirs.wrap_socket(other, server_hostname=name):
            pass
    finally:
        other.close()
        thread.join()


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "::1"])
def test_loopback_is_believed(authority: Authority, name: str) -> None:
    server = authority.issue("relay", now=NOW)
    handshake(server, authority.certificate, name=name)


def test_another_name_is_not_believed(authority: Authority) -> None:
    server = authority.issue("relay", now=NOW)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, authority.certificate, name="relay.example")


def test_another_authority_is_not_believed(
    authority: Authority, tmp_path: Path
) -> None:
    other = Authority.make(tmp_path / "other", now=NOW)
    server = authority.issue("relay", now=NOW)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, other.certificate, name="localhost")


def test_keys_are_the_owners_alone(authority: Authority) -> None:
    server = authority.issue("relay", now=NOW)
    assert stat.S_IMODE(server.key.stat().st_mode) == 0o600
    assert stat.S_IMODE(authority.folder.stat().st_mode) == 0o700
    assert sorted(path.name for path in authority.folder.iterdir()) == [
        "authority.pem",
        "relay.key",
        "relay.pem",
    ], "the authority's own key is in memory only"


def test_a_server_is_no_authority(authority: Authority) -> None:
    server = authority.issue("relay", now=NOW)
    made = x509.load_pem_x509_certificate(server.certificate.read_bytes())
    key = made.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"
    constraints = made.extensions.get_extension_for_class(x509.BasicConstraints)
    assert not constraints.value.ca
