"""What an OpenAI-compatible server says, as vLLM, Ollama and llama.cpp say it."""

import json
import re
from collections.abc import Iterable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.chat.answer import (
    AnswerEvent,
    Called,
    Delta,
    Finished,
    bytes_of,
)
from curtilage.client.errors import FailureReason, OnPremisesUnavailableError
from curtilage.client.on_premises import answer_events
from curtilage.client.on_premises.answer_events import (
    MAX_ANSWER_BYTES,
    MAX_EVENT_BYTES,
    ChatReader,
    refusal_of,
)
from curtilage.client.on_premises.reasons import OnPremisesFailure
from support.cuts import PLACES, cut
from support.on_premises import CANARY, LLAMA, OLLAMA, VLLM, chunk, data
from support.too_long import TOO_LONG, TooLongSaid

DONE = b"data: [DONE]\n\n"
SAID = chunk({"content": "yes"})
STOP = chunk({}, finish="stop")


def read(
    pieces: Iterable[bytes],
    *,
    logprobs: bool = False,
    tops: int = 0,
    must_call: bool = False,
    to_the_end: bool = True,
) -> list[AnswerEvent]:
    chat = ChatReader(logprobs=logprobs, tops=tops, must_call=must_call)
    found = [each for piece in pieces for said in chat.push(piece) for each in said]
    assert not to_the_end or isinstance(found[-1], Finished)
    return found


def refused(
    *pieces: bytes, logprobs: bool = False, tops: int = 0, must_call: bool = False
) -> FailureReason:
    with pytest.raises(OnPremisesUnavailableError) as error:
        read(
            pieces,
            logprobs=logprobs,
            tops=tops,
            must_call=must_call,
            to_the_end=False,
        )
    assert CANARY not in repr(error.value) + str(error.value)
    assert error.value.__suppress_context__ or error.value.__context__ is None
    return error.value.reason


@pytest.mark.parametrize(
    "server", [VLLM, OLLAMA, LLAMA], ids=["vllm", "ollama", "llama"]
)
def test_each_server_is_understood(server: tuple[bytes, ...]) -> None:
    *deltas, finished = read(server)
    assert "".join(each.text for each in deltas if isinstance(each, Delta)) == "Hi Ü."
    assert finished == Finished(
        finish_reason="length", prompt_tokens=11, completion_tokens=3
    )


@given(PLACES)
def test_the_body_may_be_cut_anywhere(places: list[int]) -> None:
    assert read(cut(b"".join(VLLM), places)) == read(VLLM)


def test_log_probabilities_are_those_of_the_text() -> None:
    listed = [
        {"token": "y", "logprob": -0.5, "bytes": [121]},
        {"token": "es", "logprob": -9999},
    ]
    body = chunk({"content": "yes"}, logprobs={"content": listed})
    found = read([body, STOP, DONE], logprobs=True)
    assert found[0] == Delta(text="yes", logprobs=(("y", -0.5), ("es", -9999.0)))
    assert read([body, STOP, DONE])[0] == Delta(text="yes")


def test_a_token_is_its_bytes() -> None:
    half = {"token": "\ufffd", "logprob": -0.5, "bytes": [0xE2]}
    body = chunk({"content": "\u20ac"}, logprobs={"content": [half]})
    delta = read([body, STOP, DONE], logprobs=True)[0]
    assert isinstance(delta, Delta)
    ((token, _),) = delta.logprobs
    assert bytes_of(token) == b"\xe2"


@pytest.mark.parametrize("given", [None, {}, {"content": None}, {"content": []}])
def test_an_answer_without_requested_log_probabilities_is_refused(
    given: object,
) -> None:
    said = chunk({"content": "yes"}, logprobs=given)
    assert refused(said, logprobs=True) is OnPremisesFailure.NO_LOGPROBS


@pytest.mark.parametrize(
    "listed",
    [
        ["y"],
        [{"logprob": -1}],
        [{"token": "y"}],
        [{"token": "y", "logprob": True}],
        [{"token": "y", "logprob": 2}],
        [{"token": "y", "logprob": -(10**4000)}],
        [{"token": 1, "logprob": -1}],
    ],
)
def test_log_probabilities_that_are_none_break_the_answer(listed: object) -> None:
    said = chunk({"content": "y"}, logprobs={"content": listed})
    assert refused(said, logprobs=True) is OnPremisesFailure.ANSWER_BROKEN


