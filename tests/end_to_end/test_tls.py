"""TLS on both hops; a peer without a valid certificate learns nothing."""

from collections.abc import Callable, Generator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from end_to_end.conftest import QUICK, OpenSession, patient_profile, with_evidence_of

from curtilage.client.chat.answer import Answerer
from curtilage.client.chat.query import Message, Query, Settings
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage_dev.asking import open_answer
from curtilage_dev.certificates import Authority
from curtilage_dev.processes import Processes
from curtilage_dev.scripted_enclave import BEGAN, ENDED, Play
from curtilage_dev.stack import Stack, listen_address
from support.middle import middle

CANARY = "heliotrope"
QUERY = Query(
    messages=(Message(role="user", content=f"What is a {CANARY}?"),),
    settings=Settings(max_tokens=64, temperature=0, seed=1),
    stream=True,
)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Generator[Stack]:
    folder = tmp_path_factory.mktemp("secure")
    with Processes(folder) as processes:
        own = Stack(
            folder=folder,
            processes=processes,
            transport=QUICK,
            tls=True,
            profile=patient_profile(),
            play=Play(pieces=6, runs=folder / "runs"),
        )
        with_evidence_of(stack, own)
        own.publish()
        own.start_enclave()
        own.start_relay()
        yield own


@pytest.fixture
def runs_seen(secure: Stack) -> Callable[[], list[str]]:
    """The model's runs, from now on."""
    path = secure.folder / "runs"
    path.write_text("")
    return lambda: path.read_text().split()


async def test_a_question_over_tls_on_both_hops(
    secure: Stack, open_session: OpenSession, runs_seen: Callable[[], list[str]]
) -> None:
    assert secure.relay_url.startswith("https://")
    policy = secure.policy.read_text("utf-8")
    async with middle(secure.relay_address) as line:
        relay = secure.relay_url.replace(secure.relay_address, line.address)
        async with open_session(
            relay=relay, policy=policy, ca=secure.authority
        ) as session:
            answer = await session.ask(QUERY)
    assert answer.route is Answerer.ENCLAVE
    assert runs_seen() == [BEGAN, ENDED]
    for data in (line.outward, line.homeward):
        assert data[:1] == b"\x16", "a TLS handshake, and no head of HTTP"
        for seen in (CANARY, "HTTP/1.1", "ohttp", "/demo", "bundle"):
            assert seen.encode() not in data


async def test_another_authority_at_the_client_keeps_the_question_home(
    secure: Stack,
    open_session: OpenSession,
    runs_seen: Callable[[], list[str]],
    tmp_path: Path,
) -> None:
    other = Authority.make(tmp_path / "other", now=datetime.now(UTC))
    policy = secure.policy.read_text("utf-8")
    for ca in (other.certificate, None):  # None: those that the system trusts
        async with open_session(
            relay=secure.relay_url, policy=policy, ca=ca
        ) as session:
            answer = await session.ask(QUERY)
        assert answer.route is Answerer.LOCAL
        assert answer.provenance.fallback is EnclaveFailure.RELAY_UNTRUSTED
    assert runs_seen() == []


async def test_plain_http_to_a_relay_with_tls_keeps_the_question_home(
    secure: Stack, open_session: OpenSession, runs_seen: Callable[[], list[str]]
) -> None:
    policy = secure.policy.read_text("utf-8")
    plain = secure.relay_url.replace("https://", "http://")
    async with open_session(relay=plain, policy=policy) as session:
        answer = await session.ask(QUERY)
    assert answer.route is Answerer.LOCAL
    assert runs_seen() == []


async def test_another_authority_at_the_relay_keeps_the_question_home(
    secure: Stack,
    open_session: OpenSession,
    runs_seen: Callable[[], list[str]],
    tmp_path: Path,
) -> None:
    """The relay does not trust the enclave's certificate, so nothing is passed on."""
    other = Authority.make(tmp_path / "other", now=datetime.now(UTC))
    text = (secure.folder / "relay.toml").read_text("utf-8")
    changed = text.replace(
        f'upstream_ca_file = "{secure.authority}"',
        f'upstream_ca_file = "{other.certificate}"',
    ).replace(secure.relay_address, "127.0.0.1:0")
    assert changed != text
    config = tmp_path / "relay.toml"
    config.write_text(changed, "utf-8")
    policy = secure.policy.read_text("utf-8")
    with Processes(tmp_path) as processes:
        command = ["-m", "curtilage.relay", "--config", str(config)]
        address = listen_address(processes.start("relay", command).wait_ready())
        relay = secure.relay_url.replace(secure.relay_address, address)
        async with open_session(
            relay=relay, policy=policy, ca=secure.authority
        ) as session:
            answer = await session.ask(QUERY)
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.fallback is EnclaveFailure.ENCLAVE_UNREACHABLE
    assert runs_seen() == []


def test_the_clients_program_takes_the_authority(
    secure: Stack, runs_seen: Callable[[], list[str]]
) -> None:
    secure.start_client()
    question = f"What is a {CANARY}?"
    with open_answer(secure.client_url, question, max_tokens=8) as response:
        assert response.headers["x-curtilage-route"] == "enclave"
        assert b"[DONE]" in response.read()
    assert runs_seen() == [BEGAN, ENDED]
    assert secure.fetch_bundle().stat().st_size > 0
