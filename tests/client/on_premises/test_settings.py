"""Accepted addresses, and the owners that a socket may have."""

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from curtilage.client.errors import ConfigError
from curtilage.client.on_premises.settings import (
    OnPremisesSettings,
    on_premises_settings,
    require_private_socket,
)
from support.relay_certificates import make_certificates

PIN = "ab" * 32


def settings(address: str, *, spki_sha256: str = "") -> OnPremisesSettings:
    return on_premises_settings(address=address, model="m", spki_sha256=spki_sha256)


@pytest.mark.parametrize(
    ("address", "url"),
    [
        (
            "https://llm.clinic.example",
            "https://llm.clinic.example/v1/chat/completions",
        ),
        (
            "https://llm.clinic.example/",
            "https://llm.clinic.example/v1/chat/completions",
        ),
        ("https://10.1.2.3:8443/v1/", "https://10.1.2.3:8443/v1/chat/completions"),
        ("https://[fd00::1]/a/b", "https://[fd00::1]/a/b/chat/completions"),
    ],
)
def test_questions_are_posted_below_the_address(address: str, url: str) -> None:
    assert settings(address, spki_sha256=PIN).url == url


def test_a_socket_needs_no_authority() -> None:
    made = settings("unix:/run/vllm/vllm.sock")
    assert made.socket == Path("/run/vllm/vllm.sock")
    assert made.url == "http://localhost/v1/chat/completions"
    assert made.tls is None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "llm.localhost"])
def test_plain_http_is_for_this_machine_in_development(host: str) -> None:
    address = f"http://{host}:8000/v1"
    made = on_premises_settings(address=address, model="m", plain_loopback=True)
    assert made.url == f"{address}/chat/completions"
    with pytest.raises(ConfigError, match="plain http"):
        settings(address)


@pytest.mark.parametrize(
    "address",
    [
        "http://llm.clinic.example/v1",
        "http://10.0.0.1/v1",
        "http://localhost.evil.example/",
    ],
)
def test_plain_http_to_others_is_refused_always(address: str) -> None:
    with pytest.raises(ConfigError, match="plain http"):
        on_premises_settings(address=address, model="m", plain_loopback=True)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "llm.clinic.example",
        "ftp://llm.clinic.example/",
        "https://",
        "https:///v1",
        "https://llm.clinic.example:x/v1",
        "https://llm.clinic.example:99999/v1",
        "https://[::1/v1",
        "https://ann@llm.clinic.example/v1",
        "https://:secret@llm.clinic.example/v1",
        "https://llm.clinic.example/v1?key=1",
        "https://llm.clinic.example/v1#a",
    ],
)
def test_anything_else_is_not_an_address(address: str) -> None:
    with pytest.raises(ConfigError, match="on-premises address"):
        settings(address, spki_sha256=PIN)


@pytest.mark.parametrize("address", ["unix:vllm.sock", "unix:", "unix:../a.sock"])
def test_a_socket_is_named_by_its_whole_path(address: str) -> None:
    with pytest.raises(ConfigError, match="expected unix:/path"):
        settings(address)


@pytest.mark.parametrize(("ca", "pin"), [(b"", ""), (b"x", PIN)])
def test_either_an_authority_or_a_key_identifies_the_server(
    ca: bytes, pin: str
) -> None:
    """And the system's authorities do not."""
    with pytest.raises(ConfigError, match=": set ca or spki_sha256"):
        on_premises_settings(
            address="https://a.example/v1", model="m", ca=ca, spki_sha256=pin
        )


@pytest.mark.parametrize("pin", ["ab", "AB" * 32, "zz" * 32, f"{PIN}\n"])
def test_a_pin_is_a_digest(pin: str) -> None:
    with pytest.raises(ConfigError, match=": spki_sha256 "):
        settings("https://llm.clinic.example/v1", spki_sha256=pin)


@pytest.mark.parametrize("ca", [b"x", b"\xff", b"-----BEGIN CERTIFICATE-----\nx\n"])
def test_an_authority_is_a_certificate(ca: bytes) -> None:
    with pytest.raises(ConfigError, match=r"^ca: "):
        on_premises_settings(address="https://llm.clinic.example/v1", model="m", ca=ca)


@pytest.mark.parametrize("address", ["unix:/run/a.sock", "http://127.0.0.1:1/v1"])
def test_an_unused_setting_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="are for https"):
        on_premises_settings(
            address=address, model="m", spki_sha256=PIN, plain_loopback=True
        )