def test_no_counts_are_no_lie() -> None:
    assert read([SAID, STOP, DONE])[-1] == Finished(
        finish_reason="stop", prompt_tokens=0, completion_tokens=0
    )


def test_reasoning_is_not_shown() -> None:
    thought = [chunk({"reasoning_content": CANARY}), chunk({"reasoning": CANARY})]
    assert read([*thought, SAID, STOP, DONE])[0] == Delta(text="yes")


@pytest.mark.parametrize("reason", ["abort", "content_filter", "tool_calls", "", 1, []])
def test_another_end_than_of_a_whole_answer_is_incomplete(reason: object) -> None:
    ended = chunk({}, finish=reason)
    assert refused(SAID, ended, DONE) is OnPremisesFailure.ANSWER_INCOMPLETE


def test_an_end_without_a_reason_is_incomplete() -> None:
    assert refused(SAID, DONE) is OnPremisesFailure.ANSWER_INCOMPLETE


@pytest.mark.parametrize(
    "failure",
    [
        data({"error": {"message": CANARY, "code": 500}}),
        data({"object": "error", "message": CANARY}),
    ],
    ids=["vllm", "older vllm"],
)
def test_an_error_reported_by_the_server_is_a_failure(failure: bytes) -> None:
    assert refused(SAID, failure) is OnPremisesFailure.FAILED


@pytest.mark.parametrize(
    "broken",
    [
        b"data: \n\n",
        b"data: {\n\n",
        b"data: [1]\n\n",
        b"data: 7\n\n",
        b"data: " + b"[" * 5000 + b"\n\n",
        b"data: " + b"9" * 5000 + b"\n\n",
        b"data: \xff\n\n",
        b'data: {"usage": {"prompt_tokens": 1, "completion_tokens": NaN}}\n\n',
        f"data: {CANARY}\n\n".encode(),
        data({"choices": {}}),
        data({"choices": [1]}),
        data({"choices": [{"delta": CANARY}]}),
        data({"choices": [{"delta": {"content": 1}}]}),
        b'data: {"choices": [{"delta": {"content": []}}]}\n\n',
        data({"choices": [{"delta": {"content": [CANARY]}}]}),
        data({"choices": [{"delta": {"content": CANARY}, "index": 1}]}),
        b'data: {"choices": [{"delta": {}}, {"delta": {}}]}\n\n',
        json.dumps({"choices": [{"delta": {"content": "\ud83d"}}]})
        .join(("data: ", "\n\n"))
        .encode(),
        data({"usage": 3}),
        data({"usage": {"prompt_tokens": 1}}),
        data({"usage": {"prompt_tokens": True, "completion_tokens": 1}}),
        data({"usage": {"prompt_tokens": -1, "completion_tokens": 1}}),
        data({"usage": {"prompt_tokens": 1, "completion_tokens": 2**40}}),
    ],
)
def test_another_format_is_broken(broken: bytes) -> None:
    assert refused(broken) is OnPremisesFailure.ANSWER_BROKEN


def test_text_behind_the_end_is_broken() -> None:
    assert refused(SAID, STOP, SAID) is OnPremisesFailure.ANSWER_BROKEN


