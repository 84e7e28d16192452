import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.inference.errors import (
    ALL_TOOLS,
    FORMAT_SCHEMA,
    ContextTooLongError,
    EngineBusyError,
    EngineFailedError,
    EngineMemoryError,
    EngineMissingError,
    InferenceError,
    ModelDigestError,
    ModelFileError,
    NativeError,
    RequestError,
    SchemaError,
    SchemaFault,
    TemplateError,
    WrongThreadError,
    tool_schema,
)
from curtilage.inference.process.codec import (
    MAX_TEXT,
    Plan,
    error_from_value,
    error_to_value,
    from_value,
    one_of,
    to_value,
)
from curtilage.inference.protocol import (
    MAX_TOOLS,
    Called,
    ChatMessage,
    Done,
    EngineInfo,
    Event,
    GenerateRequest,
    JsonObject,
    JsonSchema,
    NamedTool,
    Started,
    Token,
    Tool,
    ToolCall,
    TopLogprob,
    Usage,
)
from curtilage.inference.sampling import SamplingSettings
from curtilage.inference.schema import KEYWORDS
from curtilage.inference.settings import EngineSettings

COUNTS = st.integers(0, 1 << 31)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = st.from_regex("[a-zA-Z0-9_-]{1,64}", fullmatch=True)
LOGPROBS = st.floats(allow_nan=False, max_value=0)
CALLS = st.builds(ToolCall, id=NAMES, name=NAMES, arguments=TEXTS)
TOP = st.builds(TopLogprob, data=st.binary(max_size=4), logprob=LOGPROBS)
EVENTS = st.one_of(
    st.builds(Started, prompt_tokens=COUNTS),
    st.builds(
        Token,
        text=TEXTS,
        logprob=st.none() | LOGPROBS,
        margin=st.none() | LOGPROBS,
        data=st.binary(max_size=4),
        top=st.lists(TOP, max_size=3).map(tuple),
    ),
    st.builds(Called, index=COUNTS, call=CALLS),
    st.builds(
        Done,
        usage=st.builds(Usage, prompt_tokens=COUNTS, completion_tokens=COUNTS),
        finish=st.sampled_from(["stop", "length", "cancelled", "tool_calls"]),
    ),
)
SETTINGS = st.builds(
    SamplingSettings,
    max_tokens=st.integers(1, 9999),
    temperature=st.floats(0, 2),
    seed=st.none() | st.integers(-(2**63), 2**63 - 1),
    stop=st.lists(TEXTS.filter(bool), max_size=3).map(tuple),
    logprobs=st.just(value=True),
    top_logprobs=st.integers(0, 20),
    logit_bias=st.dictionaries(
        st.integers(0, 99), st.floats(-100, 100), max_size=3
    ).map(lambda each: tuple(each.items())),
)
TOOLS = st.builds(Tool, name=NAMES, description=TEXTS, strict=st.booleans())


@st.composite
def requests(draw: st.DrawFn) -> GenerateRequest:
    tools = draw(st.lists(TOOLS, max_size=2, unique_by=lambda tool: tool.name))
    choices: list[Any] = [
        "none",
        "auto",
        *(NamedTool(name=each.name) for each in tools),
    ]
    calls = draw(st.lists(CALLS, max_size=2, unique_by=lambda call: call.id))
    turns = [
        ChatMessage(role="user", content=draw(TEXTS)),
        ChatMessage(role="assistant", content=draw(TEXTS), tool_calls=tuple(calls)),
        *(ChatMessage(role="tool", content="", tool_call_id=each.id) for each in calls),
    ]
    schema = JsonSchema(schema='{"type": "object"}', strict=draw(st.booleans()))
    return GenerateRequest(
        messages=tuple(turns),
        settings=draw(SETTINGS),
        tools=tuple(tools),
        tool_choice=draw(st.sampled_from(choices)),
        parallel_tool_calls=draw(st.booleans()),
        response_format=draw(st.sampled_from([None, JsonObject(), schema])),
        deterministic=draw(st.booleans()),
    )


def over_the_pipe(value: object) -> object:
    return json.loads(json.dumps(value))


@given(requests())
def test_requests_come_out_as_they_went_in(request: GenerateRequest) -> None:
    assert from_value(GenerateRequest, over_the_pipe(to_value(request))) == request


