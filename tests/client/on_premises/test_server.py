"""The client of an on-premises server, against servers that answer and that do not."""

import asyncio
import json
import logging
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import cast

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from curtilage.client.chat.answer import Delta, Finished
from curtilage.client.chat.document import Document
from curtilage.client.chat.options import RoutingOptions
from curtilage.client.chat.query import Message, Query, Settings, ToolCall
from curtilage.client.errors import FailureReason, OnPremisesUnavailableError
from curtilage.client.on_premises.answer_events import MAX_EVENT_BYTES
from curtilage.client.on_premises.reasons import OnPremisesFailure
from curtilage.client.on_premises.settings import on_premises_settings
from curtilage.policy.decision.decide import decide
from curtilage.policy.decision.permit import (
    LIFE_MS,
    OnPremisesPermit,
    PermitRefusal,
    PermitRefusedError,
)
from curtilage.policy.document.load import load_profile
from support.inspections import inspection_of
from support.left_over import Canary, uncollected
from support.on_premises import (
    CANARY,
    DONE,
    LLAMA,
    OLLAMA,
    QUERY,
    VLLM,
    Asked,
    Handler,
    allowed_on_premises,
    asking,
    chunk,
    data,
    on_premises_server,
    says,
    serving,
)
from support.permits import unfinished_permit
from support.relay_certificates import Certificates, make_certificates

API_KEY = "ward-7.0123456789abcdef"
SAID = chunk({"content": "yes"})
OTHER = Query(messages=(Message(role="user", content="another"),))


async def failure(asked: Asked, query: Query = QUERY) -> OnPremisesUnavailableError:
    """Ask in vain; the error contains nothing of request or response."""
    with pytest.raises(OnPremisesUnavailableError) as error:
        await asked.ask(query)
    assert error.value.__cause__ is None
    assert CANARY not in f"{error.value!r} {error.value} {error.value.alone()}"
    return error.value


async def refused(handler: Handler, **waits: float) -> FailureReason:
    async with on_premises_server(handler, **waits) as asked:
        return (await failure(asked)).reason


async def _forever() -> None:
    await asyncio.Event().wait()


# --- what is asked ---------------------------------------------------------------


@pytest.mark.parametrize(
    "server", [VLLM, OLLAMA, LLAMA], ids=["vllm", "ollama", "llama"]
)
async def test_the_answer_is_given_as_it_comes(server: tuple[bytes, ...]) -> None:
    async with on_premises_server(says(*server)) as asked:
        assert asked.server.model_id == "m"
        *deltas, finished = await asked.ask()
    assert "".join(cast("Delta", each).text for each in deltas) == "Hi Ü."
    assert finished == Finished(
        finish_reason="length", prompt_tokens=11, completion_tokens=3
    )


async def test_a_word_is_shown_before_the_next_one_is_said() -> None:
    read = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(SAID)
        await read.wait()
        for event in (chunk({}, finish="stop"), DONE):
            await response.write(event)
        return response

    async with on_premises_server(answer) as asked:
        events = asked.server.generate(asked.permit(), QUERY)
        assert await anext(events) == Delta(text="yes")
        read.set()
        assert [each async for each in events] == [
            Finished(finish_reason="stop", prompt_tokens=0, completion_tokens=0)
        ]


