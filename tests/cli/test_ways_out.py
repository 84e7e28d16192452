"""Relay, mirror and dummies from a configuration, or the reason for none."""

from pathlib import Path

import pytest
from cli.test_main import development_policy_text

from curtilage.cli import start as shared
from curtilage.client import assemble as assembling
from curtilage.client.config import AccessFiles, ClientConfig, Flags, read_config
from curtilage.client.errors import ConfigError, SealingError
from curtilage.client.parts import ClientParts
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.policy.document.load import load_policy, load_profile
from curtilage.wire.hpke import xwing
from support.client_parts import MemoryTrail, ScriptedInspector, ScriptedLocal
from support.memory_enclave import key_store

DEVELOPMENT = development_policy_text()
RELAY = "https://relay.operator.example/ward"
SHAPE = "transport:\n  accept: []\n"


def config(
    transport: str = SHAPE, *, relay: str | None = RELAY, text: str = DEVELOPMENT
) -> ClientConfig:
    own = text.partition("\ntransport:")[0]
    policy = load_policy(f"{own}\n{transport}")
    return ClientConfig(policy=policy, policy_source="test", relay=relay)


async def test_relay_and_mirror_have_connections_of_their_own() -> None:
    ways = assembling.ways_out(config(f"{SHAPE}  mirror: https://keys.example.net/x\n"))
    assert ways.transport is not None
    assert ways.mirror is not None


def test_without_a_relay_there_is_no_way_out() -> None:
    ways = assembling.ways_out(config(relay=None))
    assert (ways.transport, ways.mirror) == (None, None)
    assert ways.absent is EnclaveFailure.NOT_CONFIGURED


def test_without_an_enclave_to_believe_there_is_none_either() -> None:
    plain = ClientConfig(
        policy=load_profile("default"), policy_source="test", relay=RELAY
    )
    ways = assembling.ways_out(plain)
    assert (ways.transport, ways.mirror) == (None, None)
    assert ways.absent is EnclaveFailure.NO_ENCLAVE_NAMED


@pytest.mark.parametrize("party", ["mirror", "gateway"])
def test_no_other_party_shares_the_relays_domain(party: str) -> None:
    with pytest.raises(ConfigError, match="different organisations"):
        assembling.ways_out(config(f"{SHAPE}  {party}: https://x.operator.example\n"))
    assembling.ways_out(config(f"{SHAPE}  {party}: https://x.other.example\n"))


def test_this_machine_is_for_development() -> None:
    assembling.ways_out(config(relay="http://127.0.0.1:9/demo"))
    assembling.ways_out(config(relay="https://192.0.2.7/demo"))
    for relay in ("https://127.0.0.1/x", "https://192.0.2.7/x", "https://localhost/x"):
        with pytest.raises(ConfigError, match="development"):
            assembling.ways_out(
                ClientConfig(
                    policy=load_profile("default"), policy_source="test", relay=relay
                )
            )


async def test_a_client_whose_hpke_is_another_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(xwing, "_LABEL", b"another label")
    with pytest.raises(SealingError, match="0x647a"):
        await assembling.assemble(config())


def test_dummies_are_the_policys_choice() -> None:
    assert assembling.cover_settings(config().policy) is None
    policy = config(f"{SHAPE}  cover: {{delay_s: [1, 8], share: 30}}\n").policy
    settings = assembling.cover_settings(policy)
    assert settings is not None
    assert (settings.delay_s, settings.share) == ((1, 8), 30)


def test_flags_win_over_the_environment_for_access_too(tmp_path: Path) -> None:
    environ = {
        "CURTILAGE_RELAY_CA": "ca",
        "CURTILAGE_RELAY_CERTIFICATE": "certificate",
        "CURTILAGE_RELAY_CERTIFICATE_KEY": "certificate-key",
        "CURTILAGE_RELAY_KEY_FILE": "key",
    }
    read = read_config(Flags(relay_key_file=str(tmp_path / "own")), environ)
    assert read.relay_access == AccessFiles(
        ca=Path("ca"),
        certificate=Path("certificate"),
        certificate_key=Path("certificate-key"),
        key=tmp_path / "own",
    )
    assert read_config(Flags(), {}).relay_access == AccessFiles()


async def test_a_key_that_others_can_read_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "relay.key"
    path.write_text("ward-7.0123456789abcdef")
    path.chmod(0o644)
    mine = config()
    loose = ClientConfig(
        policy=mine.policy,
        policy_source="test",
        relay=RELAY,
        relay_access=AccessFiles(key=path),
    )
    ways = assembling.ways_out(loose)

    async def assemble(_config: object, **_more: object) -> ClientParts:
        return ClientParts(
            policy=mine.policy,
            inspector=ScriptedInspector(),
            local=ScriptedLocal(),
            transport=ways.transport,
            keys=key_store(),
            audit=MemoryTrail(),
            advice=ways.advice,
        )

    monkeypatch.setattr(assembling, "assemble", assemble)
    async with shared.session_from(loose):
        pass
    result = capsys.readouterr().err
    assert "chmod 600" in result
    assert str(path) in result
    assert "0123456789abcdef" not in result
