"""Tools, formats and several answers, asked with OpenAI's package on both routes."""

import asyncio
import json
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import openai
import pytest
from pydantic import BaseModel
from typing_extensions import override

from curtilage.client.endpoint import server as gateway
from curtilage.client.local.model import LocalModel
from curtilage.client.parts import ClientParts
from curtilage.client.session import Session
from curtilage.inference.errors import SchemaError
from curtilage.inference.modelfile import verify_model_file
from curtilage.inference.protocol import (
    CancelToken,
    Done,
    Engine,
    Event,
    GenerateRequest,
    Started,
    Token,
    ToolCall,
    TopLogprob,
    Usage,
)
from curtilage.inference.settings import EngineSettings
from curtilage.policy.document.load import load_profile
from curtilage_dev.scripted_engine import Script, ScriptedEngine
from support.byte_model import make_byte_model, sha256_of
from support.client_parts import MemoryTrail, WordInspector
from support.memory_enclave import ROOMY, Clock, key_store
from support.model_enclave import ModelEnclave

PERSON = "identifier.direct.person"
KEPT = "financial.pan"
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "find",
            "description": "Finds a patient",
            "parameters": {
                "type": "object",
                "properties": {"who": {"type": "string"}},
                "required": ["who"],
            },
        },
    }
]
CALL = ToolCall(id="x", name="find", arguments='{"who": "Bo"}')
TWICE = Script(pieces=("So ", CALL, CALL))


class Asked:
    """The endpoint, its two engines and the enclave that one of them is in."""

    def __init__(self, *scripts: Script, **words: str) -> None:
        self.engine = ScriptedEngine(*scripts)
        self.answers: Engine = self.engine
        self.enclave = ModelEnclave(*scripts)
        self.inspector = WordInspector(words)

    def use(self, engine: Engine) -> None:
        """Have both answer with this engine."""
        self.answers, self.enclave = engine, ModelEnclave(engine=engine)

    def engine_of(self, route: str) -> ScriptedEngine:
        return self.engine if route == "local" else self.enclave.engine

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[openai.AsyncOpenAI]:
        local = LocalModel(lambda: self.answers, model_id="scripted")
        await local.start()
        session = Session(
            ClientParts(
                policy=load_profile("default"),
                inspector=self.inspector,
                local=local,
                transport=self.enclave,
                keys=key_store(ROOMY),
                audit=MemoryTrail(),
                clock=Clock(),
            )
        )
        async with (
            session,
            gateway.serving(session, "127.0.0.1", 0) as port,
            openai.AsyncOpenAI(
                base_url=f"http://127.0.0.1:{port}/v1", api_key="unused", max_retries=0
            ) as client,
        ):
            yield client


def question(route: str) -> Any:  # noqa: ANN401 -- a parameter of OpenAI's type
    text = "Find Bo" if route == "enclave" else "Find Bo, 4111"
    return [{"role": "user", "content": text}]


WORDS = {"4111": KEPT}
both_routes = pytest.mark.parametrize("route", ["local", "enclave"])


async def route_of(raw: Any) -> str:  # noqa: ANN401 -- a response of OpenAI's type
    return cast("str", raw.headers["x-curtilage-route"])


