"""A session with local models by name: what a name decides, and what it cannot."""

import hashlib
from dataclasses import replace

import pytest

from curtilage.client.audit.record import Outcome
from curtilage.client.chat.answer import Answerer, TokenSignal
from curtilage.client.chat.openai_chat import query_from
from curtilage.client.chat.openai_fields import MODEL_ID
from curtilage.client.chat.options import Require, RoutingOptions
from curtilage.client.errors import (
    BlockedError,
    LocalUnavailableError,
    NotRoutedError,
)
from curtilage.client.health import Part
from curtilage.client.local.model import LocalModelFailedError
from curtilage.client.local.named import NamedModels
from curtilage.client.local.reasons import LocalModelError
from curtilage.client.parts import NO_NAMED, ClientParts
from curtilage.client.routing.estimate import RulesEstimator
from curtilage.client.routing.router import Router
from curtilage.client.routing.thresholds import packed
from curtilage.client.session import Session
from curtilage.inference.errors import EngineFailedError
from curtilage.policy.document.load import load_policy
from support.client_parts import (
    HARD,
    PLAIN,
    MemoryTrail,
    ScriptedInspector,
    ScriptedLocal,
    query,
)
from support.drafts import THRESHOLDS
from support.fakes import returns
from support.memory_enclave import Clock, MemoryEnclave, key_store
from support.named_models import named_models

ROUTING = """
routing:
  tiers:
  - {id: device, kind: in_process}
  - {id: enclave, kind: attested}
"""
THRESHOLDS_FILE = packed(THRESHOLDS)
SPECULATION = f"""
  speculation:
    mode: verify
    thresholds: t.json
    sha256: {hashlib.sha256(THRESHOLDS_FILE).hexdigest()}
"""
ENCLAVE_ONLY = """
routing:
  tiers:
  - {id: enclave, kind: attested}
"""
ALIASES = {"gpt-4o": MODEL_ID, "gpt-4o-mini": "small", "o3": "enclave", "me": "local"}


class Bench:
    """A session of in-memory parts."""

    def __init__(
        self,
        *found: str,
        section: str = "",
        named: NamedModels | None = None,
        policy: str = PLAIN,
    ) -> None:
        loaded = load_policy(f"{policy}\n{section}", files=returns(THRESHOLDS_FILE))
        self.local, self.enclave, self.trail = (
            ScriptedLocal(),
            MemoryEnclave(),
            MemoryTrail(),
        )
        router = None
        if loaded.routing is not None:
            router = Router(
                loaded.routing,
                RulesEstimator(),
                clock=lambda: 0.0,
                thresholds=THRESHOLDS,
                running=lambda: self.local.digests,
            )
        self.session = Session(
            ClientParts(
                policy=loaded,
                inspector=ScriptedInspector(*found),
                local=self.local,
                transport=self.enclave,
                keys=key_store(policy=loaded),
                audit=self.trail,
                clock=Clock(),
                router=router,
                named=named or named_models("small", "code", aliases=ALIASES),
            )
        )

    def asks(self, model: str | None, **options: object) -> RoutingOptions:
        """Return the options of a question to a model."""
        given = options if model is None else {"model": model, **options}
        asked = query_from(HARD, given, stream=False, names=self.session.names)
        return asked.options

    async def text(self, model: str | None, **options: object) -> str:
        asked = replace(query(HARD), options=self.asks(model, **options))
        return (await self.session.ask(asked)).text


@pytest.mark.parametrize("section", ["", ROUTING])
@pytest.mark.parametrize("name", ["small", "gpt-4o-mini"])
@pytest.mark.parametrize("found", [(), ("financial.pan",)])
async def test_the_name_of_a_local_model_pins_the_answer_to_it(
    found: tuple[str, ...], name: str, section: str
) -> None:
    bench = Bench(*found, section=section)
    answer = await bench.session.ask(replace(query(HARD), options=bench.asks(name)))
    assert (answer.text, answer.route) == ("By small", Answerer.LOCAL)
    assert answer.provenance.model == "small-file"
    assert not answer.provenance.home_model
    assert [entry.outcome for entry in bench.trail.entries] == [Outcome.LOCAL]
    assert bench.enclave.sealed == []
    assert bench.local.asked == []


async def test_a_name_that_fails_is_answered_by_no_other_model_or_tier() -> None:
    named = named_models("small", fault=EngineFailedError("no AVX2"))
    bench = Bench(section=ROUTING, named=named)
    with pytest.raises(LocalModelFailedError):
        await bench.text("small")
    assert bench.enclave.sealed == []
    assert bench.local.asked == []
    # It says nothing about the usual model.
    (model,) = (
        each for each in bench.session.health().conditions if each.part is Part.MODEL
    )
    assert model.reason is None
    assert await bench.text(None, require="local") == "At home."


async def test_an_answer_by_name_says_nothing_about_the_usual_model() -> None:
    bench = Bench()
    bench.local.broken = True
    with pytest.raises(LocalUnavailableError):
        await bench.text("me")
    await bench.text("small")
    (model,) = (
        each for each in bench.session.health().conditions if each.part is Part.MODEL
    )
    assert model.reason is not None


async def test_other_names_are_answered_as_policy_and_router_decide() -> None:
    bench = Bench()
    for name in (None, MODEL_ID, "gpt-4o", "o3"):
        assert await bench.text(name) == "From afar."
    assert await bench.text("me") == "At home."
    regulated = Bench("financial.pan")
    for name in (None, "gpt-4o", "me"):
        assert await regulated.text(name) == "At home."
    assert regulated.enclave.sealed == []


@pytest.mark.parametrize("section", ["", ROUTING])
async def test_an_alias_permits_nothing_that_the_policy_does_not(section: str) -> None:
    bench = Bench("financial.pan", section=section)
    with pytest.raises(NotRoutedError):
        await bench.text("o3")
    assert bench.enclave.sealed == []
    blocking = PLAIN.replace(
        "rules:\n",
        'rules:\n- {id: no, when: "financial.*", then: block, reason: n}\n',
        1,
    )
    blocked = Bench("financial.pan", section=section, policy=blocking)
    with pytest.raises(BlockedError):
        await blocked.text("small")


async def test_a_local_model_needs_a_tier_that_the_policy_permits() -> None:
    bench = Bench(section=ENCLAVE_ONLY)
    with pytest.raises(NotRoutedError):
        await bench.text("small")
    assert bench.enclave.sealed == []


async def test_no_model_is_judged_by_the_thresholds_of_another() -> None:
    bench = Bench("financial.pan", section=ROUTING + SPECULATION)
    assert bench.session.router is not None
    assert bench.session.router.judges
    # Its tokens are as unsure as those of a bad draft of the usual model.
    answer = await bench.session.ask(replace(query(HARD), options=bench.asks("small")))
    assert answer.text == "By small"
    assert not answer.finished.doubtful
    bench.local.sure = TokenSignal(logprob=-4.6, margin=0.0)
    assert (await bench.session.ask(query(HARD))).finished.doubtful


async def test_without_models_by_name_the_usual_one_does_not_answer_for_them() -> None:
    bench = Bench()
    parts = replace(
        bench.session._parts,  # pyright: ignore[reportPrivateUsage]
        named=None,
    )
    options = RoutingOptions(require=Require.LOCAL, local_model="small")
    with pytest.raises(LocalModelError, match=NO_NAMED):
        await Session(parts).ask(replace(query(HARD), options=options))
    assert bench.local.asked == []