async def test_all_of_the_query_is_asked_and_nothing_else() -> None:
    seen: list[web.BaseRequest] = []
    bodies: list[bytes] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request)
        return await says(*VLLM, seen=bodies)(request)

    query = Query(
        messages=(
            Message(role="developer", content="be brief"),
            Message(role="user", content="Grüße", name="ann"),
        ),
        settings=Settings(
            max_tokens=777, temperature=0.1234, top_p=0.9876, seed=42, stop=("###",)
        ),
    )
    async with on_premises_server(answer) as asked:
        await asked.ask(query)
    assert (seen[0].method, seen[0].path_qs) == ("POST", "/v1/chat/completions")
    # The enclave gets coarser values: an on-premises server gets the exact ones.
    assert json.loads(bodies[0]) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "name": "ann", "content": "Grüße"},
        ],
        "max_tokens": 777,
        "temperature": 0.1234,
        "top_p": 0.9876,
        "seed": 42,
        "stop": ["###"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


TOOL = Document.of({"name": "find", "parameters": {"type": "object"}}, schema=True)
WANTED = Document.of({"type": "json_object"}, schema=True)


async def test_tools_formats_and_several_answers_are_asked_for() -> None:
    bodies: list[bytes] = []
    arguments = Document.of({"who": "Ann"})
    query = Query(
        messages=(
            Message(
                role="assistant",
                content="",
                calls=(ToolCall(number=1, name="find", arguments=arguments),),
            ),
            Message(role="tool", content="nobody", result_of=1),
        ),
        settings=Settings(
            logprobs=True,
            top_logprobs=3,
            presence_penalty=0.125,
            frequency_penalty=-1,
            n=2,
        ),
        tools=(TOOL,),
        tool_choice="required",
        parallel_tool_calls=False,
        response_format=WANTED,
    )
    async with on_premises_server(says(DONE, seen=bodies)) as asked:
        await failure(asked, query)
    body = json.loads(bodies[0])
    function = {"name": "find", "arguments": '{"who":"Ann"}'}
    assert body["messages"] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "nobody", "tool_call_id": "call_1"},
    ]
    assert body["tools"] == [{"type": "function", "function": TOOL.value()}]
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("required", False)
    assert body["response_format"] == {"type": "json_object"}
    assert (body["top_logprobs"], body["n"]) == (3, 2)
    assert (body["presence_penalty"], body["frequency_penalty"]) == (0.125, -1)


CALLING = data(
    {
        "choices": [
            {
                "delta": {
                    "tool_calls": [
                        {"index": 0, "function": {"name": "find", "arguments": "{}"}}
                    ]
                },
                "finish_reason": "tool_calls",
            }
        ]
    }
)


LOSE = Document.of({"name": "lose"}, schema=True)


async def test_a_call_is_answered() -> None:
    query = replace(
        QUERY, tools=(TOOL, LOSE), tool_choice="find", parallel_tool_calls=False
    )
    async with on_premises_server(says(CALLING, DONE)) as asked:
        call, finished = await asked.ask(query)
    assert isinstance(call, Delta)
    assert [each.name for each in call.calls] == ["find"]
    assert isinstance(finished, Finished)


async def test_a_choice_by_name_is_asked_for_as_the_only_tool() -> None:
    bodies: list[bytes] = []
    query = replace(QUERY, tools=(TOOL, LOSE), tool_choice="lose")
    async with on_premises_server(says(DONE, seen=bodies)) as asked:
        await failure(asked, query)
    body = json.loads(bodies[0])
    assert [each["function"] for each in body["tools"]] == [LOSE.value()]
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("required", False)


@pytest.mark.parametrize("choice", ["required", "find"])
async def test_an_answer_without_a_required_call_is_incomplete(choice: str) -> None:
    query = replace(QUERY, tools=(TOOL,), tool_choice=choice)
    server = says(SAID, chunk({}, finish="stop"), DONE)
    async with on_premises_server(server) as asked:
        error = await failure(asked, query)
        await asked.ask(replace(query, tool_choice="auto"))
    assert error.reason is OnPremisesFailure.ANSWER_INCOMPLETE


async def test_a_choice_by_name_is_one_call() -> None:
    found = {"name": "find", "arguments": "{}"}
    calls = [{"index": at, "function": found} for at in range(2)]
    twice = chunk({"tool_calls": calls}, finish="stop")
    query = replace(QUERY, tools=(TOOL,), tool_choice="find")
    async with on_premises_server(says(twice, DONE)) as asked:
        error = await failure(asked, query)
        await asked.ask(replace(query, tool_choice="required"))
    assert error.reason is OnPremisesFailure.ANSWER_BROKEN