@both_routes
async def test_calls_are_asked_for_and_answered(route: str) -> None:
    asked = Asked(TWICE, Script(pieces=("In 3.",)), **WORDS)
    async with asked.client() as client:
        raw = await client.chat.completions.with_raw_response.create(
            model="curtilage", messages=question(route), tools=TOOLS
        )
        assert await route_of(raw) == route
        answer = raw.parse()
        (choice,) = answer.choices
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content == "So "
        calls = cast("list[Any]", choice.message.tool_calls)
        assert [json.loads(each.function.arguments) for each in calls] == [
            {"who": "Bo"},
            {"who": "Bo"},
        ]
        assert len({each.id for each in calls}) == 2
        results = [
            {"role": "tool", "tool_call_id": each.id, "content": f"bed {number}"}
            for number, each in enumerate(calls)
        ]
        final = await client.chat.completions.create(
            model="curtilage",
            messages=cast(
                "Any", [*question(route), choice.message.model_dump(), *results]
            ),
            tools=TOOLS,
            tool_choice="none",
            parallel_tool_calls=False,
        )
    assert final.choices[0].message.content == "In 3."
    _, last = asked.engine_of(route).requests
    assert last.tool_choice == "none"
    assert not last.parallel_tool_calls
    assert [each.id for each in last.messages[1].tool_calls] == ["call_1", "call_2"]
    assert [each.tool_call_id for each in last.messages[2:]] == ["call_1", "call_2"]
    assert [each.content for each in last.messages[2:]] == ["bed 0", "bed 1"]


@both_routes
async def test_calls_are_streamed(route: str) -> None:
    asked = Asked(TWICE, **WORDS)
    async with (
        asked.client() as client,
        client.chat.completions.stream(
            model="curtilage", messages=question(route), tools=TOOLS
        ) as stream,
    ):
        async for _ in stream:
            pass
        answer = await stream.get_final_completion()
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "So "
    calls = choice.message.tool_calls or []
    assert [(each.function.name, each.function.arguments) for each in calls] == [
        ("find", '{"who": "Bo"}')
    ] * 2


class Bed(BaseModel):
    """A bed of a ward."""

    ward: str
    number: int


@both_routes
async def test_an_answer_is_parsed_as_a_model_of_pydantic(route: str) -> None:
    asked = Asked(Script(pieces=('{"ward": "A', '", "number": 3}')), **WORDS)
    async with asked.client() as client:
        answer = await client.chat.completions.parse(
            model="curtilage", messages=question(route), response_format=Bed
        )
    assert answer.choices[0].message.parsed == Bed(ward="A", number=3)
    (request,) = asked.engine_of(route).requests
    wanted = cast("Any", request.response_format)
    assert (wanted.name, wanted.strict) == ("Bed", True)
    assert set(json.loads(wanted.schema)["properties"]) == {"ward", "number"}


@both_routes
@pytest.mark.parametrize("stream", [False, True])
async def test_several_answers_are_given(route: str, stream: bool) -> None:
    asked = Asked(
        Script(pieces=("a", "b")), Script(pieces=("c",), finish="length"), **WORDS
    )
    async with asked.client() as client:
        if stream:
            async with client.chat.completions.stream(
                model="curtilage",
                messages=question(route),
                n=2,
                seed=7,
                stream_options={"include_usage": True},
            ) as events:
                async for _ in events:
                    pass
                answer: Any = events.current_completion_snapshot
        else:
            answer = await client.chat.completions.create(
                model="curtilage", messages=question(route), n=2, seed=7
            )
    assert [
        (each.index, each.message.content, each.finish_reason)
        for each in answer.choices
    ] == [(0, "ab", "stop"), (1, "c", "length")]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (7, 3)
    seeds = [each.settings.seed or 0 for each in asked.engine_of(route).requests]
    assert seeds == [seeds[0], seeds[0] + 1]


async def alone(answer: Any) -> AsyncGenerator[Any]:  # noqa: ANN401 -- OpenAI's
    yield answer


