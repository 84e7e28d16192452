import json
from dataclasses import replace

import pytest

from curtilage.client.chat.answer import (
    Answer,
    Answerer,
    Called,
    Choice,
    Finished,
    Obstacle,
    Provenance,
)
from curtilage.client.chat.document import Document
from curtilage.client.chat.options import Mode, Require, RoutingOptions
from curtilage.client.chat.query import Message, Query, Settings, ToolCall
from curtilage.client.errors import FailureReason, UsageError
from curtilage.client.local.reasons import LocalFailure
from curtilage.client.queue.deferred import (
    TRANSIENT,
    Deferred,
    State,
    answer_of,
    goes_on,
    outcome_of,
    query_of,
    refusal_of,
    refused_as,
    request_of,
    worth_waiting,
)
from curtilage.client.remote.reasons import EnclaveFailure, Unmet
from curtilage.policy.decision.tiers import RoutingClass

FULL = Query(
    messages=(
        Message(role="system", content="Be brief."),
        Message(role="user", content="Wie geht es dir, Zoë? \ud800", name="zoe"),
    ),
    settings=Settings(
        max_tokens=77,
        temperature=0.25,
        top_p=0.5,
        seed=7,
        stop=("END", "\n\n"),
        logprobs=True,
    ),
    stream=True,
    options=RoutingOptions(
        ttft_ms=500,
        total_ms=9000,
        slo_hard=True,
        max_cost_microusd=3,
        floor=RoutingClass.INTERNAL,
        mode=Mode.ENCLAVE_IF_ALLOWED,
        require=Require.ENCLAVE,
    ),
)
ANSWER = Answer(
    text="Good, Zoë.",
    provenance=Provenance(
        route=Answerer.LOCAL,
        model="small",
        classes=("financial.pan",),
        rule="money",
        reason="It stays.",
        policy_digest="sha256:00",
        uncertain=("uncertain.language",),
        verdict_id="v",
        evidence="sev-snp",
        fallback=EnclaveFailure.TIMEOUT,
        recorded=True,
        deidentified=(("identifier.direct.person", 2),),
        obstacle=Obstacle.NAME_LEFT,
        tier="device",
        why="easy",
    ),
    finished=Finished(
        finish_reason="stop", prompt_tokens=3, completion_tokens=2, receipted=True
    ),
    logprobs=(("Good", -0.5),),
    id="chatcmpl-1",
)
ITEM = Deferred(
    ticket="00" * 16,
    routing_class=RoutingClass.PUBLIC,
    policy="sha256:00",
    cause="busy",
    put_ms=1,
    until_ms=2,
)


def test_a_question_is_read_as_it_was_asked() -> None:
    assert query_of(request_of(FULL)) == FULL


CALL = ToolCall(number=1, name="find", arguments=Document.of({"who": "Zoë"}))


def test_a_question_with_tools_is_read_as_it_was_asked() -> None:
    tool = {"name": "find", "description": "Finds", "parameters": {"type": "object"}}
    schema: dict[str, object] = {"name": "x", "schema": {}}
    wanted = {"type": "json_schema", "json_schema": schema}
    asked = replace(
        FULL,
        messages=(
            *FULL.messages,
            Message(role="assistant", content="", calls=(CALL,)),
            Message(role="tool", content="nobody", result_of=1),
        ),
        settings=replace(
            FULL.settings,
            top_logprobs=2,
            n=3,
            presence_penalty=0.5,
            frequency_penalty=-1.25,
            deterministic=True,
        ),
        tools=(Document.of(tool, schema=True),),
        tool_choice="find",
        parallel_tool_calls=False,
        response_format=Document.of(wanted, schema=True),
    )
    assert query_of(request_of(asked)) == asked
    required = replace(asked, tool_choice="required")
    assert query_of(request_of(required)) == required


def test_a_plain_question_is_read_as_it_was_asked() -> None:
    plain = Query(messages=(Message(role="user", content="What is HIV?"),))
    assert query_of(request_of(plain)) == plain


def test_no_consent_is_kept() -> None:
    agreed = replace(FULL, options=replace(FULL.options, consent="abc"))
    assert b"abc" not in request_of(agreed)
    assert query_of(request_of(agreed)).options.consent is None


