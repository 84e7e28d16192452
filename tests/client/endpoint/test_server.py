import asyncio
import io
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
import openai
import pytest
from typing_extensions import override

from curtilage.client import telemetry
from curtilage.client.chat import openai_fields
from curtilage.client.chat.answer import AnswerEvent, Delta
from curtilage.client.chat.openai_fields import REFUSALS
from curtilage.client.chat.query import Query
from curtilage.client.endpoint import server as gateway
from curtilage.client.errors import ConfigError, ListenError
from curtilage.client.local.named import NamedModels
from curtilage.client.local.registry.catalogue import known
from curtilage.client.parts import (
    AnswersLocally,
    ClientParts,
    UnavailableLocal,
)
from curtilage.client.session import Session
from curtilage.policy.document.load import load_profile
from support.client_parts import (
    MemoryTrail,
    ScriptedInspector,
    ScriptedLocal,
    SmallLocal,
)
from support.counts import Counts
from support.memory_enclave import Clock, MemoryEnclave, Reply, chunk, key_store, sse
from support.named_models import named_models

CANARY = "canary-90d2"
ASK = [{"role": "user", "content": CANARY}]


@asynccontextmanager
async def served(
    *found: str,
    local: AnswersLocally | None = None,
    enclave: MemoryEnclave | None = None,
    audit: MemoryTrail | None = None,
    named: NamedModels | None = None,
) -> AsyncGenerator[str]:
    session = Session(
        ClientParts(
            policy=load_profile("default"),
            inspector=ScriptedInspector(*found),
            local=local or UnavailableLocal("there is no model"),
            transport=enclave,
            keys=key_store(),
            audit=audit or MemoryTrail(),
            clock=Clock(),
            named=named,
        )
    )
    async with session, gateway.serving(session, "127.0.0.1", 0) as port:
        yield f"http://127.0.0.1:{port}"


class Waiting(ScriptedLocal):
    """Starts when the test wants it; starting may then fail."""

    def __init__(self, *, broken: bool = False) -> None:
        super().__init__(broken=broken)
        self.go = asyncio.Event()

    @override
    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        await self.go.wait()
        async for event in super().generate(query, signals=signals):
            yield event


@asynccontextmanager
async def http() -> AsyncGenerator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_the_openai_package_asks() -> None:
    async with (
        served(enclave=MemoryEnclave()) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused") as client,
    ):
        models = await client.models.list()
        assert [model.id for model in models.data] == ["curtilage"]
        raw = await client.chat.completions.with_raw_response.create(
            model="curtilage",
            messages=[{"role": "user", "content": "hello"}],
        )
        assert raw.headers["x-curtilage-route"] == "enclave"
        assert raw.headers["x-curtilage-policy"].startswith("sha256:")
        answer = raw.parse()
        assert answer.choices[0].message.content == "From afar."
        assert answer.usage is not None
        assert answer.usage.total_tokens == 6