@both_routes
@pytest.mark.parametrize("stream", [False, True])
async def test_the_likeliest_tokens_are_given(route: str, stream: bool) -> None:
    script = Script(pieces=("a",), probability=0.75, second="b")
    asked = Asked(script, **WORDS)
    fields: Any = {
        "model": "curtilage",
        "messages": question(route),
        "logprobs": True,
        "top_logprobs": 2,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
    }
    found: list[Any] = []
    async with asked.client() as client:
        made: Any = await client.chat.completions.create(**fields, stream=stream)
        async for each in made if stream else alone(made):
            for choice in each.choices:
                found += choice.logprobs.content if choice.logprobs else ()
    (token,) = found
    assert (token.token, token.logprob) == ("a", math.log(0.75))
    assert [(each.token, each.logprob) for each in token.top_logprobs] == [
        ("a", math.log(0.75)),
        ("b", math.log(0.25)),
    ]
    (request,) = asked.engine_of(route).requests
    settings = request.settings
    assert (settings.presence_penalty, settings.frequency_penalty) == (0.5, -0.5)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_name_in_a_call_is_replaced_and_restored(stream: bool) -> None:
    call = ToolCall(id="x", name="find", arguments='{"who": "\u27e6PERSON_1\u27e7"}')
    asked = Asked(Script(pieces=(call,)), Ann=PERSON)
    turns: Any = [
        {"role": "user", "content": "Find them"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "find", "arguments": '{"who": "Ann"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "Ann is in bed 3"},
    ]
    async with asked.client() as client:
        if stream:
            async with client.chat.completions.stream(
                model="curtilage", messages=turns, tools=TOOLS
            ) as events:
                async for _ in events:
                    pass
                answer = cast("Any", await events.get_final_completion())
        else:
            answer = cast(
                "Any",
                await client.chat.completions.create(
                    model="curtilage", messages=turns, tools=TOOLS
                ),
            )
    assert answer.system_fingerprint.startswith("curtilage:enclave")
    (made,) = answer.choices[0].message.tool_calls
    assert made.function.arguments == '{"who": "Ann"}'
    (request,) = asked.enclave.engine.requests
    assert request.messages[1].tool_calls[0].arguments == (
        '{"who":"\u27e6PERSON_1\u27e7"}'
    )
    assert request.messages[2].content == "\u27e6PERSON_1\u27e7 is in bed 3"
    assert all(b"Ann" not in each.content for each in asked.enclave.requests)


async def test_a_name_with_quotes_stays_within_its_string_of_json() -> None:
    name = 'Ann "Q" Smith'
    script = Script(pieces=('{"who": "\u27e6PERSON', '_1\u27e7"}'))
    asked = Asked(script, **{name: PERSON})
    async with asked.client() as client:
        answer = await client.chat.completions.create(
            model="curtilage",
            messages=[{"role": "user", "content": f"Who is {name}?"}],
            response_format={"type": "json_object"},
        )
    assert (answer.system_fingerprint or "").startswith("curtilage:enclave")
    assert json.loads(answer.choices[0].message.content or "") == {"who": name}


DEFINITIONS: dict[str, dict[str, Any]] = {
    "description": {"name": "find", "description": "4111"},
    "property": {"name": "find", "parameters": {"properties": {"4111": {}}}},
    "default": {"name": "find", "parameters": {"default": 4111}},
}
FORMAT: dict[str, Any] = {"type": "json_schema", "json_schema": {"name": "4111"}}


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": FORMAT},
        *(
            {"tools": [{"type": "function", "function": each}]}
            for each in DEFINITIONS.values()
        ),
    ],
    ids=["format", *DEFINITIONS],
)
async def test_a_finding_in_a_definition_keeps_the_question(
    fields: dict[str, Any],
) -> None:
    asked = Asked(Script(pieces=("{}",)), **WORDS)
    async with asked.client() as client:
        create: Any = client.chat.completions.create
        answer = await create(model="curtilage", messages=question("enclave"), **fields)
    assert answer.system_fingerprint == "curtilage:local"
    assert asked.enclave.requests == []