async def test_alternatives_that_were_asked_for_are_required() -> None:
    token = {"token": "yes", "logprob": -0.5}
    said = chunk({"content": "yes"}, logprobs={"content": [token]})
    settings = Settings(logprobs=True, top_logprobs=1)
    async with on_premises_server(says(said, DONE)) as asked:
        error = await failure(asked, replace(QUERY, settings=settings))
    assert error.reason is OnPremisesFailure.NO_LOGPROBS


@pytest.mark.parametrize(
    "query",
    [
        QUERY,
        replace(QUERY, tools=(TOOL,), tool_choice="none"),
        replace(QUERY, tools=(LOSE,)),
        replace(QUERY, tools=(TOOL, LOSE), tool_choice="lose"),
    ],
    ids=["no tools", "none chosen", "another", "another chosen"],
)
async def test_a_call_that_was_not_asked_for_is_broken(query: Query) -> None:
    async with on_premises_server(says(CALLING, DONE)) as asked:
        error = await failure(asked, query)
    assert error.reason is OnPremisesFailure.ANSWER_BROKEN


async def test_no_server_is_asked_to_be_deterministic() -> None:
    bodies: list[bytes] = []
    query = replace(QUERY, settings=Settings(deterministic=True))
    async with on_premises_server(says(*VLLM, seen=bodies)) as asked:
        error = await failure(asked, query)
    assert error.reason is OnPremisesFailure.NOT_DETERMINISTIC
    assert bodies == []


async def test_unset_fields_are_not_sent() -> None:
    bodies: list[bytes] = []
    async with on_premises_server(says(*VLLM, seen=bodies)) as asked:
        await asked.ask()
    assert json.loads(bodies[0]).keys() == {
        *("model", "messages", "max_tokens", "temperature", "top_p"),
        *("stream", "stream_options"),
    }


async def test_log_probabilities_are_asked_for_and_given() -> None:
    bodies: list[bytes] = []
    listed = {"content": [{"token": "yes", "logprob": -0.5}]}
    said = chunk({"content": "yes"}, logprobs=listed)
    query = Query(messages=QUERY.messages, settings=Settings(logprobs=True))
    server = says(said, chunk({}, finish="stop"), DONE, seen=bodies)
    async with on_premises_server(server) as asked:
        assert (await asked.ask(query))[0] == Delta(
            text="yes", logprobs=(("yes", -0.5),)
        )
    assert json.loads(bodies[0])["logprobs"] is True


async def test_the_request_identifies_no_one() -> None:
    seen: list[web.BaseRequest] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request)
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Set-Cookie": "who=ann"}
        )
        await response.prepare(request)
        await response.write(b"".join(VLLM))
        return response

    async with on_premises_server(answer) as asked:
        await asked.ask()
        await asked.ask()
    for request in seen:
        assert {*request.headers} <= {
            *("Host", "Content-Type", "Content-Length", "Connection")
        }


async def test_the_key_is_sent_to_the_server_only(tmp_path: Path) -> None:
    seen: list[str] = []
    path = tmp_path / "on-premises.key"
    path.write_text(API_KEY)
    path.chmod(0o644)

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.headers["Authorization"])
        return await says(*VLLM)(request)

    async with serving(answer) as address:
        settings = on_premises_settings(
            address=address, model="m", key_file=path, plain_loopback=True
        )
        async with asking(settings) as asked:
            await asked.ask()
    assert seen == [f"Bearer {API_KEY}"]
    assert API_KEY not in repr(settings)
    assert settings.readable_by_others == path


async def test_a_proxy_of_the_environment_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked_proxy: list[bytes] = []
    async with serving(says(*VLLM, seen=asked_proxy)) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.removesuffix("/v1"))
        monkeypatch.delenv("no_proxy", raising=False)
        async with on_premises_server(says(*OLLAMA)) as asked:
            await asked.ask()
    assert asked_proxy == []


async def test_several_ask_at_a_time() -> None:
    both = asyncio.Barrier(2)

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        await both.wait()
        return await says(*VLLM)(request)

    async with on_premises_server(answer) as asked:
        first, second = await asyncio.gather(asked.ask(), asked.ask(OTHER))
    assert first == second