def test_the_named_authority_is_the_only_one(tmp_path: Path) -> None:
    authority = make_certificates(tmp_path).authority.read_bytes()
    made = on_premises_settings(address="https://a.example/v1", model="m", ca=authority)
    assert made.tls is not None
    assert len(made.tls.get_ca_certs()) == 1
    assert made.tls.check_hostname


def test_the_digest_names_address_authority_and_key(tmp_path: Path) -> None:
    authority = make_certificates(tmp_path).authority.read_bytes()
    address = "https://a.example/v1"
    made = [
        settings(address, spki_sha256=PIN),
        settings("https://b.example/v1", spki_sha256=PIN),
        settings(address, spki_sha256="cd" * 32),
        on_premises_settings(address=address, model="m", ca=authority),
        settings("unix:/run/a.sock"),
        settings("unix:/run/b.sock"),
    ]
    assert len({each.digest for each in made}) == len(made)
    assert settings(address, spki_sha256=PIN).digest == made[0].digest
    assert all(len(each.digest) == 32 for each in made)


def test_a_key_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "on-premises.key"
    path.write_text("ward-7.0123456789abcdef\n")
    path.chmod(0o600)
    made = on_premises_settings(address="unix:/run/a.sock", model="m", key_file=path)
    assert made.api_key == "ward-7.0123456789abcdef"
    assert made.readable_by_others is None
    path.write_text("a key\r\nCookie: a=b")
    with pytest.raises(ConfigError, match=r"on-premises\.key"):
        on_premises_settings(address="unix:/run/a.sock", model="m", key_file=path)


# --- sockets ---------------------------------------------------------------------


@contextmanager
def bound(path: Path) -> Generator[Path]:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
        yield path


def test_our_own_socket_in_our_own_folder_is_accepted(tmp_path: Path) -> None:
    with bound(tmp_path / "a.sock") as path:
        require_private_socket(path)
        link = tmp_path / "link.sock"
        link.symlink_to(path)
        require_private_socket(link)


def test_a_file_is_not_a_socket(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    path.touch()
    with pytest.raises(PermissionError, match="not a socket"):
        require_private_socket(path)


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o722, 0o1777])
def test_no_other_account_may_write_to_the_folder(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with bound(folder / "a.sock") as path:
        folder.chmod(mode)
        link = tmp_path / "link.sock"
        link.symlink_to(path)
        for each in (path, link):
            with pytest.raises(PermissionError, match="a folder that others"):
                require_private_socket(each)


def test_no_other_account_may_replace_the_folder(tmp_path: Path) -> None:
    above = tmp_path / "above"
    (above / "folder").mkdir(parents=True)
    with bound(above / "folder" / "a.sock") as path:
        above.chmod(0o777)
        with pytest.raises(PermissionError, match="a folder above"):
            require_private_socket(path)
        above.chmod(0o1777)  # as /tmp
        require_private_socket(path)


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_the_folder_is_ours_or_the_servers(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with bound(folder / "a.sock") as path:
        os.chown(folder, 12345, 12345)
        with pytest.raises(PermissionError, match="a folder that others"):
            require_private_socket(path)
        os.chown(path, 12345, 12345)
        require_private_socket(path)
        os.chown(tmp_path, 12345, 12345)
        with pytest.raises(PermissionError, match="a folder above"):
            require_private_socket(path)


@pytest.mark.parametrize("inner", [False, True])
def test_no_other_account_may_choose_the_target_of_a_link(
    tmp_path: Path, *, inner: bool
) -> None:
    # In a folder such as /tmp anybody may put a link, to a socket of his own in a
    # folder of his own: which are as private as could be.
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    own.mkdir()
    with bound(own / "a.sock") as path:
        link = shared / ("folder" if inner else "a.sock")
        link.symlink_to(own if inner else path)
        named = link / "a.sock" if inner else link
        require_private_socket(named)
        shared.chmod(0o1777)
        with pytest.raises(PermissionError, match="a folder that others"):
            require_private_socket(named)
        outer = tmp_path / "outer"
        outer.symlink_to(named)
        with pytest.raises(PermissionError, match="a folder that others"):
            require_private_socket(outer)


def test_links_that_lead_nowhere_are_no_socket(tmp_path: Path) -> None:
    link = tmp_path / "link.sock"
    link.symlink_to(link)
    with pytest.raises(OSError, match="link"):
        require_private_socket(link)


def test_a_missing_socket_is_not_a_permission_problem(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        require_private_socket(tmp_path / "a.sock")
