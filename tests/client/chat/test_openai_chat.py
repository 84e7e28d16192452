import json
from dataclasses import replace
from typing import Any, cast

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsBase,
    CompletionCreateParamsNonStreaming,
)

from curtilage.client.chat.answer import (
    Answer,
    Answerer,
    Called,
    Choice,
    Delta,
    Finished,
    Provenance,
)
from curtilage.client.chat.openai_chat import (
    MAX_MESSAGES,
    MAX_NAME_CHARS,
    MAX_REQUEST_BYTES,
    MAX_STOP_CHARS,
    parse_completion_request,
    query_from,
)
from curtilage.client.chat.openai_fields import DROPPED, NEUTRAL, USED
from curtilage.client.endpoint.openai_answers import (
    ChunkBuilder,
    completion_object,
    error_object,
    provenance_headers,
)
from curtilage.client.errors import (
    BlockedError,
    BusyError,
    ClientError,
    ConfigError,
    EnclaveError,
    IncompleteAnswerError,
    UnknownFieldError,
    UnsupportedContentError,
    UnsupportedFieldError,
    UsageError,
)
from curtilage.client.local.model import LocalContextTooLongError, LocalModelBusyError
from curtilage.client.local.reasons import LocalModelError
from curtilage.client.on_premises.reasons import TooLongForServerError
from curtilage.client.remote.reasons import EnclaveFailure, TooLongForEnclaveError

CANARY = "canary-5f1c"
TURN = {"role": "user", "content": "hello"}
PROVENANCE = Provenance(
    route=Answerer.ENCLAVE,
    model="release/1",
    classes=("identifier.quasi.url", "topic.finance"),
    rule="default",
    reason="because",
    policy_digest="sha256:00",
    verdict_id="abcd",
    evidence="sev-snp",
)
FINISHED = Finished(finish_reason="stop", prompt_tokens=2, completion_tokens=3)


def body(**fields: object) -> bytes:
    return json.dumps({"messages": [TURN], **fields}).encode()


HARMLESS: dict[str, object] = {
    "cache_control": {"type": CANARY},
    "chat_id": CANARY,
    "metadata": {"ward": CANARY},
    "prompt_cache_key": CANARY,
    "prompt_cache_retention": CANARY,
    "reasoning_effort": CANARY,
    "safety_identifier": CANARY,
    "service_tier": CANARY,
    "session_id": CANARY,
    "store": True,
    "user": CANARY,
    "verbosity": CANARY,
}


def test_what_changes_no_answer_is_dropped_and_listed() -> None:
    part = {"type": "text", "text": "hello", "cache_control": CANARY}
    turns: list[dict[str, object]] = [
        {"role": "user", "content": [part], "id": CANARY, "timestamp": 7},
        {"role": "assistant", "content": "x", "annotations": [CANARY]},
        {"role": "user", "content": "y"},
    ]
    chat = parse_completion_request(
        json.dumps({"messages": turns, **HARMLESS}).encode()
    )
    assert chat.dropped == tuple(sorted({*HARMLESS, "annotations", "id", "timestamp"}))
    assert [leaf.text for leaf in chat.query.leaves()] == ["hello", "x", "y"]
    assert CANARY not in f"{chat} {chat.query.payload()!r}"
    assert parse_completion_request(body()).dropped == ()


def test_every_field_of_openai_is_in_one_of_the_tables() -> None:
    """By the types of its own package, which the developers' tools install."""
    known = {
        *CompletionCreateParamsNonStreaming.__annotations__,
        *CompletionCreateParamsBase.__annotations__,
    }
    assert len(known) > 30
    tables = (USED, NEUTRAL, DROPPED)
    assert {name: sum(name in table for table in tables) for name in known} == (
        dict.fromkeys(known, 1)
    )