async def test_the_openai_package_streams() -> None:
    async with (
        served("financial.pan", local=ScriptedLocal()) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused") as client,
    ):
        stream = await client.chat.completions.create(
            model="curtilage",
            messages=[{"role": "user", "content": "hello"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        assert stream.response.headers["x-curtilage-route"] == "local"
        assert stream.response.headers["x-curtilage-class"] == "financial.pan"
        events = [event async for event in stream]
    text = "".join(e.choices[0].delta.content or "" for e in events if e.choices)
    assert text == "At home."
    assert events[-1].usage is not None


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_to_a_part_of_a_text_says_so(*, stream: bool) -> None:
    text = "What was she given against it? " + "Nothing happened on that day. " * 300
    async with (
        served("financial.pan", local=SmallLocal()) as url,
        http() as client,
        client.post(
            f"{url}/v1/chat/completions",
            json={"messages": [{"role": "user", "content": text}], "stream": stream},
        ) as response,
    ):
        body = await response.text()
    if stream:
        events = [line[6:] for line in body.split("\n\n") if line.startswith("data: {")]
        choices = [json.loads(each)["choices"][0] for each in events]
        said = "".join(each["delta"].get("content") or "" for each in choices)
    else:
        choices = json.loads(body)["choices"]
        said = choices[0]["message"]["content"]
    assert re.fullmatch(rf"\[read [0-9,]+ of {len(text):,} tokens\]\n\nAt home\.", said)
    assert choices[-1]["finish_reason"] == "length"


async def test_a_picture_is_refused_in_the_openai_package() -> None:
    local, enclave = ScriptedLocal(), MemoryEnclave()
    async with (
        served(local=local, enclave=enclave) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused") as client,
    ):
        with pytest.raises(openai.BadRequestError, match="a picture") as refused:
            await client.chat.completions.create(
                model="curtilage",
                messages=[
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "What is on it?"},
                            {"type": "image_url", "image_url": {"url": "data:,x"}},
                        ],
                    }
                ],
            )
    assert refused.value.param == "messages[0].content[1]"
    assert refused.value.code == "unsupported_content"
    assert refused.value.type == "invalid_request_error"
    assert (local.asked, enclave.requests) == ([], [])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_fallback_is_reported_in_the_body(*, stream: bool) -> None:
    enclave = MemoryEnclave(Reply(content=b""))
    body = {"messages": ASK, "stream": stream}
    async with (
        served(enclave=enclave, local=ScriptedLocal()) as url,
        http() as session,
        session.post(f"{url}/v1/chat/completions", json=body) as response,
    ):
        text = await response.text()
    events = text.split("data: ")[1:-1] if stream else [text]
    bodies = [json.loads(event) for event in events]
    assert {each["model"] for each in bodies} == {"scripted"}
    (reported,) = {each["system_fingerprint"] for each in bodies}
    assert reported.startswith("curtilage:local:fallback:")
    assert response.headers["x-curtilage-fallback"] == reported.rpartition(":")[2]


async def test_the_body_names_the_release_that_answered() -> None:
    async with (
        served(enclave=MemoryEnclave(), local=ScriptedLocal()) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused") as client,
    ):
        answer = await client.chat.completions.create(
            model="curtilage", messages=[{"role": "user", "content": "hello"}]
        )
    assert answer.model == "curtilage-enclave/0.0.1"
    assert answer.system_fingerprint == "curtilage:enclave:emulated-sev-snp"


async def test_a_cut_stream_raises_in_the_openai_package() -> None:
    enclave = MemoryEnclave(Reply(content=sse(chunk("From "), done=False)))
    async with (
        served(enclave=enclave) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused") as client,
    ):
        stream = await client.chat.completions.create(
            model="curtilage",
            messages=[{"role": "user", "content": "hello"}],
            stream=True,
        )
        with pytest.raises(openai.APIError, match="incomplete"):
            _ = [event async for event in stream]


