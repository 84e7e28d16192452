"""The gateway's file: what it says, and everything that is wrong with it."""

from pathlib import Path

import pytest

from curtilage.client.conversation.kept import MAX_CALLERS
from curtilage.client.endpoint.gateway_file import (
    IN_PROGRESS,
    MAX_APPLICATIONS,
    MAX_KEYS_OF_ONE,
    read_gateway_file,
)
from curtilage.client.endpoint.keys import make_key
from curtilage.client.errors import ConfigError

KEY, RECORD = make_key("letters")
LISTEN = 'listen = "0.0.0.0:8443"\n'
NAMES = 'names = ["curtilage.ward.example"]\n'
KEYS = f'keys = ["{RECORD.row()}"]\n'
TLS = '[tls]\ncertificate = "a.crt"\nkey = "/run/secrets/a.key"\n'
WHOLE = LISTEN + NAMES + KEYS + TLS


def written(folder: Path, text: str) -> Path:
    path = folder / "gateway.toml"
    path.write_text(text, "utf-8")
    return path


def test_a_file_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, f"{WHOLE}[limits]\nin_progress = 7\n")
    file = read_gateway_file(path)
    assert (file.host, file.port) == ("0.0.0.0", 8443)  # noqa: S104
    assert file.names == {"curtilage.ward.example"}
    assert file.records == (RECORD,)
    assert file.tls is not None
    # A path is relative to the file, wherever it is read from.
    assert file.tls.certificate == tmp_path / "a.crt"
    assert file.tls.key == Path("/run/secrets/a.key")
    assert file.in_progress == 7
    assert RECORD.digest.hex() not in repr(file)


def test_what_may_be_left_out(tmp_path: Path) -> None:
    text = 'listen = "[::1]:0"\nnames = ["localhost", "[::1]"]\n'
    file = read_gateway_file(written(tmp_path, text))
    assert (file.host, file.port, file.tls) == ("::1", 0, None)
    assert (file.records, file.in_progress) == ((), IN_PROGRESS)


@pytest.mark.parametrize("host", ["192.0.2.7", "[::]", "[2001:db8::1]"])
def test_without_tls_it_listens_on_loopback_only(host: str, tmp_path: Path) -> None:
    plain = f'listen = "{host}:8443"\n{NAMES}'
    with pytest.raises(ConfigError, match="without \\[tls\\]"):
        read_gateway_file(written(tmp_path, plain))
    read_gateway_file(written(tmp_path, plain + TLS))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("listen = ", "Expected|Invalid"),
        (f"x = {'[' * 9000}", "TOML"),
        (NAMES + TLS, "listen is not"),
        ('listen = "gateway.example:8443"\n' + NAMES + TLS, "listen is not"),
        ('listen = "localhost:8443"\n' + NAMES, "listen is not"),
        ('listen = "0.0.0.0:70000"\n' + NAMES + TLS, "listen is not"),
        ('listen = "0.0.0.0"\n' + NAMES + TLS, "listen is not"),
        ("listen = 8443\n" + NAMES + TLS, "listen is not"),
        (LISTEN + TLS, "names lists"),
        (LISTEN + "names = []\n" + TLS, "names lists"),
        (LISTEN + 'names = "a"\n' + TLS, "names is not a list"),
        (LISTEN + "names = [1]\n" + TLS, "names is not a list"),
        (LISTEN + 'names = ["Ward.example"]\n' + TLS, "'Ward.example' is not"),
        (LISTEN + 'names = ["a:8443"]\n' + TLS, "'a:8443' is not"),
        (LISTEN + 'names = ["*"]\n' + TLS, "is not a host's name"),
        (LISTEN + NAMES + "[tls]\ncertificate = 'a'\n", "tls.key is not"),
        (LISTEN + NAMES + "[tls]\nkey = 'a'\n", "tls.certificate is not"),
        (LISTEN + NAMES + TLS + "client_ca = 'a'\n", "tls.client_ca is unknown"),
        (WHOLE + "[limits]\nin_progress = 0\n", "limits.in_progress"),
        (WHOLE + "[limits]\nin_progress = true\n", "limits.in_progress"),
        (WHOLE + "[limits]\nin_progress = 513\n", "limits.in_progress"),
        (WHOLE + "[limits]\nrequests = 1\n", "limits.requests is unknown"),
        ("hosts = []\n" + WHOLE, "hosts is unknown"),
        ("tls = 7\n" + LISTEN + NAMES, "tls is not a table"),
    ],
)
def test_a_mistake_is_named(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        read_gateway_file(written(tmp_path, text))


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as wrong:
        read_gateway_file(written(tmp_path, "x = 1\nlisten = 1\n[limits]\ny = 2\n"))
    assert str(wrong.value).count("\n") == 3


def test_a_key_in_the_place_of_its_record_is_not_shown(tmp_path: Path) -> None:
    rows = f'keys = ["{RECORD.row()}", "{KEY}"]\n'
    with pytest.raises(ConfigError, match="row 2") as wrong:
        read_gateway_file(written(tmp_path, LISTEN + NAMES + rows + TLS))
    assert KEY.partition(".")[2] not in str(wrong.value)


def test_there_is_a_memory_for_each_application(tmp_path: Path) -> None:
    def keys(names: list[str]) -> Path:
        rows = [f"{name}:{'00' * 16}:{'11' * 32}" for name in names]
        return written(tmp_path, f"{LISTEN}{NAMES}keys = {rows}\n{TLS}")

    assert MAX_APPLICATIONS < MAX_CALLERS
    most = [f"a{number}" for number in range(MAX_APPLICATIONS)]
    assert len(read_gateway_file(keys(most)).records) == MAX_APPLICATIONS
    with pytest.raises(ConfigError, match="applications"):
        read_gateway_file(keys([*most, "another"]))
    read_gateway_file(keys(["a"] * MAX_KEYS_OF_ONE))
    with pytest.raises(ConfigError, match="a has more than"):
        read_gateway_file(keys(["a"] * (MAX_KEYS_OF_ONE + 1)))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gateway\.toml"):
        read_gateway_file(tmp_path / "gateway.toml")