@pytest.mark.parametrize(
    ("names", "param", "shown"),
    [
        (["top_k"], "top_k", "top_k"),
        (["topK", "min_p"], "min_p", "min_p, topK"),
        ([CANARY], None, "one whose name is not an identifier"),
        (["a b", "x"], "x", "x"),
        (["x" * 65], None, "one whose name is not an identifier"),
        (["Ann\u00e9"], None, "one whose name is not an identifier"),
        ([f"a{n}" for n in range(9)], "a0", "a0, a1, a2, a3, a4 "),
    ],
)
def test_a_field_that_is_not_known_is_named(
    names: list[str], param: str | None, shown: str
) -> None:
    with pytest.raises(UnknownFieldError) as refused:
        parse_completion_request(body(**dict.fromkeys(names, CANARY)))
    status, value = error_object(refused.value)
    error = cast("dict[str, str]", value["error"])
    assert status == 400
    assert (error["code"], error["param"]) == ("unknown_parameter", param)
    assert shown in error["message"]
    assert "docs/openai-api.md" in error["message"]
    assert CANARY not in str(value)


def test_a_field_that_is_null_asks_for_nothing() -> None:
    unset = dict.fromkeys(["top_k", "tools", "n", "model", "max_completion_tokens"])
    chat = parse_completion_request(body(**unset, max_tokens=7))
    assert chat.query.settings.max_tokens == 7
    assert chat.dropped == ()


@pytest.mark.parametrize(
    "options",
    [
        None,
        {},
        {"include_usage": None, "other": None},
        {"include_usage": False, "include_obfuscation": False},
    ],
)
def test_stream_options_that_ask_for_nothing(options: object) -> None:
    assert not parse_completion_request(body(stream_options=options)).include_usage


def test_of_two_limits_the_newer_one_counts() -> None:
    for fields, tokens in (
        ({"max_completion_tokens": 5, "max_tokens": 7}, 5),
        ({"max_completion_tokens": None, "max_tokens": 7}, 7),
        ({"max_completion_tokens": 5}, 5),
    ):
        chat = parse_completion_request(body(**fields))
        assert chat.query.settings.max_tokens == tokens


def test_what_is_not_done_here_says_so() -> None:
    with pytest.raises(UnsupportedFieldError, match=r"docs/openai-api\.md") as refused:
        parse_completion_request(body(logit_bias={"17": 5}))
    assert refused.value.param == "logit_bias"
    assert refused.value.code == "unsupported_parameter"


def test_parse_takes_what_openai_clients_send() -> None:
    chat = parse_completion_request(
        body(
            model="curtilage",
            max_completion_tokens=7,
            temperature=0,
            top_p=1,
            seed=5,
            stop="END",
            stream=True,
            stream_options={"include_usage": True},
            logprobs=True,
            n=1,
            user="somebody",
        )
    )
    settings = chat.query.settings
    assert (settings.max_tokens, settings.temperature, settings.top_p) == (7, 0, 1)
    assert (settings.seed, settings.stop, settings.logprobs) == (5, ("END",), True)
    assert chat.query.stream
    assert chat.include_usage


def test_parse_forwards_no_name_of_the_user() -> None:
    chat = parse_completion_request(body(user=CANARY, metadata={"ward": CANARY}))
    assert CANARY.encode() not in chat.query.payload().content


def test_every_text_is_a_leaf() -> None:
    chat = parse_completion_request(
        json.dumps(
            {
                "messages": [
                    {"role": "system", "content": "one"},
                    {"role": "user", "name": "two", "content": "three"},
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "four"},
                            {"type": "text", "text": "five"},
                        ],
                    },
                ],
                "stop": ["six"],
            }
        ).encode()
    )
    leaves = [leaf.text for leaf in chat.query.leaves()]
    assert leaves == ["one", "three", "two", "four\nfive", "six"]
    for text in ("one", "two", "three", "four\\nfive", "six"):
        assert text.encode() in chat.query.payload().content


PARTS = {
    "picture": {"type": "image_url", "image_url": {"url": f"data:,{CANARY}"}},
    "file": {"type": "file", "file": {"file_id": CANARY}},
    "refusal": {"type": "refusal", "refusal": CANARY},
    "other fields": {"type": "text", "text": CANARY, CANARY: "y"},
    r"\(source, when\)": {"type": "text", "text": CANARY, "when": 1, "source": CANARY},
    "sound": {"type": "input_audio", "input_audio": {"data": CANARY}},
    "text with": {"type": "text", "text": 5},
    "unknown type": {"type": CANARY},
    "an unknown": "bare",
    "of an unknown": {"type": ["text"], "text": CANARY},
}
TURNS: dict[str, dict[str, object]] = {
    "tool calls": {"content": None, "tool_calls": [{"id": CANARY}]},
    "a function call": {"content": "", "function_call": {"name": CANARY}},
    "the result of a tool call": {"content": "4", "tool_call_id": CANARY},
    "a sound recording": {"content": "x", "audio": {"id": CANARY}},
    "a refusal": {"content": "x", "refusal": {"text": CANARY}},
    "an unknown field": {"content": "x", CANARY: "y"},
}