async def test_a_cut_stream_has_no_end_mark() -> None:
    enclave = MemoryEnclave(Reply(content=sse(chunk("From "), done=False)))
    async with served(enclave=enclave) as url, http() as session:
        body = {"messages": ASK, "stream": True}
        async with session.post(f"{url}/v1/chat/completions", json=body) as response:
            text = await response.text()
    assert "[DONE]" not in text
    assert "answer_incomplete" in text


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b'{"messages": []}', {}, 400),
        (b" " * (2 * 1024 * 1024), {}, 413),
        (b"{}", {"Content-Type": "text/plain"}, 400),
        (b"{}", {"Content-Encoding": "gzip"}, 400),
        (b"{}", {"Host": "evil.example"}, 403),
        (b"{}", {"Origin": "https://evil.example"}, 403),
        (b"{}", {"Origin": "null"}, 403),
        (b"{}", {"Host": "[::1"}, 403),
        (b"{}", {"Host": "evil.example@127.0.0.1"}, 403),
        (b"{}", {"Host": "127.0.0.1.evil.example"}, 403),
        (b"{}", {"Origin": "http://localhost.evil.example"}, 403),
        (b"{}", {"Sec-Fetch-Site": "cross-site"}, 403),
        (b"{}", {"Sec-Fetch-Site": "Cross-Site"}, 403),
        (b"{}", {"Sec-Fetch-Site": " CROSS-SITE"}, 403),
        (b"{}", {"Sec-Fetch-Site": "same-origin, cross-site"}, 403),
    ],
    ids=[
        "cut",
        "none",
        "large",
        "type",
        "gzip",
        "host",
        "origin",
        "null-origin",
        "half-host",
        "user-host",
        "longer-host",
        "longer-origin",
        "cross-site",
        "cross-site-capitals",
        "cross-site-shouted",
        "cross-site-listed",
    ],
)
async def test_a_wrong_request_is_reported(
    body: bytes, headers: dict[str, str], status: int
) -> None:
    async with served(local=ScriptedLocal()) as url, http() as session:
        sent = {"Content-Type": "application/json", **headers}
        async with session.post(
            f"{url}/v1/chat/completions", data=io.BytesIO(body), headers=sent
        ) as response:
            assert response.status == status
            error = (await response.json())["error"]
        assert error["message"]
        assert (status, error["code"]) in REFUSALS


async def test_a_local_origin_is_served() -> None:
    async with (
        served(local=ScriptedLocal()) as url,
        http() as session,
        session.post(
            f"{url}/v1/chat/completions",
            json={"messages": ASK},
            headers={
                "Origin": "http://localhost:3000",
                "Sec-Fetch-Site": "Same-Site",
            },
        ) as response,
    ):
        assert response.status == 200


async def test_no_answerer_is_an_honest_error() -> None:
    async with (
        served("financial.pan") as url,
        http() as session,
        session.post(f"{url}/v1/chat/completions", json={"messages": ASK}) as response,
    ):
        assert response.status == 503
        text = await response.text()
    assert "must stay here" in text
    assert CANARY not in text


@pytest.mark.parametrize("stream", [False, True])
async def test_feedback_on_an_answer_is_accepted_once(*, stream: bool) -> None:
    counts = Counts()
    telemetry.use(counts.telemetry)
    async with (
        served(enclave=MemoryEnclave()) as url,
        http() as client,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused") as chats,
    ):
        answer_id = await _answer_id(chats, stream=stream)
        word = {"id": answer_id, "good": False}
        said = await client.post(f"{url}{openai_fields.FEEDBACK_PATH}", json=word)
        assert said.status == 200
        assert await said.json() == {"object": "curtilage.feedback", "good": False}
        again = await client.post(f"{url}{openai_fields.FEEDBACK_PATH}", json=word)
        assert again.status == 400
        assert (await again.json())["error"]["param"] == "id"
    telemetry.use(None)
    assert counts.of("feedback") == {"bad enclave": 1}


async def _answer_id(client: openai.AsyncOpenAI, *, stream: bool) -> str:
    if not stream:
        whole = await client.chat.completions.create(
            model="curtilage", messages=[{"role": "user", "content": "hello"}]
        )
        return whole.id
    chunks = await client.chat.completions.create(
        model="curtilage", messages=[{"role": "user", "content": "hello"}], stream=True
    )
    (answer_id,) = {chunk.id async for chunk in chunks}
    return answer_id


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"good": True}, "id"),
        ({"id": 7, "good": True}, "id"),
        ({"id": CANARY, "good": True}, "id"),
        ({"id": "chatcmpl-0", "good": 1}, "good"),
        ({"id": "chatcmpl-0", "good": True, CANARY: 1}, None),
        ([CANARY], None),
    ],
)
async def test_a_wrong_word_is_reported(body: object, param: str | None) -> None:
    async with served(enclave=MemoryEnclave()) as url, http() as client:
        said = await client.post(f"{url}{openai_fields.FEEDBACK_PATH}", json=body)
        assert said.status == 400
        text = await said.text()
    assert json.loads(text)["error"]["param"] == param
    assert CANARY not in text


