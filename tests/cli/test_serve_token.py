"""Where ``serve`` listens, and what it prints about its token."""

import io
import stat
from pathlib import Path

import pytest
from typing_extensions import override

from curtilage.cli import serve
from curtilage.cli.declared import parse
from curtilage.cli.main import main
from curtilage.cli.table import root
from curtilage.client.endpoint.accounts import TOKEN_NAME
from curtilage.client.errors import ConfigError

TOKEN = "T" * 43


class Terminal(io.StringIO):
    @override
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_the_token_is_shown_on_a_terminal_alone(
    stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = stream()
    monkeypatch.setattr("sys.stderr", errors)
    serve.announce(TOKEN, Path("/state/endpoint-token"))
    said = errors.getvalue()
    assert "/state/endpoint-token" in said
    assert (TOKEN in said) is (stream is Terminal)


def test_the_token_is_in_the_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    token, path = serve.kept_token()
    assert path == tmp_path / "curtilage" / "endpoint-token"
    assert path.read_text() == f"{token}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert serve.kept_token() == (token, path)
    path.chmod(0o644)
    with pytest.raises(ConfigError):
        serve.kept_token()


def test_where_no_token_can_be_kept_there_is_none(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "curtilage").write_text("a file where the folder would be")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert serve.kept_token()[0] is None
    assert TOKEN_NAME in capsys.readouterr().err


@pytest.mark.parametrize(
    "where", ["tcp:127.0.0.1:1", "unix:", "unix:relative/path", "/run/s", "unix"]
)
def test_a_socket_has_a_whole_path(where: str) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(root, ["serve", "--listen", where])
    assert ended.value.code == 2
    taken = parse(root, ["serve", "--listen", "unix:/run/s"]).arguments
    assert taken.listen == Path("/run/s")


def test_somewhere_it_has_to_listen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--no-tcp"]) == 2
    assert "--listen unix:PATH" in capsys.readouterr().err
