"""Which commands keep a spare worker, and which see a policy that is not signed."""

import asyncio
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from curtilage.attest.log.model_manifest import ModelFiles
from curtilage.cli import examine
from curtilage.cli import main as cli
from curtilage.client import assemble as assembling
from curtilage.client.assemble import inspector_from, on_premises_keys
from curtilage.client.chat.query import Query
from curtilage.client.config import Flags, read_config
from curtilage.client.conversation.kept import LOST, TABLE_NAME
from curtilage.client.detection.inspection import Inspector
from curtilage.client.errors import ConfigError
from curtilage.client.local.model import LocalModel
from curtilage.client.local.rollout.state import NO_MANIFEST
from curtilage.client.parts import AnswersLocally, ClientParts, UnavailableLocal
from curtilage.client.routing.thresholds import Shipped, packed
from curtilage.client.routing.trace import model_tag
from curtilage.client.session import Session
from curtilage.inference.errors import ModelFileError
from curtilage.lab.commands import evaluate
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.document.load import load_policy, load_profile
from curtilage.policy.document.model import Policy
from curtilage.policy.signing import public_pem
from curtilage.wire.hpke import xwing
from curtilage_dev.scripted_engine import ScriptedEngine
from support.byte_model import make_byte_model, sha256_of
from support.client_parts import ScriptedInspector
from support.drafts import THRESHOLDS
from support.inspections import inspection_of
from support.rollouts import FollowedRollout

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
        return inspection_of(
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
    evaluate.inspector_for(load_profile("default"))
    inspector_from(config)
    examine.start_detectors(config.policy)
    assert started == [False] * 3
    inspector_from(config, spare=True)
    assert started[-1]


@pytest.mark.parametrize("spare", [False, True])
async def test_a_client_keeps_a_spare_worker_if_configured(
    started: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    spare: bool,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def no_model(config: object, *_told: object) -> UnavailableLocal:
        del config
        return UnavailableLocal("there is none")

    monkeypatch.setattr(assembling, "local_model", no_model)
    config = read_config(Flags(policy="mine.yaml"), {})
    parts = await assembling.assemble(config, spare=spare)
    assert started == [spare]
    await assembling.assemble(config)
    assert started[-1], "the library's client runs for long"
    await parts.audit.close()


@pytest.mark.usefixtures("started")
async def test_what_stayed_is_known_after_a_restart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The client of the product has files for it, and says where they are lost."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def no_model(config: object, *_told: object) -> AnswersLocally:
        del config
        return UnavailableLocal("there is none")

    monkeypatch.setattr(assembling, "local_model", no_model)

    async def start() -> ClientParts:
        return await assembling.assemble(read_config(Flags(policy="mine.yaml"), {}))

    parts = await start()
    assert parts.kept is not None
    assert LOST not in (parts.advice or "")
    parts.kept.add(b"", bytes(32))
    await Session(parts).close()  # saves what is not on the disk, and closes
    table = tmp_path / "curtilage" / TABLE_NAME
    assert table.stat().st_mode & 0o777 == 0o600
    parts = await start()
    assert parts.kept is not None
    assert parts.kept.holds([bytes(32)])
    await Session(parts).close()
    table.unlink()
    parts = await start()
    assert parts.kept is not None
    assert parts.kept.forgot(b"")
    assert LOST in (parts.advice or "")
    await Session(parts).close()


@pytest.mark.usefixtures("started")
async def test_what_never_leaves_needs_no_hpke(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def no_model(config: object, *_told: object) -> UnavailableLocal:
        del config
        return UnavailableLocal("there is none")

    monkeypatch.setattr(assembling, "local_model", no_model)
    monkeypatch.setattr(xwing, "_LABEL", b"another label")
    parts = await assembling.assemble(read_config(Flags(policy="mine.yaml"), {}))
    assert parts.transport is None
    await parts.audit.close()


@pytest.mark.parametrize(
    ("arguments", "spare"),
    [(["ask", "hello"], False), (["serve", "--port", "0"], True)],
)
@pytest.mark.usefixtures("started")
def test_only_a_server_keeps_a_spare_and_goes_on_after_a_restart(
    arguments: list[str], spare: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    async def assemble(
        _config: object, *, spare: bool, lasting: bool, **_more: object
    ) -> ClientParts:
        asked.extend((spare, lasting))
        raise KeyboardInterrupt

    monkeypatch.setattr(assembling, "assemble", assemble)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        raise SystemExit(cli.main([*arguments, "--policy", "mine.yaml"]))
    assert asked == [spare, spare]


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
    assert "0 of 1 queries" in capsys.readouterr().out
    assert cli.main([*compare, "--policy-key", "private.pub.pem"]) == 0
    assert "(default) -> local (any-uncertain)" in capsys.readouterr().out


async def test_a_missing_wall_is_reported_at_start(
    started: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    del started
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(Nothing, "advice", "no wall stands")

    async def no_model(config: object, *_told: object) -> UnavailableLocal:
        del config
        return UnavailableLocal("there is none")

    monkeypatch.setattr(assembling, "local_model", no_model)
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


def drafting(data: bytes) -> Policy:
    """Return a policy that wants drafts, judged as a file says."""
    digest = hashlib.sha256(data).hexdigest()
    text = (
        POLICY + "routing:\n"
        "  tiers: [{id: home, kind: in_process}, {id: away, kind: attested}]\n"
        f"  speculation: {{mode: verify, thresholds: t.json, sha256: {digest}}}\n"
    )
    return load_policy(text, files=lambda _: data)


async def test_drafts_are_of_the_model_that_was_certified() -> None:
    policy = drafting(packed(THRESHOLDS))
    model = LocalModel(ScriptedEngine, model_id="scripted")
    await model.start()
    router = assembling.router_for(policy, model)
    assert router is not None
    assert router.unfit() is None


def test_only_another_model_is_reported_while_one_loads() -> None:
    policy = drafting(packed(THRESHOLDS))
    own = THRESHOLDS.model_sha256
    loading = LocalModel(ScriptedEngine, model_id="scripted", sha256=own)
    assert assembling.undrafted(assembling.router_for(policy, loading)) is None
    other = LocalModel(ScriptedEngine, model_id="scripted", sha256="11" * 32)
    said = assembling.undrafted(assembling.router_for(policy, other))
    assert said is not None
    assert "another model" in said


def test_drafts_without_a_model_are_reported() -> None:
    none = UnavailableLocal("there is no local model")
    router = assembling.router_for(drafting(packed(THRESHOLDS)), none)
    assert "no local model" in (assembling.undrafted(router) or "")
    assert assembling.undrafted(None) is None


def test_the_thresholds_of_the_package_are_read_where_the_policy_names_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = list[str]()

    def shipped() -> tuple[Shipped, ...]:
        read.append("read")
        return ()

    monkeypatch.setattr(assembling, "shipped_thresholds", shipped)
    none = UnavailableLocal("none")
    tiers = "  tiers: [{id: home, kind: in_process}, {id: away, kind: attested}]\n"
    for section in ("", "  speculation: {mode: off}\n"):
        policy = load_policy(f"{POLICY}routing:\n{tiers}{section}")
        assembling.router_for(policy, none)
    assembling.router_for(drafting(packed(THRESHOLDS)), none)
    assert read == []
    router = assembling.router_for(load_profile("default"), none)
    assert read == ["read"]
    # Of a model that has none nothing is missing.
    assert assembling.undrafted(router) is None


def test_a_file_that_certifies_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"routing\.speculation\.thresholds: "):
        assembling.router_for(drafting(b"{}"), UnavailableLocal("none"))


# The model of a rollout.


@pytest.fixture
def home(
    started: list[bool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> FollowedRollout:
    """A rollout that the policy ``rollout.yaml`` follows."""
    del started
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    home = FollowedRollout(tmp_path, data=tmp_path / "curtilage")
    Path("rollout.yaml").write_text(POLICY + home.policy_text(), "utf-8")
    return home


async def test_a_client_runs_the_model_of_its_rollout(home: FollowedRollout) -> None:
    pytest.importorskip("llama_cpp", reason="SKIPPED LOUDLY: the extra 'llm' is absent")
    path = make_byte_model(home.base / "byte.gguf")
    home.registry.add("byte", path, sha256_of(path))
    byte = ModelFiles(sha256=sha256_of(path), size_bytes=path.stat().st_size)
    manifest = replace(home.manifest(model=byte), not_after=2**40)
    home.rollout().take(*home.logged(manifest), now=datetime.now(UTC))
    notes: list[str] = []
    sizes: list[str] = []
    environ = {"CURTILAGE_SEQUENCES": "3"}
    config = read_config(Flags(policy="rollout.yaml"), environ)
    parts = await assembling.assemble(config, notify=notes.append, sized=sizes.append)
    try:
        assert parts.local.model_id == "byte"
        assert ["3 at a time" in line for line in sizes] == [True]
        assert parts.home_model() == model_tag(byte.sha256)
        assert notes == []
    finally:
        await parts.local.close()
        await parts.audit.close()


@pytest.mark.parametrize("flags", [Flags(policy="mine.yaml"), Flags(model="no.gguf")])
async def test_who_names_a_model_follows_no_rollout(
    home: FollowedRollout, monkeypatch: pytest.MonkeyPatch, flags: Flags
) -> None:
    del home
    none = UnavailableLocal("the model that was named")

    async def named(config: object, *_told: object) -> UnavailableLocal:
        del config
        return none

    monkeypatch.setattr(assembling, "local_model", named)
    flags = replace(flags, policy=flags.policy or "rollout.yaml")
    parts = await assembling.assemble(read_config(flags, {}))
    assert parts.local is none
    assert parts.home_model() == ""
    await parts.audit.close()


def models_file(path: Path, more: str = "") -> Path:
    file = path.with_name("models.toml")
    file.write_text(
        f"[models.small]\nmodel = '{path}'\nsha256 = '{sha256_of(path)}'\n{more}"
    )
    return file


@pytest.mark.parametrize("policy", ["rollout.yaml", "mine.yaml"])
async def test_a_model_of_the_file_may_be_the_usual_one(
    home: FollowedRollout, policy: str
) -> None:
    pytest.importorskip("llama_cpp", reason="SKIPPED LOUDLY: the extra 'llm' is absent")
    path = make_byte_model(home.base / "byte.gguf")
    flags = Flags(policy=policy, model="small", models=str(models_file(path)))
    sizes: list[str] = []
    parts = await assembling.assemble(read_config(flags, {}), sized=sizes.append)
    try:
        assert parts.named is not None
        assert parts.local is parts.named.get("small")
        await parts.named.start("small")
        assert parts.local.model_id == "byte"
        assert ["byte: context" in line for line in sizes] == [True]
        assert parts.home_model() == model_tag(sha256_of(path))
        assert assembling.unloaded_model(read_config(flags, {})).model_id == "byte"
    finally:
        assert parts.named is not None
        await parts.named.close()
        await parts.audit.close()


async def test_models_of_the_file_do_not_replace_the_usual_one(
    home: FollowedRollout,
) -> None:
    path = make_byte_model(home.base / "byte.gguf")
    flags = Flags(policy="mine.yaml", model="no", models=str(models_file(path)))
    with pytest.raises(ConfigError, match="no model is registered"):
        await assembling.assemble(read_config(flags, {}))


@pytest.mark.parametrize(
    "given",
    [{"model_sha256": "0a" * 32}, {"context_tokens": 512}, {"threads": 1}],
)
def test_a_model_of_the_file_has_its_settings_there(
    home: FollowedRollout, given: dict[str, Any]
) -> None:
    path = make_byte_model(home.base / "byte.gguf")
    flags = Flags(
        policy="mine.yaml", model="small", models=str(models_file(path)), **given
    )
    with pytest.raises(ConfigError, match="are those of its table"):
        assembling.named_models(read_config(flags, {}))


async def test_without_any_model_it_says_why(
    home: FollowedRollout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> Path:
        raise ModelFileError("the default model is not installed")

    monkeypatch.setattr("curtilage.client.local.model.find_default_model", absent)
    home.rollout()
    notes: list[str] = []
    config = read_config(Flags(policy="rollout.yaml"), {})
    parts = await assembling.assemble(config, notify=notes.append)
    assert isinstance(parts.local, UnavailableLocal)
    assert "not installed" in parts.local.reason
    assert notes == [NO_MANIFEST]
    await parts.audit.close()


def test_each_on_premises_server_has_a_key_of_its_own() -> None:
    """One key for all would let each of them open the others."""
    assert on_premises_keys(None, ["ward", "lab"]) == {}
    assert on_premises_keys("k", ["ward"]) == {"ward": Path("k")}
    assert on_premises_keys("ward=a,lab=b", ["ward", "lab"]) == {
        "ward": Path("a"),
        "lab": Path("b"),
    }


@pytest.mark.parametrize("said", ["k", "ward", "ward=", "other=k", "ward=a,k"])
def test_a_key_without_a_server_is_refused(said: str) -> None:
    with pytest.raises(ConfigError, match=r"^--on-premises-key-file: "):
        on_premises_keys(said, ["ward", "lab"])
