"""Warnings at the start of a command."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from curtilage.cli import main as cli
from curtilage.cli import serve, start
from curtilage.client import assemble
from curtilage.client.config import ClientConfig
from curtilage.client.detection.inspection import Inspector
from curtilage.client.errors import UsageError
from curtilage.client.parts import ClientParts
from curtilage.client.session import Session
from curtilage.inference.default_model import DEFAULT_SHA256
from curtilage.policy.document.load import load_policy, load_profile
from curtilage.policy.signing import generate_key, public_pem, sign_policy
from support.client_parts import MemoryTrail, ScriptedInspector, ScriptedLocal
from support.memory_enclave import key_store

POLICY = """\
version: 1
default: {decision: enclave}
rules:
- {id: any-uncertain, when: "uncertain.*", then: local}
"""
COMMANDS = {
    "ask": ("ask", "What is HIV?"),
    "ask --json": ("ask", "--json", "What is HIV?"),
    "decide": ("decide", "--jsonl"),
    "explain": ("explain", "What is HIV?"),
    "policy explain": ("policy", "explain", "What is HIV?"),
    "route explain": ("route", "explain", "What is HIV?"),
}


def signed_for(days: float) -> None:
    key, now = generate_key(), datetime.now(UTC)
    Path("key.pub.pem").write_bytes(public_pem(key))
    Path("mine.yaml").write_text(POLICY, "utf-8")
    signature = sign_policy(
        load_policy(POLICY).digest,
        key,
        not_before=int((now - timedelta(days=30)).timestamp()),
        not_after=int((now + timedelta(days=days)).timestamp()),
    )
    Path("mine.yaml.sig").write_bytes(signature.encode())


def never(*_arguments: object, **_more: object) -> None:
    raise UsageError("started")


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(assemble, "assemble", never)
    monkeypatch.setattr(start, "assemble", never, raising=False)
    monkeypatch.setattr(Inspector, "start", never)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize(
    ("days", "warning"),
    [
        (-1, "warning: the signature of the policy has expired; until it is signed"),
        (13.5, "warning: the policy's signature ends in 13 days, on "),
        (15, ""),
    ],
    ids=["expired", "soon", "later"],
)
def test_a_signature_that_ends_is_warned_of_before_anything_starts(
    command: tuple[str, ...],
    days: float,
    warning: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    signed_for(days)
    name, *rest = command
    verbs = [name] + ([rest.pop(0)] if name in {"policy", "route"} else [])
    given = ["--policy", "mine.yaml", "--policy-key", "key.pub.pem"]
    assert cli.main([*verbs, *given, *rest]) == 2
    shown = capsys.readouterr()
    assert "started" in shown.err
    assert ("warning" in shown.err) is bool(warning)
    assert warning in shown.err
    assert shown.out == "", "not where answers go"


@pytest.fixture
def broken_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def parts(config: ClientConfig, **_more: object) -> ClientParts:
        trail = MemoryTrail(broken=True)
        return ClientParts(
            policy=config.policy,
            inspector=ScriptedInspector(),
            local=ScriptedLocal(),
            transport=None,
            keys=key_store(),
            audit=trail,
            currency=config.currency,
        )

    async def soon(*_stop: object) -> bool:
        await asyncio.sleep(0)  # the log begins
        return True

    monkeypatch.setattr(assemble, "assemble", parts)
    monkeypatch.setattr(serve, "_stopped", soon)


@pytest.mark.usefixtures("broken_parts")
@pytest.mark.parametrize(
    ("days", "said"),
    [
        (
            -1,
            {
                "signature of the policy has expired": 1,
                "policy: degraded (policy_not_current)": 1,
            },
        ),
        (13.5, {"signature ends": 1, "policy: degraded (policy_expiring)": 1}),
        (15, {"signature": 0}),
    ],
    ids=["expired", "soon", "later"],
)
def test_serve_says_once_what_is_wrong(
    days: float, said: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    signed_for(days)
    given = ("--policy", "mine.yaml", "--policy-key", "key.pub.pem")
    assert cli.main(["serve", "--port", "0", *given]) == 0
    shown = capsys.readouterr().err
    assert {each: shown.count(each) for each in said} == said
    assert shown.count(str(MemoryTrail(broken=True).problem)) == 1, (
        "why, which the log does not say"
    )
    assert shown.count("degraded (audit_failed)") == 1
    assert shown.count("nothing is sent") == 1
    assert start.NOT_SENT not in shown
    assert shown.count("is kept local") == (days < 0)


def test_a_policy_that_was_changed_is_warned_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    signed_for(90)
    Path("mine.yaml").write_text(f"{POLICY}# and more\n", "utf-8")
    given = ("--policy", "mine.yaml", "--policy-key", "key.pub.pem")
    assert cli.main(["explain", *given, "What is HIV?"]) == 2
    assert re.search("warning: .* another policy", capsys.readouterr().err)


def test_where_no_signature_is_asked_for_nothing_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    signed_for(-1)
    assert cli.main(["explain", "--policy", "mine.yaml", "What is HIV?"]) == 2
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize("away", [True, False])
@pytest.mark.parametrize("embedded", [True, False])
def test_the_embedded_model_is_called_a_demonstration(
    *,
    embedded: bool,
    away: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    local = ScriptedLocal()
    if embedded:
        local.digests = (DEFAULT_SHA256, None)
    policy = load_profile("default")
    parts = ClientParts(
        policy=policy,
        inspector=ScriptedInspector(),
        local=local,
        transport=None,
        keys=key_store(),
        audit=MemoryTrail(),
        router=assemble.router_for(policy, local),
    )
    if away:
        monkeypatch.setattr(Session, "absent", None)

    @asynccontextmanager
    async def session_from(
        *_config: object, **_more: object
    ) -> AsyncGenerator[Session]:
        async with Session(parts) as session:
            yield session

    async def at_once(*_stop: object) -> bool:
        return True

    monkeypatch.setattr(serve, "session_from", session_from)
    monkeypatch.setattr(serve, "_stopped", at_once)
    assert cli.main(["serve", "--port", "0"]) == 0
    shown = capsys.readouterr()
    assert '"ready": true' in shown.out
    assert ("DEMONSTRATION" in shown.err) is embedded
    # If nothing can be sent, the share of sent questions is not shown.
    aim = (
        "under the policy's aim about 4 of 100 questions that may be sent are answered"
    )
    assert (aim in shown.err) is (embedded and away)
