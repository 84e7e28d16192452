"""Output of ``ask``: the answer, and progress before it."""

import math

import pytest

from curtilage.cli import ask
from curtilage.cli.ask import WAITING
from curtilage.cli.provenance import OFTEN_WRONG
from curtilage.client.chat.answer import Phase, TokenSignal, doubt_note
from curtilage.client.parts import ClientParts
from curtilage.client.routing.estimate import RulesEstimator
from curtilage.client.routing.router import Router
from curtilage.client.session import Session
from curtilage.inference.default_model import DEFAULT_SHA256
from curtilage.policy.document.load import load_profile
from support.client_parts import (
    MemoryTrail,
    ScriptedInspector,
    ScriptedLocal,
    SmallLocal,
    query,
)
from support.drafts import THRESHOLDS
from support.memory_enclave import key_store

DEMONSTRATION = "answered locally, by the embedded DEMONSTRATION model"


@pytest.mark.parametrize("phase", Phase)
def test_whatever_is_waited_for_has_words(phase: Phase) -> None:
    """Otherwise an answer that is only late would end the program."""
    assert WAITING[phase]


async def shown(
    local: ScriptedLocal,
    text: str,
    capsys: pytest.CaptureFixture[str],
    *,
    max_tokens: int = 512,
    router: Router | None = None,
) -> tuple[str, str]:
    parts = ClientParts(
        policy=load_profile("default"),
        inspector=ScriptedInspector("financial.pan"),
        local=local,
        transport=None,
        keys=key_store(),
        audit=MemoryTrail(),
        router=router,
    )
    async with Session(parts) as session:
        await ask.show(session.stream(query(text)), max_tokens)
    said = capsys.readouterr()
    return said.out, said.err


async def test_a_cut_answer_is_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cut = ScriptedLocal(("So ", "much"), finish_reason="length")
    text, said = await shown(cut, "Why?", capsys)
    assert text == "So much\n"
    assert "CUT" in said
    assert "--max-tokens" in said
    _, said = await shown(ScriptedLocal(), "Why?", capsys)
    assert "CUT" not in said


@pytest.mark.parametrize("max_tokens", [2, 512])
async def test_an_answer_to_a_truncated_text_is_cut_only_at_its_limit(
    max_tokens: int, capsys: pytest.CaptureFixture[str]
) -> None:
    local = SmallLocal(("At ", "home."))
    text, said = await shown(
        local, "Nothing happened. " * 300, capsys, max_tokens=max_tokens
    )
    assert text.startswith("[read ")
    assert "were NOT read" in said
    assert ("CUT" in said) is (max_tokens == 2)


@pytest.mark.parametrize("probability", [0.99, 0.01])
async def test_an_answer_that_is_likely_wrong_is_followed_by_a_warning(
    probability: float, capsys: pytest.CaptureFixture[str]
) -> None:
    local = ScriptedLocal()
    local.sure = TokenSignal(logprob=math.log(probability), margin=1.0)
    policy = load_profile("default")
    assert policy.routing is not None
    router = Router(
        policy.routing,
        RulesEstimator(),
        clock=lambda: 0.0,
        thresholds=THRESHOLDS,
        running=lambda: local.digests,
    )
    text, said = await shown(local, "Why?", capsys, router=router)
    doubtful = probability < 0.5
    assert (doubt_note().text in text) is doubtful
    assert (OFTEN_WRONG in said) is doubtful


async def test_the_embedded_model_is_called_a_demonstration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    local = ScriptedLocal()
    _, said = await shown(local, "Why?", capsys)
    assert DEMONSTRATION not in said
    local.digests = (DEFAULT_SHA256, None)
    _, said = await shown(local, "Why?", capsys)
    assert DEMONSTRATION in said