@given(EVENTS)
def test_events_come_out_as_they_went_in(event: Event) -> None:
    assert one_of(Event, over_the_pipe(to_value(event))) == event


def test_a_plan_and_a_model_come_out_as_they_went_in() -> None:
    settings = EngineSettings(context_tokens=9, threads=2, turn_s=0.5)
    plan = Plan(model="/m", sha256="00", model_id="m", settings=settings)
    assert from_value(Plan, over_the_pipe(to_value(plan))) == plan
    info = EngineInfo(
        model_id="m",
        model_sha256="1",
        template_sha256="2",
        architecture="llama",
        context_tokens=3,
        threads=4,
        sequences=5,
    )
    assert from_value(EngineInfo, over_the_pipe(to_value(info))) == info


STARTED = {"": "Started", "prompt_tokens": 1}
DONE = {"": "Usage", "prompt_tokens": 1, "completion_tokens": 1}


@pytest.mark.parametrize(
    "value",
    [
        None,
        "Started",
        [STARTED],
        {},
        {"prompt_tokens": 1},
        {"": "Started"},
        {"": "Start", "prompt_tokens": 1},
        {"": ["Started"], "prompt_tokens": 1},
        {**STARTED, "prompt_tokens": True},
        {**STARTED, "prompt_tokens": 1.0},
        {**STARTED, "prompt_tokens": "1"},
        {**STARTED, "more": 1},
        {"": "Usage", "prompt_tokens": 1, "completion_tokens": 1},
        {"": "Token", "text": None},
        {"": "Token", "text": "a", "logprob": float("nan")},
        {"": "Token", "text": "a", "logprob": "1"},
        {"": "Token", "text": "a", "data": "no hex"},
        {"": "Token", "text": "a", "data": 1},
        {"": "Token", "text": "a", "top": {}},
        {"": "Token", "text": "a", "top": [1]},
        {"": "Done", "usage": DONE, "finish": "stopped"},
        {"": "Done", "usage": STARTED, "finish": "stop"},
    ],
)
def test_anything_else_is_no_event(value: object) -> None:
    with pytest.raises(ValueError, match=r"another kind|no known class|hexadecimal"):
        one_of(Event, value)


def test_a_pair_has_two_parts() -> None:
    value: Any = to_value(SamplingSettings(logit_bias=((1, 2.0),)))
    value["logit_bias"] = [[1, 2.0, 3]]
    with pytest.raises(ValueError, match="another kind"):
        from_value(SamplingSettings, value)


def test_what_a_class_refuses_is_refused() -> None:
    call = {"": "ToolCall", "id": "", "name": "a", "arguments": ""}
    with pytest.raises(RequestError):
        one_of(Event, {"": "Called", "index": 0, "call": call})


@pytest.mark.parametrize("loading", [False, True])
@pytest.mark.parametrize(
    "problem",
    [
        ContextTooLongError(prompt_tokens=1, max_tokens=2, context_tokens=3),
        EngineMemoryError(4),
        NativeError("the library", -3),
    ],
)
def test_an_error_keeps_its_numbers(problem: InferenceError, *, loading: bool) -> None:
    value = over_the_pipe(error_to_value(problem, loading=loading))
    found = error_from_value(value, loading=loading)
    assert type(found) is type(problem)
    assert (str(found), vars(found)) == (str(problem), vars(problem))


CANARY = "canary-9"


@pytest.mark.parametrize(
    "problem",
    [
        RequestError(CANARY),
        SchemaError(CANARY, where=CANARY),
        TemplateError(CANARY),
        ModelFileError(CANARY),
        EngineMissingError(CANARY),
        EngineBusyError(CANARY),
        EngineFailedError(CANARY),
        NativeError(CANARY, 1),
    ],
)
def test_an_error_of_a_request_has_no_text(problem: InferenceError) -> None:
    value = error_to_value(problem, loading=False)
    assert CANARY not in json.dumps(value)
    assert type(error_from_value(value, loading=False)) is type(problem)


FIELDS = [ALL_TOOLS, FORMAT_SCHEMA, *map(tool_schema, range(MAX_TOOLS))]
STEPS = st.tuples(
    st.sampled_from(["", *KEYWORDS]), st.none() | st.integers(0, 99_999)
).filter(lambda step: step != ("", None))


def path_of(steps: list[tuple[str, int | None]]) -> str:
    return ".".join(
        word + ("" if position is None else f"[{position}]") for word, position in steps
    )