def test_an_answer_is_read_as_it_was_given() -> None:
    assert answer_of(outcome_of(ANSWER)) == ANSWER


def test_several_answers_with_calls_are_read_as_they_were_given() -> None:
    call = Called(index=0, name="find", arguments='{"who": "Zoë"}')
    other = Choice(
        text="x",
        finish_reason="length",
        logprobs=(("x", -1.0),),
        tops=((("x", -1.0), ("y", -2.0)),),
    )
    answer = replace(
        ANSWER,
        finished=replace(ANSWER.finished, others=("length",)),
        tops=((("Good", -0.5),),),
        calls=(call,),
        others=(other,),
    )
    assert answer_of(outcome_of(answer)) == answer


def test_an_answer_of_the_version_before_is_read() -> None:
    value = json.loads(outcome_of(ANSWER))
    for name in ("tops", "calls", "others"):
        del value[name]
    del value["finished"]["others"]
    assert answer_of(json.dumps(value).encode()) == ANSWER


@pytest.mark.parametrize("change", [{"text": 1, "provenance": {}}, {"finished": None}])
def test_an_answer_of_another_version_is_none(change: dict[str, object]) -> None:
    outcome = json.dumps(json.loads(outcome_of(ANSWER)) | change).encode()
    with pytest.raises(ValueError, match="not an answer"):
        answer_of(outcome)


def test_a_request_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError):
        query_of(b"{}")


def test_a_refusal_is_read_as_it_was_written() -> None:
    assert refused_as(refusal_of("code", "why")) == ("code", "why")


def test_an_outage_is_worth_waiting_for() -> None:
    reasons = (LocalFailure.UNAVAILABLE, EnclaveFailure.RELAY_UNREACHABLE)
    found = worth_waiting(reasons, RoutingClass.PUBLIC)
    assert found is EnclaveFailure.RELAY_UNREACHABLE


@pytest.mark.parametrize(
    "reason",
    [
        EnclaveFailure.EVIDENCE_REFUSED,
        EnclaveFailure.CLOCK_SUSPECTED,
        LocalFailure.UNAVAILABLE,
        EnclaveFailure.NOT_CONFIGURED,
        EnclaveFailure.RELAY_DENIED,
        EnclaveFailure.TOO_LARGE,
        Unmet.CONSENT,
    ],
)
def test_what_does_not_end_by_itself_is_not(reason: FailureReason) -> None:
    assert worth_waiting((reason,), RoutingClass.PUBLIC) is None


def test_a_restricted_query_waits_for_no_outside_tier() -> None:
    for reason in TRANSIENT:
        found = worth_waiting((reason,), RoutingClass.RESTRICTED)
        at_home = reason.value.startswith(("local_", "on_premises_"))
        assert found is (reason if at_home else None)


@pytest.mark.parametrize("is_now", RoutingClass)
@pytest.mark.parametrize("put_as", RoutingClass)
def test_what_had_to_stay_or_is_of_another_class_now_goes_on_at_home(
    put_as: RoutingClass, is_now: RoutingClass
) -> None:
    again = goes_on(FULL, put_as=put_as, is_now=is_now).options
    stays = put_as is not is_now or put_as is RoutingClass.RESTRICTED
    assert (again.mode is Mode.HOME) is stays
    # What leaves is held to the class that it was put by under.
    assert stays or again.floor.privacy >= put_as.privacy


def test_what_goes_on_keeps_the_care_that_was_asked_for() -> None:
    asked = replace(
        FULL, options=replace(FULL.options, floor=RoutingClass.CONFIDENTIAL)
    )
    public = RoutingClass.PUBLIC
    again = goes_on(asked, put_as=public, is_now=public)
    assert again.options.floor is RoutingClass.CONFIDENTIAL


@pytest.mark.parametrize(
    "change",
    [
        {"ticket": "11" * 16},
        {"routing_class": RoutingClass.RESTRICTED},
        {"policy": "sha256:11"},
        {"cause": "timeout"},
        {"put_ms": 0},
        {"until_ms": 3},
        {"state": State.ANSWERED},
    ],
)
def test_content_is_bound_to_all_that_is_said_of_it(
    change: dict[str, object],
) -> None:
    assert replace(ITEM, **change).bound() != ITEM.bound()  # type: ignore[arg-type]
