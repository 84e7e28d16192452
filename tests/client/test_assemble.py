"""Which commands keep a spare worker, and which see a policy that is not signed."""

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from curtilage.cli import examine
from curtilage.cli import main as cli
from curtilage.cli import start as shared
from curtilage.client import assemble as assembling
from curtilage.client.assemble import house_keys, inspector_for, inspector_from
from curtilage.client.config import Flags, read_config
from curtilage.client.detection.inspection import Inspector
from curtilage.client.errors import ConfigError
from curtilage.client.parts import ClientParts
from curtilage.client.query import Query
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.document.load import load_profile
from curtilage.policy.document.model import Policy
from curtilage.policy.signing import public_pem
from curtilage.wire.hpke import xwing
from support.client_parts import ScriptedInspector

KEY = Ed25519PrivateKey.from_private_bytes(bytes([5]) * 32)
POLICY = """\
version: 1
default: {decision: enclave}
rules:
- {id: any-uncertain, when: "uncertain.*", then: local}
"""
CASES = """\
version: 1
cases:
- {id: plain, text: hello, route: enclave}
"""


class Nothing(ScriptedInspector):
    """Finds nothing, in every way that the detectors do."""

    def inspect(self, query: Query) -> Inspection:
        return Inspection(
            findings=(), payload_digest=query.payload_digest(), messages=1
        )

    def inspect_many(self, queries: Sequence[Query]) -> Iterator[Inspection]:
        return map(self.inspect, queries)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[bool]:
    """Whether a spare was asked for, of each start."""
    asked: list[bool] = []

    def start(policy: Policy, *, spare: bool = True) -> Inspector:
        del policy
        asked.append(spare)
        return cast("Inspector", Nothing())

    monkeypatch.setattr(Inspector, "start", start)
    for name in ("CURTILAGE_POLICY", "CURTILAGE_POLICY_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(POLICY, "utf-8")
    Path("cases.yaml").write_text(CASES, "utf-8")
    Path("corpus.jsonl").write_text(json.dumps({"id": 1, "text": "hello"}), "utf-8")
    Path("key.pem").write_bytes(public_pem(KEY))
    return asked


def test_no_spare_is_started_unless_it_is_asked_for(started: list[bool]) -> None:
    config = read_config(Flags(policy="mine.yaml"), {})
    inspector_for(load_profile("default"))
    inspector_from(config)
    examine.start_detectors(config.policy)
    assert started == [False] * 3
    inspector_from(config, spare=True)
    assert started[-1]


@pytest.mark.parametrize("spare", [False, True])
async def test_a_client_keeps_a_spare_if_it_is_told_so(
    started: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    spare: bool,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def no_model(config: object) -> None:
        del config

    monkeypatch.setattr(assembling, "_local", no_model)
    config = read_config(Flags(policy="mine.yaml"), {})
    parts = await assembling.assemble(config, spare=spare)
    assert started == [spare]
    await assembling.assemble(config)
    assert started[-1], "the library's client runs for long"
    await parts.audit.close()


@pytest.mark.usefixtures("started")
async def test_what_never_leaves_needs_no_hpke(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def no_model(config: object) -> None:
        del config

    monkeypatch.setattr(assembling, "_local", no_model)
    monkeypatch.setattr(xwing, "_LABEL", b"another label")
    parts = await assembling.assemble(read_config(Flags(policy="mine.yaml"), {}))
    assert parts.transport is None
    await parts.audit.close()


@pytest.mark.parametrize(
    ("arguments", "spare"),
    [(["ask", "hello"], False), (["serve", "--port", "0"], True)],
)
@pytest.mark.usefixtures("started")
def test_only_a_server_keeps_a_spare(
    arguments: list[str], spare: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    async def assemble(config: object, *, spare: bool) -> ClientParts:
        del config
        asked.append(spare)
        raise KeyboardInterrupt

    monkeypatch.setattr(shared, "assemble", assemble)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        raise SystemExit(cli.main([*arguments, "--policy", "mine.yaml"]))
    assert asked == [spare]


EXAMINATIONS = [
    ["explain", "--json", "hello"],
    ["policy", "explain", "--json", "hello"],
    ["policy", "test", "cases.yaml", "--json"],
]


@pytest.mark.parametrize("arguments", EXAMINATIONS)
@pytest.mark.usefixtures("started")
def test_an_examination_sees_a_policy_that_is_not_signed(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with_policy = [*arguments, "--policy", "mine.yaml"]
    assert cli.main(with_policy) == 0
    assert "any-uncertain" not in capsys.readouterr().out
    cli.main([*with_policy, "--policy-key", "key.pem"])
    assert "any-uncertain" in capsys.readouterr().out


@pytest.mark.usefixtures("started")
def test_a_comparison_sees_a_policy_that_is_not_signed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    compare = ["policy", "diff", "mine.yaml", "other.yaml", "--corpus", "corpus.jsonl"]
    Path("other.yaml").write_text(POLICY + "# another\n", "utf-8")
    sign = ["policy", "sign", "mine.yaml", "--key", "private.pem"]
    assert cli.main(["policy", "keygen", "private.pem"]) == 0
    assert cli.main(sign) == 0
    assert cli.main(compare) == 0
    assert "0 of 1 queries change route" in capsys.readouterr().out
    assert cli.main([*compare, "--policy-key", "private.pub.pem"]) == 0
    assert "enclave (default) -> local (any-uncertain)" in capsys.readouterr().out


async def test_whoever_starts_detectors_is_told_that_no_wall_stands(
    started: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    del started
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(Nothing, "advice", "no wall stands")

    async def no_model(config: object) -> None:
        del config

    monkeypatch.setattr(assembling, "_local", no_model)
    config = read_config(Flags(policy="mine.yaml"), {})
    parts = await assembling.assemble(config)
    await parts.audit.close()
    assert parts.advice == "no wall stands"
    examine.start_detectors(config.policy)
    assert capsys.readouterr().err == "no wall stands\n"
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b'{"id": 1, "text": "x"}')))
    decide = ["decide", "--jsonl", "--policy", "mine.yaml"]
    assert await asyncio.to_thread(cli.main, decide) == 0
    assert capsys.readouterr().err == "no wall stands\n"


def test_each_server_in_the_house_has_a_key_of_its_own() -> None:
    """One key for all would let each of them open the others."""
    assert house_keys(None, ["ward", "lab"]) == {}
    assert house_keys("k", ["ward"]) == {"ward": Path("k")}
    assert house_keys("ward=a,lab=b", ["ward", "lab"]) == {
        "ward": Path("a"),
        "lab": Path("b"),
    }


@pytest.mark.parametrize("said", ["k", "ward", "ward=", "other=k", "ward=a,k"])
def test_a_key_of_nobody_is_refused(said: str) -> None:
    with pytest.raises(ConfigError, match="whose key"):
        house_keys(said, ["ward", "lab"])