@given(
    st.sampled_from(SchemaFault),
    st.sampled_from(["", *KEYWORDS]),
    st.lists(STEPS, max_size=5),
    st.integers(0, 99_999),
    st.sampled_from(["", *FIELDS]),
)
def test_a_schemas_error_keeps_what_is_in_closed_lists(
    fault: SchemaFault,
    keyword: str,
    steps: list[tuple[str, int | None]],
    most: int,
    field: str,
) -> None:
    problem = SchemaError(fault, keyword=keyword, where=path_of(steps), most=most)
    problem.field = field
    value = over_the_pipe(error_to_value(problem, loading=False))
    found = error_from_value(value, loading=False)
    assert (str(found), vars(found)) == (str(problem), vars(problem) | {"field": field})


@pytest.mark.parametrize(
    "where",
    [
        CANARY,
        "properties[0].canary",
        "canary[0]",
        "properties[123456]",
        "properties[0]canary",
        "properties[\u0663]",
    ],
)
def test_a_path_with_another_word_is_left_out(where: str) -> None:
    problem = SchemaError(SchemaFault.KEYWORD, keyword="canary", where=where)
    problem.field = "canary"
    value = error_to_value(problem, loading=False)
    assert "canary" not in json.dumps(value)
    found = error_from_value(value, loading=False)
    assert isinstance(found, SchemaError)
    assert (found.reason, found.keyword) == (SchemaFault.KEYWORD, "")
    assert (found.where, found.field) == ("", "")


SCHEMA: dict[str, Any] = {
    "error": "SchemaError",
    "reason": 0,
    "keyword": 0,
    "where": [],
    "most": 0,
    "field": 0,
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"reason": len(SchemaFault)},
        {"reason": -2},
        {"reason": "canary"},
        {"keyword": len(KEYWORDS)},
        {"keyword": True},
        {"where": [[0, 0]] * 257},
        {"where": [[len(KEYWORDS), 0]]},
        {"where": [[0, -2]]},
        {"where": [[0]]},
        {"where": ["canary"]},
        {"most": -1},
        {"most": "canary"},
        {"field": len(FIELDS)},
        {"text": "canary"},
    ],
    ids=str,
)
def test_a_schemas_error_has_numbers_of_the_lists_only(wrong: dict[str, Any]) -> None:
    error_from_value(SCHEMA, loading=False)
    with pytest.raises(ValueError, match="another kind"):
        error_from_value(SCHEMA | wrong, loading=False)


def test_an_error_of_loading_keeps_its_text() -> None:
    problem = ModelFileError("the model file cannot be opened: é\n" + "x" * 999)
    found = error_from_value(error_to_value(problem, loading=True), loading=True)
    assert str(found).startswith("the model file cannot be opened: é?xx")
    assert len(str(found)) == MAX_TEXT
    digest = ModelDigestError(expected="00" * 32, found="11" * 32)
    found = error_from_value(error_to_value(digest, loading=True), loading=True)
    assert str(found) == str(digest)


def test_an_unknown_error_is_a_failure() -> None:
    value = error_to_value(WrongThreadError(CANARY), loading=False)
    assert CANARY not in json.dumps(value)
    assert type(error_from_value(value, loading=False)) is EngineFailedError


TEXT = {"error": "ModelFileError", "text": "x"}


@pytest.mark.parametrize(
    ("value", "loading"),
    [
        ("ModelFileError", True),
        ({}, True),
        ({"error": "Exception"}, False),
        ({"error": ["ModelFileError"]}, False),
        (TEXT, False),
        ({**TEXT, "text": "a\nb"}, True),
        ({**TEXT, "text": "x" * (MAX_TEXT + 1)}, True),
        ({**TEXT, "text": 1}, True),
        ({"error": "ModelFileError"}, True),
        ({"error": "NativeError", "code": CANARY}, False),
        ({"error": "NativeError", "code": 1, "call": CANARY}, False),
        ({"error": "ModelDigestError", "expected": "00", "found": "00" * 32}, True),
        (
            {"error": "ModelDigestError", "expected": "00" * 32, "found": "00" * 32},
            False,
        ),
    ],
)
def test_anything_else_is_no_error(value: object, *, loading: bool) -> None:
    with pytest.raises(ValueError, match=r"another kind|no known class"):
        error_from_value(value, loading=loading)