async def test_closing_the_iterator_closes_the_connection() -> None:
    gone = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(SAID)
        try:
            await _forever()
        finally:
            gone.set()
        return response

    async with on_premises_server(answer) as asked:
        events = asked.server.generate(asked.permit(), QUERY)
        await anext(events)
        await events.aclose()
        await gone.wait()


async def test_it_can_be_closed_before_it_was_used_and_twice() -> None:
    async with on_premises_server(says(*VLLM)) as asked:
        await asked.server.close()
        await asked.ask()
        await asked.server.close()


# --- who may ask -----------------------------------------------------------------


async def test_without_a_permit_no_server_is_asked() -> None:
    seen: list[bytes] = []
    inspection = inspection_of(
        findings=(), payload_digest=QUERY.payload_digest(), messages=1
    )
    decision = decide(load_profile("default").rulebook, inspection)
    assert decision.allowed is not None
    async with on_premises_server(says(*VLLM, seen=seen)) as asked:
        enclave = asked.desk.mint(
            decision.allowed,
            tier="enclave",
            enclave_key_digest=asked.server.digest,
            release_digest=bytes(32),
            attempt=0,
            now_ms=asked.clock[0],
        )
        for wrong in (
            *(None, True, enclave, decision.allowed, allowed_on_premises()),
            unfinished_permit(),
        ):
            events = asked.server.generate(cast("OnPremisesPermit", wrong), QUERY)
            with pytest.raises(TypeError):
                await anext(events)
    assert seen == []


async def _refusal(
    asked: Asked, permit: OnPremisesPermit, query: Query = QUERY
) -> PermitRefusal:
    with pytest.raises(PermitRefusedError) as error:
        await anext(asked.server.generate(permit, query))
    return error.value.refusal


async def test_a_permit_is_for_one_text() -> None:
    seen: list[bytes] = []
    async with on_premises_server(says(*VLLM, seen=seen)) as asked:
        refusal = await _refusal(asked, asked.permit(), OTHER)
    assert (refusal, seen) == (PermitRefusal.PAYLOAD, [])


async def test_a_permit_is_for_one_server() -> None:
    seen: list[bytes] = []
    server = says(*VLLM, seen=seen)
    async with on_premises_server(server) as asked, serving(server) as address:
        settings = on_premises_settings(address=address, model="m", plain_loopback=True)
        async with asking(settings) as other:
            elsewhere = replace(other, desk=asked.desk).permit()
        refusal = await _refusal(asked, elsewhere)
    assert (refusal, seen) == (PermitRefusal.SERVER, [])


async def test_a_permit_is_valid_once_even_without_an_answer() -> None:
    seen: list[bytes] = []

    async def busy(request: web.BaseRequest) -> web.Response:
        seen.append(await request.read())
        return web.Response(status=503)

    async with on_premises_server(busy) as asked:
        permit = asked.permit()
        with pytest.raises(OnPremisesUnavailableError):
            await anext(asked.server.generate(permit, QUERY))
        assert await _refusal(asked, permit) is PermitRefusal.USED
    assert len(seen) == 1


async def test_a_permit_ends() -> None:
    seen: list[bytes] = []
    async with on_premises_server(says(*VLLM, seen=seen)) as asked:
        permit = asked.permit()
        asked.clock[0] += LIFE_MS
        refusal = await _refusal(asked, permit)
    assert (refusal, seen) == (PermitRefusal.EXPIRED, [])


async def test_text_without_utf8_is_refused_and_not_reported() -> None:
    seen: list[bytes] = []
    broken = Query(messages=(Message(role="user", content=f"{CANARY}\ud800"),))
    async with on_premises_server(says(*VLLM, seen=seen)) as asked:
        with pytest.raises(OnPremisesUnavailableError) as error:
            await anext(asked.server.generate(asked.permit(), broken))
    assert error.value.reason is OnPremisesFailure.REFUSED
    assert CANARY not in f"{error.value!r} {error.value}"
    assert error.value.__suppress_context__
    assert seen == []


