import errno
import json
import os
import re
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from curtilage.cli import main as cli
from curtilage.cli.policy import sign as policy_sign

POLICY = """\
version: 1
default: {decision: enclave}
rules:
- {id: any-uncertain, when: "uncertain.*", then: local}
"""
CHANGED = POLICY + '- {id: mark, when: "org.*", then: block}\n'


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(POLICY, "utf-8")


def ran(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = cli.main(["policy", *arguments])
    captured = capsys.readouterr()
    return status, captured.out + captured.err


@pytest.mark.parametrize("action", ["keygen", "sign", "verify"])
def test_help_teaches(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["policy", action, "--help"])
    assert ended.value.code == 0
    assert "example" in capsys.readouterr().out


def test_keygen_writes_a_pair_and_overwrites_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, shown = ran("keygen", "key.pem", capsys=capsys)
    assert status == 0
    assert stat.S_IMODE(Path("key.pem").stat().st_mode) == 0o600
    assert "public key" in shown
    before = Path("key.pem").read_bytes()
    status, shown = ran("keygen", "key.pem", capsys=capsys)
    assert status == 2
    assert "key.pem: already" in shown
    Path("key.pem").unlink()
    assert ran("keygen", "key.pem", capsys=capsys)[0] == 2
    assert before not in Path("key.pub.pem").read_bytes()
    assert ran("keygen", "gone/key.pem", capsys=capsys)[0] == 2


def test_a_signed_policy_verifies_until_it_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ran("keygen", "key.pem", capsys=capsys)
    verify = ("verify", "--key", "key.pub.pem", "mine.yaml")
    status, shown = ran(*verify, capsys=capsys)
    assert status == 1
    assert "is not signed" in shown
    status, shown = ran("sign", "--key", "key.pem", "mine.yaml", capsys=capsys)
    assert status == 0
    assert "mine.yaml.sig: signed" in shown
    status, shown = ran(*verify, capsys=capsys)
    assert status == 0
    assert "signed and current" in shown
    assert json.loads(ran(*verify, "--json", capsys=capsys)[1])["current"] is True
    Path("mine.yaml").write_text(CHANGED, "utf-8")
    status, shown = ran(*verify, capsys=capsys)
    assert status == 1
    assert "was changed" in shown
    assert not Path("mine.yaml.sig.new").exists()


def test_verify_shows_the_expiry_and_warns_before_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ran("keygen", "key.pem", capsys=capsys)
    verify = ("verify", "--key", "key.pub.pem", "mine.yaml")
    assert json.loads(ran(*verify, "--json", capsys=capsys)[1])["valid_until"] is None
    for days, warned in ((90, False), (13, True)):
        sign = ("sign", "--key", "key.pem", "--valid-days", str(days), "mine.yaml")
        _, shown = ran(*sign, capsys=capsys)
        (valid,) = [line for line in shown.splitlines() if "valid   " in line]
        status, shown = ran(*verify, capsys=capsys)
        assert status == 0
        assert valid in shown.splitlines()
        assert bool(re.search("warning: .* 12 days", shown)) is warned
        result = json.loads(ran(*verify, "--json", capsys=capsys)[1])
        until = valid.rpartition(" to ")[2].replace(" ", "T")
        assert result["valid_until"] == until


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["sign", "--key", "key.pem", "--valid-days", "0", "mine.yaml"],
            "must be 1 to 3660",
        ),
        (["sign", "--key", "key.pem", "clinic"], "clinic: no such file"),
        (["sign", "--key", "gone.pem", "mine.yaml"], "gone.pem: No such file"),
        (["sign", "--key", "key.pub.pem", "mine.yaml"], "not an unencrypted private"),
        (["sign", "--key", "other.pem", "mine.yaml"], "not an Ed25519 key"),
        (["sign", "--key", "key.pem", "broken.yaml"], "line 1"),
        (["verify", "--key", "key.pem", "mine.yaml"], "not a public key"),
        (["verify", "--key", "key.pub.pem", "clinic"], "clinic: no such file"),
    ],
)
def test_signing_refuses(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ran("keygen", "key.pem", capsys=capsys)
    other = X25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    Path("other.pem").write_bytes(other)
    Path("broken.yaml").write_text("version: 2\n", "utf-8")
    status, shown = ran(*arguments, capsys=capsys)
    assert status == 2
    assert words in shown
    assert "PRIVATE" not in shown


def test_an_unwritable_signature_is_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ran("keygen", "key.pem", capsys=capsys)
    Path("mine.yaml.sig.new").mkdir()
    status, shown = ran("sign", "--key", "key.pem", "mine.yaml", capsys=capsys)
    assert status == 2
    assert f"mine.yaml.sig: {os.strerror(errno.EISDIR)}" in shown


def test_a_signature_is_next_to_its_policy() -> None:
    assert policy_sign.signature_path(Path("a/b.yaml")) == Path("a/b.yaml.sig")