async def test_a_word_is_json_and_nothing_that_a_page_may_post() -> None:
    async with served(enclave=MemoryEnclave()) as url, http() as client:
        form = {"Content-Type": "text/plain"}
        said = await client.post(
            f"{url}{openai_fields.FEEDBACK_PATH}", data=b"{}", headers=form
        )
        assert said.status == 400
        assert "content type" in await said.text()


async def test_other_paths_and_methods_are_reported() -> None:
    async with served(local=ScriptedLocal()) as url, http() as session:
        for path in ("/", "/v1/embeddings", "/v1/models/other"):
            async with session.get(url + path) as response:
                assert response.status in {400, 404}
                assert (await response.json())["error"]
        async with session.get(f"{url}/v1/chat/completions") as response:
            assert response.status == 405
            assert (await response.json())["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize("demonstration", [False, True])
async def test_a_demonstration_model_is_marked(*, demonstration: bool) -> None:
    local = ScriptedLocal()
    if demonstration:
        embedded = known("default")
        assert embedded is not None
        local.digests = (embedded.sha256, "00")
    expected = {"local_model": "scripted", "demonstration": demonstration}
    async with (
        served(local=local) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused") as client,
    ):
        (listed,) = (await client.models.list()).data
        asked = await client.models.retrieve("curtilage")
    for each in (listed, asked):
        assert each.model_extra == {"curtilage": expected}


async def test_without_a_local_model_nothing_is_marked() -> None:
    async with (
        served() as url,
        http() as session,
        session.get(f"{url}/v1/models/curtilage") as response,
    ):
        reported = await response.json()
    assert reported["curtilage"] == {"local_model": "none", "demonstration": False}


async def test_for_another_model_the_error_lists_the_models() -> None:
    async with (
        served(local=ScriptedLocal()) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused") as client,
    ):
        for ask in (
            lambda: client.models.retrieve(CANARY),
            lambda: client.chat.completions.create(
                model=CANARY, messages=[{"role": "user", "content": "hello"}]
            ),
        ):
            with pytest.raises(openai.NotFoundError, match="curtilage") as refused:
                await ask()
            assert (refused.value.code, refused.value.param) == (
                "model_not_found",
                "model",
            )
            assert CANARY not in str(refused.value)


ALIASES = {"gpt-4o-mini": "small", "gpt-4o": "curtilage", "openai/o3": "enclave"}


async def test_models_by_name_are_listed_and_answer() -> None:
    async with (
        served(
            local=ScriptedLocal(),
            enclave=MemoryEnclave(),
            named=named_models("small", aliases=ALIASES),
        ) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused") as client,
    ):
        listed = {each.id: each.model_extra async for each in client.models.list()}
        usual = {"local_model": "scripted", "demonstration": False}
        assert listed == {
            "curtilage": {"curtilage": usual},
            "gpt-4o": {"curtilage": {"alias_of": "curtilage", **usual}},
            "gpt-4o-mini": {
                "curtilage": {
                    "alias_of": "small",
                    "local_model": "small-file",
                    "demonstration": False,
                }
            },
            "openai/o3": {"curtilage": {"alias_of": "enclave"}},
            "small": {
                "curtilage": {"local_model": "small-file", "demonstration": False}
            },
        }
        for name, about in listed.items():
            assert (await client.models.retrieve(name)).model_extra == about
        for name, said in (
            ("small", "By small"),
            ("gpt-4o-mini", "By small"),
            ("gpt-4o", "From afar."),
            ("openai/o3", "From afar."),
        ):
            answer = await client.chat.completions.create(
                model=name, messages=[{"role": "user", "content": "hello"}]
            )
            assert answer.choices[0].message.content == said
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve(CANARY)


async def test_with_the_catch_all_no_name_is_unknown_and_none_is_repeated() -> None:
    async with (
        served(named=named_models("small", aliases={"*": "small"})) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused") as client,
    ):
        listed = [each.id async for each in client.models.list()]
        assert listed == ["curtilage", "small"]
        assert (await client.models.retrieve(CANARY)).id == "*"
        answer = await client.chat.completions.create(
            model=CANARY, messages=[{"role": "user", "content": "hello"}]
        )
        assert answer.choices[0].message.content == "By small"
        assert answer.model == "small-file"


async def test_for_another_path_the_error_lists_the_paths() -> None:
    async with (
        served(local=ScriptedLocal()) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused") as client,
    ):
        with pytest.raises(openai.NotFoundError, match="chat/completions") as refused:
            await client.embeddings.create(model="curtilage", input="hello")
    assert refused.value.code == "not_found"
    assert "docs/openai-api.md" in str(refused.value)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("found", [(), ("financial.pan",)])
async def test_dropped_fields_are_listed_by_name(
    found: tuple[str, ...], *, stream: bool
) -> None:
    local, enclave = ScriptedLocal(), MemoryEnclave()
    part = {"type": "text", "text": "hello", "cache_control": {"type": CANARY}}
    body = {
        "messages": [{"role": "user", "content": [part], "timestamp": CANARY}],
        "user": CANARY,
        "reasoning_effort": CANARY,
        "metadata": {CANARY: CANARY},
        "verbosity": None,
        "stream": stream,
    }
    async with (
        served(*found, local=local, enclave=enclave) as url,
        http() as session,
        session.post(f"{url}/v1/chat/completions", json=body) as response,
    ):
        assert response.status == 200
        text = await response.text()
    listed = response.headers["x-curtilage-dropped"]
    assert listed == "cache_control, metadata, reasoning_effort, timestamp, user"
    contents = [query.payload().content.decode() for query in local.asked]
    asked = [*map(repr, local.asked), *contents]
    assert CANARY not in f"{text} {response.headers} {asked} {enclave.requests}"
    assert [message.content for query in local.asked for message in query.messages] in (
        [],
        ["hello"],
    )


async def test_dropped_fields_are_listed_with_a_refusal() -> None:
    async with served("financial.pan") as url, http() as session:
        body = {"messages": ASK, "user": CANARY}
        async with session.post(f"{url}/v1/chat/completions", json=body) as response:
            assert response.status == 503
            assert response.headers["x-curtilage-dropped"] == "user"


async def test_a_question_with_nothing_dropped_has_no_list() -> None:
    async with (
        served(local=ScriptedLocal()) as url,
        http() as session,
        session.post(f"{url}/v1/chat/completions", json={"messages": ASK}) as response,
    ):
        assert "x-curtilage-dropped" not in response.headers


async def test_health_names_the_policy() -> None:
    async with (
        served(local=ScriptedLocal()) as url,
        http() as session,
        session.get(f"{url}/healthz") as response,
    ):
        health = json.loads(await response.text())
    assert response.status == 200
    assert (health["status"], health["reasons"]) == ("ok", [])
    assert health["policy"].startswith("sha256:")


@pytest.mark.parametrize(
    ("local", "enclave", "status", "word", "reasons"),
    [
        (True, True, 200, "degraded", [("audit", "audit_failed")]),
        (
            False,
            True,
            503,
            "failing",
            [
                ("client", "no_tier"),
                ("model", "model_missing"),
                ("audit", "audit_failed"),
            ],
        ),
    ],
)
async def test_health_says_what_is_wrong(
    local: bool,
    enclave: bool,
    status: int,
    word: str,
    reasons: list[tuple[str, str]],
) -> None:
    async with (
        served(
            local=ScriptedLocal() if local else None,
            enclave=MemoryEnclave() if enclave else None,
            audit=MemoryTrail(broken=True),
        ) as url,
        http() as session,
        session.get(f"{url}/healthz") as response,
    ):
        health = json.loads(await response.text())
    assert (response.status, health["status"]) == (status, word)
    said = [(each["part"], each["reason"]) for each in health["reasons"]]
    assert said == reasons
    there = {each["kind"]: each["available"] for each in health["tiers"]}
    assert there == {"in_process": local, "attested": False}


async def test_a_client_that_disconnects_stops_the_model() -> None:
    local = SlowLocal()
    async with served("financial.pan", local=local) as url, http() as session:
        body = {"messages": ASK, "stream": True}
        async with session.post(f"{url}/v1/chat/completions", json=body) as response:
            await response.content.readany()
            response.close()
        async with asyncio.timeout(20):
            await local.stopped_event.wait()


async def test_a_client_that_disconnects_is_not_visible_on_the_wire() -> None:
    enclave = MemoryEnclave()
    enclave.held = 300
    async with served(enclave=enclave) as url, http() as session:
        body = {"messages": ASK, "stream": True}
        async with session.post(f"{url}/v1/chat/completions", json=body) as response:
            await response.content.readany()
            response.close()
        await asyncio.sleep(0.05)
        assert not enclave.left.is_set()
        enclave.go.set()
        async with asyncio.timeout(5):
            await enclave.ended.wait()


async def test_an_unforeseen_error_reveals_nothing() -> None:
    async with (
        served("financial.pan", local=BrokenLocal()) as url,
        http() as session,
        session.post(f"{url}/v1/chat/completions", json={"messages": ASK}) as response,
    ):
        assert response.status == 500
        assert CANARY not in await response.text()


async def test_only_loopback_is_served() -> None:
    session = Session(
        ClientParts(
            policy=load_profile("default"),
            inspector=ScriptedInspector(),
            local=ScriptedLocal(),
            transport=None,
            keys=key_store(),
            audit=MemoryTrail(),
        )
    )
    for host in ("0.0.0.0", "example.org", "::"):  # noqa: S104 - refused
        with pytest.raises(ConfigError):
            async with gateway.serving(session, host, 0):
                pass


async def test_a_taken_port_is_reported() -> None:
    async with served(local=ScriptedLocal()) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(ListenError, match="--port"):
            async with served_again(port):
                pass


@asynccontextmanager
async def served_again(port: int) -> AsyncGenerator[int]:
    session = Session(
        ClientParts(
            policy=load_profile("default"),
            inspector=ScriptedInspector(),
            local=ScriptedLocal(),
            transport=None,
            keys=key_store(),
            audit=MemoryTrail(),
        )
    )
    async with gateway.serving(session, "127.0.0.1", port) as bound:
        yield bound


class SlowLocal(ScriptedLocal):
    """Answers a word every few milliseconds, for a long time."""

    def __init__(self) -> None:
        super().__init__(words=["word "] * 100_000)
        self.stopped_event = asyncio.Event()

    @override
    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        try:
            async for event in super().generate(query):
                await asyncio.sleep(0.002)
                yield event
        finally:
            self.stopped_event.set()


class BrokenLocal(ScriptedLocal):
    """Fails in an unexpected way."""

    @override
    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        if query.messages:
            raise RuntimeError(query.messages[0].content)
        yield Delta(text="")


@pytest.mark.parametrize("broken", [False, True])
async def test_after_a_second_of_silence_there_is_a_sign_of_life(
    *, broken: bool
) -> None:
    """Its status was sent by then; a later error is in the stream."""
    local = Waiting(broken=broken)
    async with (
        served("financial.pan", local=local) as url,
        http() as client,
        client.post(
            f"{url}/v1/chat/completions", json={"messages": ASK, "stream": True}
        ) as response,
    ):
        assert response.status == 200
        assert await response.content.readline() == b": asking_here\n"
        local.go.set()
        rest = (await response.content.read()).decode()
        assert "x-curtilage-route" not in response.headers
        assert ('"route": "local"' in rest) is not broken
        assert ("data: [DONE]" in rest) is not broken
        assert ('"error"' in rest) is broken
        assert CANARY not in rest