# --- what is no answer -----------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, OnPremisesFailure.REFUSED),
        (401, OnPremisesFailure.DENIED),
        (403, OnPremisesFailure.DENIED),
        (404, OnPremisesFailure.MODEL_MISSING),
        (405, OnPremisesFailure.MODEL_MISSING),
        (413, OnPremisesFailure.REFUSED),
        (429, OnPremisesFailure.BUSY),
        (500, OnPremisesFailure.FAILED),
        (502, OnPremisesFailure.UNREACHABLE),
        (503, OnPremisesFailure.BUSY),
        (504, OnPremisesFailure.LATE),
        (204, OnPremisesFailure.REFUSED),
    ],
)
async def test_every_other_status_is_a_reason(
    status: int, expected: FailureReason
) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        # Servers quote what they refuse.
        return web.Response(
            status=status,
            reason=CANARY,
            body=b"" if status == 204 else await request.read(),
            headers={"X-Asked": CANARY},
        )

    async with on_premises_server(answer) as asked:
        error = await failure(asked)
    assert error.reason is expected
    named = expected is OnPremisesFailure.REFUSED
    assert error.code == (str(status) if named else None)


async def test_a_text_beyond_the_servers_context_is_its_own_reason() -> None:
    numbers = {"n_prompt_tokens": 900, "n_ctx": 512}
    body = {"error": {"type": "exceed_context_size_error", **numbers}}

    async def answer(_request: web.BaseRequest) -> web.Response:
        return web.json_response(body, status=400)

    async with on_premises_server(answer) as asked:
        error = await failure(asked)
    assert error.reason is OnPremisesFailure.TOO_LONG
    assert error.limit_tokens == 512


@pytest.mark.parametrize(
    ("said", "noted"),
    [
        *(("0", 0), ("7", 7), ("10", 10), ("11", None), ("3600", None), (None, None)),
        *(("-1", None), ("1.5", None), ("٣", None), (CANARY, None), ("9" * 5000, None)),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
    ],
)
async def test_how_long_it_is_busy_is_noted(
    said: str | None, noted: int | None
) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        del request
        headers = {} if said is None else {"Retry-After": said}
        return web.Response(status=429, headers=headers)

    async with on_premises_server(answer) as asked:
        error = await failure(asked)
    assert (error.reason, error.retry_after_s) == (
        OnPremisesFailure.BUSY,
        noted,
    )
    assert error.alone().retry_after_s == noted


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed(status: int) -> None:
    elsewhere: list[bytes] = []
    async with serving(says(*VLLM, seen=elsewhere)) as other:

        async def answer(request: web.BaseRequest) -> web.Response:
            del request
            location = f"{other}/chat/completions"
            return web.Response(status=status, headers={"Location": location})

        assert await refused(answer) is OnPremisesFailure.REFUSED
    assert elsewhere == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "application/json"},
        {"Content-Type": "text/html"},
        {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"},
    ],
)
async def test_a_body_without_events_is_broken(headers: dict[str, str]) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        await response.write(b"".join(VLLM))
        return response

    assert await refused(answer) is OnPremisesFailure.ANSWER_BROKEN


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([SAID], OnPremisesFailure.ANSWER_INCOMPLETE),
        ([SAID, chunk({}, finish="stop")], OnPremisesFailure.ANSWER_INCOMPLETE),
        ([*VLLM[:-1], b"data: [DO"], OnPremisesFailure.ANSWER_INCOMPLETE),
        ([], OnPremisesFailure.ANSWER_INCOMPLETE),
        (
            [SAID, f"data: {CANARY}\n\n".encode()],
            OnPremisesFailure.ANSWER_BROKEN,
        ),
        ([b"x" * (MAX_EVENT_BYTES + 1)], OnPremisesFailure.ANSWER_BROKEN),
        ([SAID, b'data: {"error": {}}\n\n'], OnPremisesFailure.FAILED),
        # As llama.cpp's server reported errors until 2025: in a field of that name.
        ([SAID, b"error: {}\n\n"], OnPremisesFailure.ANSWER_INCOMPLETE),
    ],
)
async def test_an_incomplete_answer_is_reported(
    events: list[bytes], expected: FailureReason
) -> None:
    assert await refused(says(*events)) is expected