def test_a_line_of_ours_is_no_part_of_an_answer_that_comes_back() -> None:
    said = "[read 2,604 of 6,500 tokens]\n\nYes."
    turns: list[dict[str, object]] = [
        {"role": "user", "content": said},
        {"role": "assistant", "content": said},
        {"role": "assistant", "content": [{"type": "text", "text": said}]},
    ]
    asked = query_from(turns, {}, stream=False)
    assert [each.content for each in asked.messages] == [said, "Yes.", "Yes."]


@pytest.mark.parametrize(("words", "part"), PARTS.items(), ids=PARTS.keys())
def test_a_part_that_is_not_text_is_refused_by_name(words: str, part: object) -> None:
    text = {"type": "text", "text": "what is on it?"}
    messages = [TURN, {"role": "user", "content": [text, part]}]
    with pytest.raises(UnsupportedContentError, match=words) as refused:
        parse_completion_request(json.dumps({"messages": messages}).encode())
    assert refused.value.param == "messages[1].content[1]"
    assert CANARY not in str(refused.value)
    status, value = error_object(refused.value)
    assert status == 400
    assert value["error"] == {
        "message": str(refused.value),
        "type": "invalid_request_error",
        "param": "messages[1].content[1]",
        "code": "unsupported_content",
    }


@pytest.mark.parametrize(
    ("role", "words", "turn"),
    [
        (role, words, turn)
        for role in ("assistant", "tool", "user")
        for words, turn in TURNS.items()
        # Only these turns have them.
        if (role, words) != ("assistant", "tool calls")
        and (role, words) != ("tool", "the result of a tool call")
    ],
)
def test_what_else_a_turn_holds_is_refused_by_name(
    words: str, turn: dict[str, object], role: str
) -> None:
    messages: list[dict[str, object]] = [{**TURN}, {"role": role, **turn}, {**TURN}]
    for given in (
        lambda: parse_completion_request(json.dumps({"messages": messages}).encode()),
        lambda: query_from(messages, {}, stream=False),
    ):
        with pytest.raises(UnsupportedContentError, match=words) as refused:
            given()
        assert str(refused.value.param).startswith("messages[1]")
        assert CANARY not in f"{refused.value} {refused.value.param}"


def test_a_field_of_a_turn_that_is_not_known_is_named() -> None:
    messages: list[dict[str, object]] = [
        {**TURN},
        {"role": "user", "content": "x", "traceId": CANARY},
    ]
    with pytest.raises(
        UnsupportedContentError, match=r"messages\[1\].traceId contains"
    ):
        parse_completion_request(json.dumps({"messages": messages}).encode())
    query = query_from(messages, {}, stream=False, answered=False)
    # A place is recorded, and so it has no name of the sender's.
    assert [where.json_path for where in query.opaque] == ["other"]


@pytest.mark.parametrize(
    ("turn", "text"),
    [
        ({}, ""),
        ({"content": None}, ""),
        ({"content": ""}, ""),
        ({"content": None, "refusal": None}, ""),
        ({"content": None, "refusal": "I cannot."}, "I cannot."),
        ({"refusal": "I cannot."}, "I cannot."),
        ({"content": "Well.", "refusal": "I cannot."}, "Well.\nI cannot."),
        ({"content": [{"type": "refusal", "refusal": "I cannot."}]}, "I cannot."),
        (
            {
                "content": [
                    {"type": "text", "text": "Well."},
                    {"type": "refusal", "refusal": "I cannot."},
                ]
            },
            "Well.\nI cannot.",
        ),
    ],
)
def test_an_assistants_turn_may_be_empty_or_a_refusal(
    turn: dict[str, object], text: str
) -> None:
    """And what it says is inspected, and sent as what it is: the turn's text."""
    messages: list[dict[str, object]] = [
        {**TURN},
        {"role": "assistant", **turn},
        {**TURN},
    ]
    chat = parse_completion_request(json.dumps({"messages": messages}).encode())
    assert [leaf.text for leaf in chat.query.leaves()] == ["hello", text, "hello"]
    sent = json.loads(chat.query.payload().content)["messages"][1]
    assert sent == {"role": "assistant", "content": text}