@both_routes
async def test_a_deterministic_answer_is_the_same_whatever_else_is_asked(
    route: str, tmp_path: Path
) -> None:
    path = tmp_path / "byte.gguf"
    make_byte_model(path)
    engine = pytest.importorskip("curtilage.inference.engine")
    real = engine.LlamaCppEngine(
        verify_model_file(path, sha256_of(path)),
        model_id="byte",
        settings=EngineSettings(threads=1, sequences=4),
    )
    await real.start()
    asked = Asked(**WORDS)
    asked.use(real)

    async with asked.client() as client:

        async def ask(seed: int, **more: object) -> list[tuple[str, float]]:
            raw = await client.chat.completions.with_raw_response.create(
                model="curtilage",
                messages=question(route),
                seed=seed,
                temperature=1.5,
                max_tokens=24,
                logprobs=True,
                extra_body=more,
            )
            assert await route_of(raw) == route
            (choice,) = raw.parse().choices
            listed = choice.logprobs.content if choice.logprobs else None
            return [(each.token, each.logprob) for each in listed or []]

        seen: list[list[tuple[str, float]]] = []
        for run in range(5):
            # None but the first of them alone.
            neighbours = [asyncio.create_task(ask(100 + at)) for at in range(run and 2)]
            await asyncio.sleep(0)
            seen.append(await ask(7, deterministic=True))
            await asyncio.gather(*neighbours)
        assert seen == [seen[0]] * 5
        assert len(seen[0]) > 8
        assert await ask(8, deterministic=True) != seen[0]
    await real.close()


class Spelled(ScriptedEngine):
    """Draws the bytes of a character one by one, and a token of a stop string."""

    @override
    async def generate(
        self, request: GenerateRequest, *, cancel: CancelToken | None = None
    ) -> AsyncGenerator[Event]:
        self.requests.append(request)
        yield Started(prompt_tokens=3)
        half = TopLogprob(data=EURO[:1], logprob=-0.25)
        whole = TopLogprob(data=b"e", logprob=-1.5)
        for at, octet in enumerate(EURO):
            yield Token(
                text=EURO.decode() if at == len(EURO) - 1 else "",
                logprob=-0.25,
                data=bytes([octet]),
                top=(half, whole),
            )
        yield Token(text="", logprob=-0.5, data=b"END")
        yield Done(usage=Usage(prompt_tokens=3, completion_tokens=4), finish="stop")


EURO = "\u20ac".encode()


@both_routes
@pytest.mark.parametrize("stream", [False, True])
async def test_each_log_probability_is_of_the_token_that_was_drawn(
    route: str, stream: bool
) -> None:
    asked = Asked(**WORDS)
    engine = Spelled()
    asked.use(engine)
    text, found = "", list[Any]()
    async with asked.client() as client:
        made: Any = await client.chat.completions.create(
            model="curtilage",
            messages=question(route),
            logprobs=True,
            top_logprobs=2,
            stream=stream,
        )
        async for each in made if stream else alone(made):
            for choice in each.choices:
                found += choice.logprobs.content if choice.logprobs else ()
                said = choice.delta if stream else choice.message
                text += said.content or ""
    assert len(engine.requests) == 1
    assert text == "\u20ac"
    assert [each.bytes for each in found] == [*([octet] for octet in EURO), [*b"END"]]
    assert [each.token for each in found] == ["\ufffd"] * 3 + ["END"]
    for each in found[:-1]:
        assert [(top.token, top.bytes) for top in each.top_logprobs] == [
            ("\ufffd", [EURO[0]]),
            ("e", [*b"e"]),
        ]


@both_routes
async def test_a_token_of_a_call_has_its_log_probability(route: str) -> None:
    asked = Asked(Script(pieces=("So ", CALL), probability=0.75), **WORDS)
    async with asked.client() as client:
        answer = await client.chat.completions.create(
            model="curtilage", messages=question(route), tools=TOOLS, logprobs=True
        )
    (choice,) = answer.choices
    assert len(choice.message.tool_calls or ()) == 1
    assert choice.logprobs is not None
    listed = choice.logprobs.content or []
    assert [each.token for each in listed] == ["So ", CALL.arguments]