@pytest.mark.parametrize("begun", [False, True])
async def test_a_lost_connection_is_reported(begun: bool) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        if begun:
            await response.prepare(request)
            await response.write(SAID)
        assert request.transport is not None
        request.transport.abort()
        return response

    incomplete = OnPremisesFailure.ANSWER_INCOMPLETE
    expected = incomplete if begun else OnPremisesFailure.UNREACHABLE
    assert await refused(answer) is expected


async def test_malformed_http_is_broken() -> None:
    async def handle(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"{CANARY}\r\n\r\n".encode())
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        settings = on_premises_settings(
            address=f"http://127.0.0.1:{port}/v1", model="m", plain_loopback=True
        )
        async with asking(settings) as asked:
            assert (await failure(asked)).reason is OnPremisesFailure.ANSWER_BROKEN


def _slow(*begins: bytes, goes_on: bytes = b"") -> Handler:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in begins:
            await response.write(event)
        while goes_on:
            await response.write(goes_on)
            await asyncio.sleep(0.01)
        await _forever()
        return response

    return answer


async def test_a_silent_server_is_late() -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        del request
        await _forever()
        raise AssertionError

    assert await refused(answer, first_s=0.2) is OnPremisesFailure.LATE
    assert await refused(_slow(), first_s=0.2) is OnPremisesFailure.LATE


async def test_comments_are_no_answer() -> None:
    server = _slow(goes_on=b": alive\n\n")
    assert await refused(server, first_s=0.2) is OnPremisesFailure.LATE


async def test_a_server_that_stops_in_the_middle_is_late() -> None:
    async with on_premises_server(_slow(SAID, goes_on=b":\n\n"), stall_s=0.2) as asked:
        events = asked.server.generate(asked.permit(), QUERY)
        assert await anext(events) == Delta(text="yes")
        with pytest.raises(OnPremisesUnavailableError) as error:
            await anext(events)
    assert error.value.reason is OnPremisesFailure.LATE


async def test_a_model_that_thinks_has_begun() -> None:
    """From then on it may pause, and need not have said a word."""
    server = _slow(chunk({"reasoning_content": "hm"}))
    assert await refused(server, first_s=60, stall_s=0.2) is OnPremisesFailure.LATE


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"choices":[]}\n\n',
        b"data: {}\n\n",
        chunk({"role": "assistant"}),
        chunk({"content": ""}),
        chunk({"content": None, "reasoning_content": ""}),
        b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n',
    ],
)
async def test_events_without_text_are_no_answer(event: bytes) -> None:
    async with asyncio.timeout(20):
        server = _slow(goes_on=event)
        reason = await refused(server, first_s=0.2, stall_s=0.2)
        assert reason is OnPremisesFailure.LATE
        # Nor do they lengthen a pause that came later.
        server = _slow(SAID, goes_on=event)
        reason = await refused(server, first_s=60, stall_s=0.2)
        assert reason is OnPremisesFailure.LATE


async def test_events_without_text_leave_the_first_word_its_time() -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in (chunk({"role": "assistant"}), SAID, DONE):
            await response.write(event)
            await asyncio.sleep(0.2)
        await _forever()
        return response

    async with on_premises_server(answer, first_s=60, stall_s=0.05) as asked:
        events = asked.server.generate(asked.permit(), QUERY)
        assert await anext(events) == Delta(text="yes")
        await events.aclose()


@pytest.mark.parametrize("said", [SAID, chunk({"reasoning_content": "hm"})])
@pytest.mark.parametrize(
    ("options", "total_s"),
    [
        (RoutingOptions(), 0.02),
        (RoutingOptions(total_ms=20), 60),
        (RoutingOptions(total_ms=200, slo_hard=True), 60),
    ],
)
async def test_an_answer_without_end_ends(
    said: bytes, options: RoutingOptions, total_s: float
) -> None:
    """However steadily the server writes; the budget is kept for all of it."""
    query = replace(QUERY, options=options)
    async with on_premises_server(_slow(goes_on=said), total_s=total_s) as asked:
        before = asyncio.get_running_loop().time()
        async with asyncio.timeout(20):
            error = await failure(asked, query)
        took_s = asyncio.get_running_loop().time() - before
    assert error.reason is OnPremisesFailure.LATE
    assert took_s >= 0.15