def test_an_answer_that_comes_back_as_a_turn_is_text() -> None:
    nothing = dict.fromkeys(("refusal", "audio", "function_call"))
    empty: list[object] = []
    turn: dict[str, object] = {"role": "assistant", "content": "4", **nothing}
    messages = [TURN, {**turn, "annotations": empty, "tool_calls": None}, TURN]
    chat = parse_completion_request(json.dumps({"messages": messages}).encode())
    assert [message.content for message in chat.query.messages] == [
        "hello",
        "4",
        "hello",
    ]


@pytest.mark.parametrize("content", [None, [], {}, 7])
@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_a_turn_without_text_is_refused(role: str, content: object) -> None:
    if (role, content) == ("assistant", None):
        return  # see above
    messages = [{"role": role, "content": content}]
    with pytest.raises(UsageError, match=r"^messages\[0\]\.content "):
        parse_completion_request(json.dumps({"messages": messages}).encode())


def test_who_asks_for_a_decision_alone_gets_places() -> None:
    messages: list[dict[str, object]] = [
        {"role": "user", "content": "x", "tool_calls": [{"id": CANARY}]},
        {"role": "user", "content": [PARTS["picture"]]},
    ]
    query = query_from(messages, {}, stream=False, answered=False)
    assert [where.json_path for where in query.opaque] == ["tool_calls", "content[0]"]
    assert CANARY.encode() not in query.payload().content


def test_the_body_names_who_answered() -> None:
    kept = replace(
        PROVENANCE,
        route=Answerer.LOCAL,
        model="small-model",
        evidence=None,
        fallback=EnclaveFailure.TIMEOUT,
    )
    names = {
        (PROVENANCE, "release/1", "curtilage:enclave:sev-snp"),
        (kept, "small-model", "curtilage:local:fallback:timeout"),
        (replace(kept, fallback=None), "small-model", "curtilage:local"),
    }
    for provenance, model, fingerprint in names:
        answer = Answer(text="hi", provenance=provenance, finished=FINISHED)
        chunks = ChunkBuilder(answer_id="id", created=7, provenance=provenance)
        result = [chunks.first(), chunks.piece(Delta(text="a"))]
        result += [*chunks.last(FINISHED, include_usage=True)][:-1]
        bodies: list[Any] = [json.loads(e.removeprefix(b"data: ")) for e in result]
        bodies.append(completion_object(answer, answer_id="id", created=7))
        assert {body["model"] for body in bodies} == {model}
        assert {body["system_fingerprint"] for body in bodies} == {fingerprint}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"n": 5}, "n"),
        ({"n": 0}, "n"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"frequency_penalty": "1"}, "frequency_penalty"),
        ({"deterministic": 1}, "deterministic"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"logit_bias": {"1": 1}}, "logit_bias"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"seed": -1}, "seed"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"stop": "x" * (MAX_STOP_CHARS + 1)}, "stop"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"max_completion_tokens": 5, "max_tokens": 0}, "max_tokens"),
        ({"stream_options": 1}, "stream_options"),
        (
            {"stream_options": {"include_usage": "true"}},
            "stream_options.include_usage",
        ),
        ({"stream_options": {"chunk_size": 5}}, "stream_options.chunk_size"),
        ({"stream_options": {CANARY: 1}}, "stream_options"),
        (
            {"stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation",
        ),
        ({"model": CANARY}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": [TURN] * (MAX_MESSAGES + 1)}, "messages"),
        ({"messages": [CANARY]}, "messages[0]"),
        ({"messages": [{"role": CANARY, "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": list[object]()}]},
            "messages[0].content",
        ),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": "", "name": 1}]},
            "messages[0].name",
        ),
        (
            {"messages": [{"role": "user", "content": "", "name": ""}]},
            "messages[0].name",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": "", "name": "x" * (MAX_NAME_CHARS + 1)}
                ]
            },
            "messages[0].name",
        ),
        ({CANARY: 1}, None),
    ],
)
def test_parse_refuses(fields: dict[str, object], param: str | None) -> None:
    with pytest.raises(UsageError) as refused:
        parse_completion_request(body(**fields))
    assert refused.value.param == param
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"messages": [], "messages": []}',
        b"[" * 100_000,
        b" " * (MAX_REQUEST_BYTES + 1),
    ],
    ids=["empty", "list", "cut", "no-utf8", "duplicate", "deep", "large"],
)
def test_parse_refuses_bytes(data: bytes) -> None:
    with pytest.raises(UsageError):
        parse_completion_request(data)