@pytest.mark.parametrize(
    "pieces",
    [
        [b"data: " + b"x" * MAX_EVENT_BYTES],
        [b"data: "] + [b"x" * 1024] * (MAX_EVENT_BYTES // 1024 + 1),
        [b"data: xxxx\n"] * (MAX_EVENT_BYTES // 4 + 1),
        [b": " + b"x" * MAX_EVENT_BYTES],
    ],
    ids=["at once", "in pieces", "many lines", "comment"],
)
def test_an_event_that_is_too_large_is_broken(pieces: list[bytes]) -> None:
    assert refused(*pieces) is OnPremisesFailure.ANSWER_BROKEN


def test_an_answer_that_is_too_large_is_broken() -> None:
    alive = b":" + b"x" * 65_534 + b"\n"
    chat = ChatReader(logprobs=False)
    for _ in range(MAX_ANSWER_BYTES // len(alive)):
        assert list(chat.push(alive)) == []
    with pytest.raises(OnPremisesUnavailableError) as error:
        list(chat.push(alive))
    assert error.value.reason is OnPremisesFailure.ANSWER_BROKEN


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_else(body: bytes) -> None:
    with suppress(OnPremisesUnavailableError):
        read([b"data: " + body + b"\n\n", body], to_the_end=False)


# Calls of tools, and several answers.


def call(
    arguments: str | None = None, name: str | None = None, index: int = 0
) -> dict[str, object]:
    return {"index": index, "function": {"name": name, "arguments": arguments}}


def piece(
    *calls: dict[str, object],
    choice: int = 0,
    finish: str | None = None,
    **delta: object,
) -> bytes:
    said = {**delta, **({"tool_calls": list(calls)} if calls else {})}
    return data(
        {"choices": [{"index": choice, "delta": said, "finish_reason": finish}]}
    )


def several(*pieces: bytes, n: int) -> list[AnswerEvent]:
    chat = ChatReader(logprobs=False, n=n)
    return [each for one in pieces for said in chat.push(one) for each in said]


def test_pieces_of_calls_become_whole_calls() -> None:
    # As vLLM sends them; Ollama sends a call at once.
    events = read(
        [
            piece(content="So "),
            piece(call("", "find")),
            piece(call('{"who":')),
            piece(call("{}", "lose", index=1)),
            piece(call(' "Ann"}')),
            piece(finish="tool_calls"),
            DONE,
        ]
    )
    assert events == [
        Delta(text="So "),
        Delta(
            text="",
            calls=(
                Called(index=0, name="find", arguments='{"who": "Ann"}'),
                Called(index=1, name="lose", arguments="{}"),
            ),
        ),
        Finished(finish_reason="tool_calls", prompt_tokens=0, completion_tokens=0),
    ]


def test_calls_are_counted_from_zero() -> None:
    *_, called, _ = read([piece(call("{}", "find", index=3)), STOP, DONE])
    assert isinstance(called, Delta)
    assert [each.index for each in called.calls] == [0]


def test_a_call_that_was_demanded_ends_with_stop() -> None:
    *_, called, end = read([piece(call("{}", "find")), STOP, DONE])
    assert isinstance(called, Delta)
    assert len(called.calls) == 1
    assert isinstance(end, Finished)
    assert end.finish_reason == "stop"


@pytest.mark.parametrize(
    "pieces",
    [
        (piece(call("{}")), STOP),
        (piece(call("{}", "find", index=128)),),
        (piece(call("{}", "find", index=-1)),),
        (piece(tool_calls=CANARY),),
        (piece(tool_calls=[CANARY]),),
        (piece(tool_calls=[{"index": 0}]),),
        (piece(tool_calls=[{"index": 0, "function": {"name": 5}}]),),
        (STOP, piece(call("{}", "find"))),
        (piece(call('{"who": ', "find")), STOP),
        (piece(call('{"who": ', "find")), piece(finish="tool_calls")),
        (
            piece(call('{"who": ', "find"), call("{}", "find", index=1)),
            piece(finish="length"),
        ),
        (piece(call("[]", "find")), STOP),
        (piece(call('{"who": NaN}', "find")), STOP),
        (piece(call('{"who":' * 10_000, "find")), STOP),
    ],
)
def test_other_calls_are_broken(pieces: tuple[bytes, ...]) -> None:
    assert refused(*pieces) is OnPremisesFailure.ANSWER_BROKEN


def test_calls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_events, "MAX_CALL_BYTES", 10)
    assert len(read([piece(call('{"who": 1}', "find")), STOP, DONE])) == 2
    longer = piece(call('{"who": 12}', "find"))
    assert refused(longer) is OnPremisesFailure.ANSWER_BROKEN


LENGTH = piece(finish="length")


@pytest.mark.parametrize("part", ["", '{"who": "A'])
def test_a_call_that_the_token_limit_cut_is_omitted(part: str) -> None:
    whole = piece(call('{"a": 1}', "find"))
    *called, _ = read([whole, piece(call(part, "find", index=1)), LENGTH, DONE])
    calls = (Called(index=0, name="find", arguments='{"a": 1}'),)
    assert called == [Delta(text="", calls=calls)]
    (end,) = read([piece(call(part, "find")), LENGTH, DONE], must_call=True)
    assert isinstance(end, Finished)
    assert end.finish_reason == "length"


def test_an_answer_without_the_call_that_it_must_make_is_incomplete() -> None:
    assert refused(SAID, STOP, must_call=True) is OnPremisesFailure.ANSWER_INCOMPLETE
    called = [piece(call("{}", "find")), STOP, DONE]
    assert read(called, must_call=True) == read(called)


def test_an_end_that_is_repeated_repeats_no_call() -> None:
    called = piece(call("{}", "find"))
    once = read([called, STOP, DONE])
    assert read([called, STOP, STOP, DONE]) == once
    assert read([called, STOP, LENGTH, DONE]) == once


def counted(completion: int) -> bytes:
    counts = {"prompt_tokens": 5, "completion_tokens": completion}
    return data({"choices": [], "usage": counts})


def test_answers_that_are_counted_one_by_one_are_added_up() -> None:
    ends = [piece(finish="stop"), piece(choice=1, finish="stop")]
    *_, one_by_one = several(ends[0], counted(2), ends[1], counted(3), DONE, n=2)
    *_, together = several(*ends, counted(5), DONE, n=2)
    assert one_by_one == together
    assert isinstance(together, Finished)
    assert (together.prompt_tokens, together.completion_tokens) == (5, 5)
    with pytest.raises(OnPremisesUnavailableError):
        several(counted(2**30), counted(2**30), n=2)


def test_a_single_answer_is_counted_once() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    *_, end = read([SAID, chunk({}, finish="stop", usage=usage), counted(2), DONE])
    assert isinstance(end, Finished)
    assert (end.prompt_tokens, end.completion_tokens) == (5, 2)


def test_several_answers_are_read() -> None:
    events = several(
        piece(content="a"),
        piece(choice=1, content="b"),
        piece(finish="stop"),
        piece(choice=1, content="c", finish="length"),
        DONE,
        n=2,
    )
    assert events == [
        Delta(text="a"),
        Delta(text="b", choice=1),
        Delta(text="c", choice=1),
        Finished(
            finish_reason="stop",
            prompt_tokens=0,
            completion_tokens=0,
            others=("length",),
        ),
    ]


def test_without_the_end_of_one_the_answers_are_incomplete() -> None:
    with pytest.raises(OnPremisesUnavailableError) as error:
        several(
            piece(content="a", finish="stop"), piece(choice=1, content="b"), DONE, n=2
        )
    assert error.value.reason is OnPremisesFailure.ANSWER_INCOMPLETE


TOKEN: dict[str, object] = {"token": "a", "logprob": -0.5}


def with_tops(listed: object) -> bytes:
    content = [{**TOKEN, "top_logprobs": listed}]
    return chunk({"content": "a"}, logprobs={"content": content})


@pytest.mark.parametrize(("asked", "given"), [(2, 2), (1, 1), (0, 0), (5, 3)])
def test_the_likeliest_tokens_are_as_many_as_were_requested(
    asked: int, given: int
) -> None:
    events = [with_tops([TOKEN] * 3), STOP, DONE]
    delta, _ = read(events, logprobs=True, tops=asked)
    assert isinstance(delta, Delta)
    assert delta.tops == (((("a", -0.5),) * given,) if given else ())


@pytest.mark.parametrize("listed", [None, [], {}])
def test_an_answer_without_requested_alternatives_is_refused(listed: object) -> None:
    reason = refused(with_tops(listed), logprobs=True, tops=1)
    assert reason is OnPremisesFailure.NO_LOGPROBS


@pytest.mark.parametrize("case", TOO_LONG, ids=lambda each: each.id)
def test_a_text_that_is_too_long_for_the_server_is_known_with_its_numbers(
    case: TooLongSaid,
) -> None:
    error = refusal_of(json.dumps(case.body).encode())
    assert error.reason is OnPremisesFailure.TOO_LONG
    assert error.limit_tokens == case.context
    shown = [int(each) for each in re.findall("[0-9]+", str(error))]
    assert shown == [each for each in (case.prompt, case.context) if each]
    assert error.code is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[" * 100_000,
        b"[]",
        b'{"error": "This model"}',
        # The query, quoted, does not decide.
        b'{"message": "bad: This model\'s maximum context length is 5 tokens"}',
    ],
)
def test_another_refusal_has_no_other_reason(body: bytes) -> None:
    error = refusal_of(body)
    assert (error.reason, error.code) == (OnPremisesFailure.REFUSED, "400")
    assert error.limit_tokens is None
