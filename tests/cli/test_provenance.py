"""The line that shows where an answer comes from."""

import re
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from curtilage.cli import ask
from curtilage.cli.provenance import (
    DEMONSTRATION,
    OFTEN_WRONG,
    answer_object,
    demonstration_words,
    provenance_line,
    warnings_of,
)
from curtilage.client.answering.answer_stream import AnswerStream
from curtilage.client.assemble import router_for
from curtilage.client.chat.answer import (
    Answer,
    Answerer,
    Delta,
    Finished,
    SessionEvent,
)
from curtilage.client.errors import FailureReason
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.inference.default_model import DEFAULT_SHA256
from curtilage.policy.document.load import load_profile
from curtilage.policy.explain.decision import NOT_IN_FORCE
from support.client_parts import LOCALLY, ScriptedLocal


def _line(route: Answerer, evidence: str | None, *, in_parallel: bool = False) -> str:
    return provenance_line(
        replace(LOCALLY, route=route, evidence=evidence, in_parallel=in_parallel)
    )


@pytest.mark.parametrize("evidence", ["sev-snp", "tdx", "nitro", "azure-snp"])
def test_hardware_is_called_attested(evidence: str) -> None:
    assert _line(Answerer.ENCLAVE, evidence) == (
        "[answered by the attested enclave; found: nothing; rule default: because]"
    )


@pytest.mark.parametrize("evidence", ["emulated-sev-snp", "emulated-tdx"])
def test_emulated_evidence_is_never_called_attested(evidence: str) -> None:
    line = _line(Answerer.ENCLAVE, evidence)
    assert "EMULATED" in line
    assert "attested" not in line


def test_the_local_model_has_no_evidence() -> None:
    line = _line(Answerer.LOCAL, None)
    assert line.startswith("[answered locally, ")
    assert "evidence" not in line


def test_a_second_tier_is_mentioned() -> None:
    alone, _, _ = _line(Answerer.LOCAL, None).partition(";")
    line = _line(Answerer.LOCAL, None, in_parallel=True)
    assert line.startswith(f"{alone}, and another tier ")


def _stayed(reason: str, *uncertain: str) -> str:
    return provenance_line(
        replace(LOCALLY, rule="any-uncertain", reason=reason, uncertain=uncertain)
    )


def test_a_policy_that_is_not_in_force_is_called_so() -> None:
    line = _stayed("", "uncertain.stale_policy")
    assert f"rule any-uncertain; {NOT_IN_FORCE}" in line
    assert "`curtilage policy verify`" in line
    assert "signature" not in _stayed("", "uncertain.timeout")


@pytest.mark.parametrize(
    ("fallback", "said"),
    [
        (
            EnclaveFailure.NO_ENCLAVE_NAMED,
            "another tier cannot answer; it might have been sent, but the policy ",
        ),
        (
            EnclaveFailure.RELAY_UNREACHABLE,
            "another tier cannot answer; it might have been sent, but the relay ",
        ),
        (None, "another cannot answer just now]"),
    ],
)
def test_a_permanent_failure_is_not_called_temporary(
    fallback: FailureReason | None, said: str
) -> None:
    line = provenance_line(
        replace(LOCALLY, tier="device", why="unavailable", fallback=fallback)
    )
    assert f"; device was chosen: {said}" in line


@pytest.mark.parametrize("reason", ["", " \n"])
def test_a_rule_without_a_reason_has_none(reason: str) -> None:
    assert _stayed(reason).endswith("; rule any-uncertain]")
    assert _stayed("Because.").endswith(" any-uncertain: Because]")


def test_the_effect_of_the_aim_on_the_embedded_model_is_shown() -> None:
    local = ScriptedLocal()
    local.digests = (DEFAULT_SHA256, None)
    policy = load_profile("default")
    who, aim = demonstration_words(policy, router_for(policy, local))
    assert who == DEMONSTRATION
    assert re.findall(r"\d+ of \d+", aim) == ["3 of 100", "4 of 100"]
    assert list(demonstration_words(policy, None)) == [DEMONSTRATION]


@pytest.mark.parametrize("demonstration", [False, True])
def test_an_answer_of_the_embedded_model_is_marked(*, demonstration: bool) -> None:
    provenance = replace(LOCALLY, demonstration=demonstration)
    assert ("DEMONSTRATION" in provenance_line(provenance)) is demonstration
    finished = Finished(finish_reason="stop", prompt_tokens=1, completion_tokens=1)
    answer = Answer(text="", provenance=provenance, finished=finished)
    assert answer_object(answer)["demonstration"] is demonstration


@pytest.mark.parametrize("doubtful", [False, True])
def test_an_answer_that_is_likely_wrong_is_marked(*, doubtful: bool) -> None:
    finished = Finished(
        finish_reason="stop", prompt_tokens=1, completion_tokens=1, doubtful=doubtful
    )
    answer = Answer(text="", provenance=LOCALLY, finished=finished)
    assert (OFTEN_WRONG in "".join(warnings_of(answer))) is doubtful
    assert answer_object(answer)["doubtful"] is doubtful


PLACED = replace(LOCALLY, route=Answerer.ENCLAVE, recorded=False, floor="internal")


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, ""), (1, "[1 placeholder is left"), (2, "[2 placeholders are left")],
)
async def test_ask_says_how_many_placeholders_are_left(
    capsys: pytest.CaptureFixture[str], count: int, said: str
) -> None:
    finished = Finished(
        finish_reason="stop", prompt_tokens=1, completion_tokens=1, unrestored=count
    )

    async def run(stream: AnswerStream) -> AsyncGenerator[SessionEvent]:
        stream.status.source = PLACED
        yield Delta(text="MY_PERSON_1")
        yield finished

    await ask.show(AnswerStream(run, answer_id="id"), 256)
    result = capsys.readouterr()
    assert result.out == "MY_PERSON_1\n"
    assert said in result.err
    assert ("placeholder" in result.err) is (count > 0)
    answer = Answer(text="", provenance=PLACED, finished=finished)
    assert answer_object(answer)["unrestored"] == count
    assert answer_object(answer)["floor"] == "internal"