def test_query_from_takes_one_question() -> None:
    query = query_from("hello", {"max_tokens": 5, "stop": ("x",)}, stream=True)
    assert [leaf.text for leaf in query.leaves()] == ["hello", "x"]
    assert query.settings.max_tokens == 5


def test_query_from_refuses_an_unknown_option() -> None:
    with pytest.raises(UsageError):
        query_from("hello", {"functions": []}, stream=False)


def test_completion_has_the_shape_of_openai() -> None:
    answer = Answer(
        text="hi",
        provenance=PROVENANCE,
        finished=FINISHED,
        logprobs=(("hi", -0.25),),
    )
    value: Any = completion_object(answer, answer_id="id", created=7)
    assert value["choices"][0]["message"]["content"] == "hi"
    assert value["choices"][0]["logprobs"]["content"][0]["logprob"] == -0.25
    assert value["usage"]["total_tokens"] == 5


def test_chunks_end_with_the_end_mark() -> None:
    chunks = ChunkBuilder(answer_id="id", created=7, provenance=PROVENANCE)
    events = [chunks.first(), chunks.piece(Delta(text="ä"))]
    events += chunks.last(FINISHED, include_usage=True)
    assert events[-1] == b"data: [DONE]\n\n"
    parsed = [json.loads(event.removeprefix(b"data: ")) for event in events[:-1]]
    said = parsed[0]["curtilage"]
    assert provenance_headers(PROVENANCE) == {f"x-curtilage-{k}": said[k] for k in said}
    assert parsed[1]["choices"][0]["delta"] == {"content": "ä"}
    assert parsed[2]["choices"][0]["finish_reason"] == "stop"
    assert parsed[3]["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("doubtful", [False, True])
def test_what_is_known_at_the_end_is_said_where_there_is_any(
    *, count: int, doubtful: bool
) -> None:
    """In the body, and of a stream in the event that says how it ended."""
    finished = replace(FINISHED, unrestored=count, doubtful=doubtful)
    result = {"unrestored": count} if count else {}
    said: object = result | ({"doubtful": True} if doubtful else {}) or None
    answer = Answer(text="hi", provenance=PROVENANCE, finished=finished)
    value = completion_object(answer, answer_id="id", created=7)
    assert value.get("curtilage") == said
    chunks = ChunkBuilder(answer_id="id", created=7, provenance=PROVENANCE)
    (end, _) = chunks.last(finished, include_usage=False)
    parsed = json.loads(end.removeprefix(b"data: "))
    assert parsed["choices"][0]["finish_reason"] == "stop"
    assert parsed.get("curtilage") == said


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError("x", param="n"), 400),
        (BlockedError(rule="r", reason="x", classes=(), policy_digest=""), 403),
        (LocalModelError("x"), 503),
        (LocalModelBusyError("x").with_message("y"), 429),
        (BusyError("x"), 429),
        (
            LocalContextTooLongError(
                prompt_tokens=9, max_tokens=2, context_tokens=10
            ).with_message("y"),
            400,
        ),
        (EnclaveError(EnclaveFailure.BUSY), 502),
        (IncompleteAnswerError(EnclaveFailure.TIMEOUT), 502),
        (ConfigError("x"), 500),
    ],
)
def test_errors_have_a_status(error: ClientError, status: int) -> None:
    got, value = error_object(error)
    assert got == status
    assert value["error"]


@pytest.mark.parametrize(
    "error",
    [
        BusyError("x"),
        LocalModelBusyError("x"),
        LocalModelBusyError("x").with_message("y"),
    ],
)
def test_retryable_errors_use_openais_words(error: ClientError) -> None:
    _, value = error_object(error)
    result = cast("dict[str, object]", value["error"])
    assert (result["type"], result["code"]) == (
        "rate_limit_error",
        "rate_limit_exceeded",
    )