async def test_a_reader_that_is_slow_costs_the_server_nothing() -> None:
    """Neither its pause nor its budget runs while no reader waits for it."""
    server = says(SAID, SAID, chunk({}, finish="stop"), DONE)
    async with on_premises_server(server, stall_s=0.4, total_s=0.1) as asked:
        seen: list[object] = []
        async for event in asked.server.generate(asked.permit(), QUERY):
            seen.append(event)
            await asyncio.sleep(0.5)
    assert isinstance(seen[-1], Finished)


async def test_an_unreachable_server_is_reported() -> None:
    settings = on_premises_settings(
        address="http://127.0.0.1:9/v1", model="m", plain_loopback=True
    )
    async with asking(settings) as asked:
        assert (await failure(asked)).reason is OnPremisesFailure.UNREACHABLE


async def test_a_hole_costs_the_time_of_a_connection(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as hole:  # it takes, and says nothing
        settings = on_premises_settings(
            address=f"https://localhost:{hole.getsockname()[1]}/v1",
            model="m",
            ca=certificates.authority.read_bytes(),
        )
        async with asking(settings, connect_s=0.2, first_s=60) as asked:
            assert (await failure(asked)).reason is OnPremisesFailure.UNREACHABLE


async def test_nothing_of_it_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said = chunk({"content": CANARY})
    async with on_premises_server(says(said, chunk({}, finish="stop"), DONE)) as asked:
        await asked.ask()
    await refused(says(said))
    ours = [each for each in caplog.records if not each.name.startswith("aiohttp.serv")]
    assert not any(CANARY in each.getMessage() for each in ours)


async def _send(asked: Asked, canary: Canary, name: str) -> None:
    query = Query(messages=(Message(role="user", content=canary.text(name)),))
    with suppress(OnPremisesUnavailableError):
        await asked.ask(query)


async def _leave(asked: Asked, canary: Canary) -> None:
    query = Query(messages=(Message(role="user", content=canary.text("left")),))
    events = asked.server.generate(asked.permit(query), query)
    await anext(events)
    await events.aclose()


async def _as_asked(request: web.BaseRequest) -> web.StreamResponse:
    said = json.loads(await request.read())["messages"][0]["content"]
    how = said.split(":")[1]
    if how == "refused":
        return web.Response(status=400, text=said)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(chunk({"content": said}))
    ends = {
        "answered": chunk({}, finish="stop") + DONE,
        "broken": f"data: {said}\n\n".encode(),
        "cut": b"\n",
    }
    if how not in ends:
        await _forever()
    await response.write(ends[how])
    return response


async def test_nothing_is_kept_of_question_or_answer() -> None:
    """However it ended, and while the client is still open."""
    ended = asyncio.Queue[None]()

    async def noted(request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await _as_asked(request)
        finally:
            ended.put_nowait(None)

    canary = Canary()
    with uncollected():
        async with on_premises_server(noted, stall_s=0.2) as asked:
            for name in ("answered", "refused", "broken", "cut", "late"):
                await _send(asked, canary, name)
            await _leave(asked, canary)
            for _ in range(6):
                await ended.get()
            # The server of this test runs in this process as well, and its end of a
            # connection is gone a few turns of the loop later.
            held = canary.holders()
            for _ in range(100 if held else 0):
                await asyncio.sleep(0.01)
                if not (held := canary.holders()):
                    break
            assert held == {}


# --- TLS -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def pin_of(certificates: Certificates, name: str = "server") -> str:
    pem = (certificates.folder / f"{name}.pem").read_bytes()
    key = x509.load_pem_x509_certificate(pem).public_key()
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return sha256(spki).hexdigest()


@asynccontextmanager
async def behind_tls(
    certificates: Certificates,
    name: str = "server",
    *,
    ca: str = "authority",
    pin: str = "",
    newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> AsyncGenerator[tuple[Asked, list[bytes]]]:
    """Serve as ``name``; yield a client that trusts ``ca`` or ``pin``."""
    seen: list[bytes] = []
    context = certificates.server(name)
    context.maximum_version = newest
    async with serving(says(*VLLM, seen=seen), tls=context) as address:
        settings = on_premises_settings(
            address=address,
            model="m",
            ca=(certificates.folder / f"{ca}.pem").read_bytes() if ca else b"",
            spki_sha256=pin,
        )
        async with asking(settings) as asked:
            yield asked, seen


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_the_named_authority_is_trusted(
    certificates: Certificates, newest: ssl.TLSVersion
) -> None:
    async with behind_tls(certificates, newest=newest) as (asked, seen):
        await asked.ask()
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("name", "ca"),
    [
        ("untrusted", "authority"),
        ("server", "stranger"),
        ("misnamed", "authority"),
        ("expired", "authority"),
    ],
)
async def test_no_other_authority_is_trusted(
    certificates: Certificates, name: str, ca: str
) -> None:
    async with behind_tls(certificates, name, ca=ca) as (asked, seen):
        assert (await failure(asked)).reason is OnPremisesFailure.UNTRUSTED
    assert seen == []


@pytest.mark.parametrize("name", ["server", "untrusted", "misnamed", "expired"])
async def test_the_server_is_identified_by_its_key(
    certificates: Certificates, name: str
) -> None:
    pin = pin_of(certificates, name)
    async with behind_tls(certificates, name, ca="", pin=pin) as (asked, seen):
        await asked.ask()
    assert len(seen) == 1


async def test_a_server_with_another_key_is_sent_nothing(
    certificates: Certificates,
) -> None:
    """Not a byte, which the server's HTTP could not see: so its bytes are counted."""
    said: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        said.put_nowait(await reader.read())
        writer.close()

    context = certificates.server("server")
    made = asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    async with await made as server:
        settings = on_premises_settings(
            address=f"https://localhost:{server.sockets[0].getsockname()[1]}",
            model="m",
            spki_sha256=pin_of(certificates, "untrusted"),
        )
        async with asking(settings) as asked:
            assert (await failure(asked)).reason is OnPremisesFailure.UNTRUSTED
            assert await said.get() == b""


async def test_a_server_without_tls_is_reported(certificates: Certificates) -> None:
    async with serving(says(*VLLM)) as plain:
        settings = on_premises_settings(
            address=plain.replace("http:", "https:"),
            model="m",
            ca=certificates.authority.read_bytes(),
        )
        async with asking(settings) as asked:
            assert (await failure(asked)).reason is OnPremisesFailure.TLS_FAILED


# --- UNIX sockets ----------------------------------------------------------------


async def test_a_socket_is_asked(tmp_path: Path) -> None:
    seen: list[bytes] = []
    path = tmp_path / "vllm.sock"
    settings = on_premises_settings(address=f"unix:{path}", model="m")
    async with serving(says(*VLLM, seen=seen), socket=path), asking(settings) as asked:
        await asked.ask()
    assert len(seen) == 1


async def test_a_socket_that_others_could_have_put_there_is_not(tmp_path: Path) -> None:
    seen: list[bytes] = []
    shared = tmp_path / "shared"
    shared.mkdir()
    path = shared / "vllm.sock"
    async with serving(says(*VLLM, seen=seen), socket=path) as address:
        shared.chmod(0o777)
        async with asking(on_premises_settings(address=address, model="m")) as asked:
            assert (await failure(asked)).reason is OnPremisesFailure.UNTRUSTED
    assert seen == []


async def test_a_missing_socket_is_unreachable(tmp_path: Path) -> None:
    settings = on_premises_settings(address=f"unix:{tmp_path}/vllm.sock", model="m")
    async with asking(settings) as asked:
        assert (await failure(asked)).reason is OnPremisesFailure.UNREACHABLE
