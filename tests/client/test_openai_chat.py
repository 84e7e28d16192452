import json
from dataclasses import replace
from typing import Any, cast

import pytest

from curtilage.client.answer import (
    Answer,
    Answerer,
    Delta,
    Finished,
    Provenance,
)
from curtilage.client.errors import (
    BlockedError,
    BusyError,
    ClientError,
    ConfigError,
    EnclaveError,
    FailureReason,
    IncompleteAnswerError,
    LocalUnavailableError,
    UnsupportedContentError,
    UsageError,
)
from curtilage.client.local.model import LocalContextTooLongError, LocalModelBusyError
from curtilage.client.openai_chat import (
    MAX_MESSAGES,
    MAX_REQUEST_BYTES,
    ChunkBuilder,
    completion_object,
    error_object,
    parse_completion_request,
    provenance_headers,
    query_from,
)

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
    assert CANARY.encode() not in chat.query.payload()


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
        assert text.encode() in chat.query.payload()


PARTS = {
    "picture": {"type": "image_url", "image_url": {"url": f"data:,{CANARY}"}},
    "sound": {"type": "input_audio", "input_audio": {"data": CANARY}},
    "file": {"type": "file", "file": {"file_id": CANARY}},
    "refusal": {"type": "refusal", "refusal": CANARY},
    "other fields": {"type": "text", "text": CANARY, "cache_control": "y"},
    "text with": {"type": "text", "text": 5},
    "not known": {"type": CANARY},
    "kind that": "bare",
    "a kind": {"type": ["text"], "text": CANARY},
}
TURNS: dict[str, dict[str, object]] = {
    "tool calls": {"content": None, "tool_calls": [{"id": CANARY}]},
    "a function call": {"content": "", "function_call": {"name": CANARY}},
    "the result of a tool call": {"content": "4", "tool_call_id": CANARY},
    "a sound recording": {"content": "x", "audio": {"id": CANARY}},
    "a refusal": {"content": None, "refusal": CANARY},
    "a field that is not known": {"content": "x", CANARY: "y"},
}


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


@pytest.mark.parametrize(("words", "turn"), TURNS.items(), ids=TURNS.keys())
@pytest.mark.parametrize("role", ["assistant", "tool"])
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
    messages = [{"role": role, "content": content}]
    with pytest.raises(UsageError, match=r"messages\[0\]\.content must be"):
        parse_completion_request(json.dumps({"messages": messages}).encode())


def test_who_asks_for_a_decision_alone_gets_places() -> None:
    messages: list[dict[str, object]] = [
        {"role": "assistant", "content": None, "tool_calls": [{"id": CANARY}]},
        {"role": "user", "content": [PARTS["picture"]]},
    ]
    query = query_from(messages, {}, stream=False, answered=False)
    assert [where.json_path for where in query.opaque] == ["tool_calls", "content[0]"]
    assert CANARY.encode() not in query.payload()


def test_the_body_names_who_answered() -> None:
    kept = replace(
        PROVENANCE,
        route=Answerer.LOCAL,
        model="small-model",
        evidence=None,
        fallback=FailureReason.TIMEOUT,
    )
    names = {
        (PROVENANCE, "release/1", "curtilage:enclave:sev-snp"),
        (kept, "small-model", "curtilage:local:fallback:timeout"),
        (replace(kept, fallback=None), "small-model", "curtilage:local"),
    }
    for provenance, model, fingerprint in names:
        answer = Answer(text="hi", provenance=provenance, finished=FINISHED)
        chunks = ChunkBuilder(answer_id="id", created=7, provenance=provenance)
        told = [chunks.first(), chunks.piece(Delta(text="a"))]
        told += [*chunks.last(FINISHED, include_usage=True)][:-1]
        bodies: list[Any] = [json.loads(e.removeprefix(b"data: ")) for e in told]
        bodies.append(completion_object(answer, answer_id="id", created=7))
        assert {body["model"] for body in bodies} == {model}
        assert {body["system_fingerprint"] for body in bodies} == {fingerprint}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"n": 2}, "n"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"seed": -1}, "seed"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": 1}, "stream_options"),
        ({"model": CANARY}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": [TURN] * (MAX_MESSAGES + 1)}, "messages"),
        ({"messages": [CANARY]}, "messages[0]"),
        ({"messages": [{"role": CANARY, "content": ""}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0]"),
        ({"messages": [{"role": "user"}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": "", "name": 1}]}, "messages[0]"),
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
        query_from("hello", {"tools": []}, stream=False)


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
def test_how_many_placeholders_are_left_is_said_where_any_are(count: int) -> None:
    """In the body, and of a stream in the event that says how it ended."""
    finished = replace(FINISHED, unrestored=count)
    said: object = {"unrestored": count} if count else None
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
        (LocalUnavailableError("x"), 503),
        (LocalModelBusyError("x").told_as("y"), 429),
        (BusyError("x"), 429),
        (
            LocalContextTooLongError(
                prompt_tokens=9, max_tokens=2, context_tokens=10
            ).told_as("y"),
            400,
        ),
        (EnclaveError(FailureReason.BUSY), 502),
        (IncompleteAnswerError(FailureReason.TIMEOUT), 502),
        (ConfigError("x"), 500),
    ],
)
def test_errors_have_a_status(error: ClientError, status: int) -> None:
    got, value = error_object(error)
    assert got == status
    assert value["error"]


@pytest.mark.parametrize(
    "error",
    [BusyError("x"), LocalModelBusyError("x"), LocalModelBusyError("x").told_as("y")],
)
def test_who_may_ask_again_is_told_so_in_openais_words(error: ClientError) -> None:
    _, value = error_object(error)
    told = cast("dict[str, object]", value["error"])
    assert (told["type"], told["code"]) == ("rate_limit_error", "rate_limit_exceeded")


def test_provenance_headers_name_route_classes_and_policy() -> None:
    headers = provenance_headers(PROVENANCE)
    assert headers["x-curtilage-route"] == "enclave"
    assert headers["x-curtilage-class"] == "identifier.quasi.url,topic.finance"
    assert headers["x-curtilage-policy"] == "sha256:00"
    assert headers["x-curtilage-verdict"] == "abcd"
    assert headers["x-curtilage-evidence"] == "sev-snp"
    assert "x-curtilage-fallback" not in headers