def test_a_text_too_long_elsewhere_has_openais_code_and_both_numbers() -> None:
    status, value = error_object(TooLongForEnclaveError(9000, 256, 8192))
    error = cast("dict[str, object]", value["error"])
    assert (status, error["code"]) == (400, "context_length_exceeded")
    assert error["type"] == "invalid_request_error"
    assert all(each in str(error["message"]) for each in ("9000", "256", "8192"))
    status, value = error_object(TooLongForServerError(None, 4096))
    error = cast("dict[str, object]", value["error"])
    assert (status, error["code"]) == (400, "context_length_exceeded")
    assert "4096" in str(error["message"])


def test_provenance_headers_name_route_classes_and_policy() -> None:
    headers = provenance_headers(PROVENANCE)
    assert headers["x-curtilage-route"] == "enclave"
    assert headers["x-curtilage-class"] == "identifier.quasi.url,topic.finance"
    assert headers["x-curtilage-policy"] == "sha256:00"
    assert headers["x-curtilage-verdict"] == "abcd"
    assert headers["x-curtilage-evidence"] == "sev-snp"
    assert "x-curtilage-fallback" not in headers


CALL = Called(index=0, name="find", arguments='{"who": "Ann"}')
SECOND = Called(index=1, name="find", arguments="{}")
TOPS = ((("a", -0.5), ("\ufffd", -1.5)),)
SEVERAL = Answer(
    text="",
    provenance=PROVENANCE,
    finished=replace(FINISHED, finish_reason="tool_calls", others=("length",)),
    calls=(CALL, SECOND),
    others=(
        Choice(text="a", finish_reason="length", logprobs=(("a", -0.5),), tops=TOPS),
    ),
)


def test_several_answers_with_calls_are_as_openai_reads_them() -> None:
    made = completion_object(SEVERAL, answer_id="chatcmpl-" + "a" * 24, created=7)
    read = ChatCompletion.model_validate(made)
    first, other = read.choices
    assert (first.index, first.finish_reason) == (0, "tool_calls")
    assert first.message.content is None
    calls = cast("list[Any]", first.message.tool_calls)
    assert [(each.function.name, each.function.arguments) for each in calls] == [
        ("find", '{"who": "Ann"}'),
        ("find", "{}"),
    ]
    assert [each.id for each in calls] == [
        "call_" + "a" * 24 + "_0_0",
        "call_" + "a" * 24 + "_0_1",
    ]
    assert (other.index, other.finish_reason) == (1, "length")
    assert other.message.content == "a"
    assert other.message.tool_calls is None
    assert other.logprobs is not None
    assert other.logprobs.content is not None
    tops = other.logprobs.content[0].top_logprobs
    assert [(each.token, each.logprob, each.bytes) for each in tops] == [
        ("a", -0.5, [97]),
        ("\ufffd", -1.5, None),
    ]


def test_a_stream_of_several_answers_with_calls_is_as_openai_reads_it() -> None:
    builder = ChunkBuilder(
        answer_id="chatcmpl-x", created=7, provenance=PROVENANCE, n=2
    )
    piece = Delta(text="a", choice=1, logprobs=(("a", -0.5),), tops=TOPS)
    events = builder.first()
    events += builder.piece(Delta(text="", calls=(CALL, SECOND)))
    events += builder.piece(piece)
    events += b"".join(builder.last(SEVERAL.finished, include_usage=True))
    *chunks, done = [
        each.removeprefix(b"data: ") for each in events.split(b"\n\n") if each
    ]
    assert done == b"[DONE]"
    read = [ChatCompletionChunk.model_validate_json(each) for each in chunks]
    *said, usage = read
    assert usage.usage is not None
    assert [
        (each.choices[0].index, each.choices[0].delta.role) for each in said[:2]
    ] == [(0, "assistant"), (1, "assistant")]
    calls = cast("list[Any]", said[2].choices[0].delta.tool_calls)
    assert said[2].choices[0].delta.content is None
    assert [(each.index, each.function.name) for each in calls] == [
        (0, "find"),
        (1, "find"),
    ]
    assert said[3].choices[0].index == 1
    assert [
        (each.choices[0].index, each.choices[0].finish_reason) for each in said[4:]
    ] == [(0, "tool_calls"), (1, "length")]