@both_routes
@pytest.mark.parametrize("stream", [False, True])
async def test_each_setting_reaches_the_engine(route: str, stream: bool) -> None:
    asked = Asked(Script(pieces=["a"] * 30), **WORDS)
    said: Any = [
        {"role": "developer", "content": "Be brief."},
        {**question(route)[0], "name": "Dr. Ö"},
    ]
    more: dict[str, Any] = {"stream_options": {"include_usage": True}} if stream else {}
    async with asked.client() as client:
        answer: Any = await client.chat.completions.create(
            model="curtilage",
            messages=said,
            max_completion_tokens=24,
            stop=["END"],
            seed=7,
            presence_penalty=0.5,
            frequency_penalty=-1.5,
            logprobs=True,
            top_logprobs=2,
            stream=stream,
            **more,
        )
        usage = (
            [event.usage async for event in answer if event.usage]
            if stream
            else [answer.usage]
        )
    assert [each.completion_tokens for each in usage] == [24]
    (request,) = asked.engine_of(route).requests
    assert [(each.role, each.name) for each in request.messages] == [
        ("developer", ""),
        ("user", "Dr. Ö"),
    ]
    settings = request.settings
    assert (settings.max_tokens, settings.stop) == (24, ("END",))
    assert (settings.presence_penalty, settings.frequency_penalty) == (0.5, -1.5)
    assert (settings.logprobs, settings.top_logprobs) == (True, 2)
    # Sealed, it is a digest of the seed and the question.
    assert (settings.seed == 7) == (route == "local")
    assert settings.seed is not None


@both_routes
async def test_what_is_deterministic_reaches_the_engine(route: str) -> None:
    asked = Asked(Script(), **WORDS)
    async with asked.client() as client:
        for value in (True, False):
            await client.chat.completions.create(
                model="curtilage",
                messages=question(route),
                extra_body={"deterministic": value},
            )
    (first, second) = asked.engine_of(route).requests
    assert (first.deterministic, second.deterministic) == (True, False)


async def test_what_the_enclave_refuses_is_answered_locally() -> None:
    refused = Script(fault=SchemaError("has an unknown keyword"))
    asked = Asked(Script(), **WORDS)
    asked.enclave = ModelEnclave(refused)
    async with asked.client() as client:
        raw = await client.chat.completions.with_raw_response.create(
            model="curtilage", messages=question("enclave")
        )
    assert await route_of(raw) == "local"
    assert len(asked.enclave.engine.requests) == 1


UNENFORCED: Any = {
    "type": "function",
    "function": {
        "name": "lose",
        "parameters": {
            "type": "object",
            "properties": {"canary": {"type": "object", "minProperties": 1}},
        },
        "strict": True,
    },
}


@both_routes
async def test_a_schema_that_is_not_enforced_is_named(route: str) -> None:
    asked = Asked(Script(), **WORDS)
    async with asked.client() as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(
                model="curtilage", messages=question(route), tools=[*TOOLS, UNENFORCED]
            )
    assert refused.value.param == "tools[1].function.parameters"
    assert "minProperties, at properties[0]" in refused.value.message
    assert "canary" not in refused.value.message


async def test_a_schema_that_the_enclave_refuses_is_named() -> None:
    asked = Asked(Script(), **WORDS)
    async with asked.client() as client:
        with pytest.raises(openai.APIStatusError) as refused:
            await client.chat.completions.create(
                model="curtilage",
                messages=question("enclave"),
                tools=[*TOOLS, UNENFORCED],
                extra_body={"curtilage": {"require": "enclave"}},
            )
    assert (refused.value.status_code, refused.value.code) == (503, "required_unmet")
    said = "schema_not_enforced: tools[1].function.parameters: minProperties, at "
    assert f"{said}properties[0]" in refused.value.message
    assert asked.engine.requests == []


async def test_what_is_not_supported_is_named() -> None:
    asked = Asked(**WORDS)
    async with asked.client() as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(
                model="curtilage", messages=question("local"), logit_bias={"7": 5}
            )
    assert (refused.value.code, refused.value.param) == (
        "unsupported_parameter",
        "logit_bias",
    )
