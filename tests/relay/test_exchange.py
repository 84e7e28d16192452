"""The relay from outside: raw bytes in, raw bytes at a fake gateway."""

import asyncio
import contextlib
import socket

import pytest

from support.relay_parts import (
    ANSWER,
    CANARY,
    CHUNKED_ANSWER,
    CHUNKED_REQUEST,
    SEALED,
    FakeGateway,
    MakeRelay,
    Message,
    Running,
    raw_answer,
    raw_request,
    read_message,
    say,
)

TRACKING = (
    "User-Agent",
    "Cookie",
    "Authorization",
    "Proxy-Authorization",
    "Via",
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Real-IP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "True-Client-IP",
    "CF-Connecting-IP",
    "Fly-Client-IP",
    "Traceparent",
    "Tracestate",
    "Baggage",
    "X-Request-ID",
    "X-Correlation-ID",
    "X-B3-TraceId",
    "Accept",
    "Accept-Charset",
    "Accept-Language",
    "Accept-Encoding",
    "DNT",
    "Sec-GPC",
    "Sec-CH-UA",
    "Sec-CH-UA-Platform",
    "Sec-Fetch-Site",
    "From",
    "Cookie2",
    "Client-Cert",
    "Origin",
    "Referer",
    "ETag",
    "If-None-Match",
    "If-Modified-Since",
    "Range",
    "Priority",
    "Keep-Alive",
    "Proxy-Connection",
    "TE",
    "Trailer",
    "X-Unknown",
)
RETURNED = (
    "Set-Cookie",
    "Location",
    "ETag",
    "Alt-Svc",
    "Server-Timing",
    "NEL",
    "Report-To",
    "Via",
    "Server",
    "Traceresponse",
    "Age",
    "Cache-Control",
    "WWW-Authenticate",
    "Retry-After",
    "Proxy-Status",
    "Strict-Transport-Security",
    "X-Accel-Redirect",
    "Warning",
    "X-Unknown",
)
ANSWERED = ["Content-Type", "Content-Length", "Cache-Control", "Server", "Date"]


def problem_status(message: Message) -> int:
    assert message.value("Content-Type") == "application/problem+json"
    assert CANARY.encode() not in message.head + message.body
    return message.status


# What passes


async def test_sealed_bytes_pass_unchanged_both_ways(
    relay: Running, gateway: FakeGateway
) -> None:
    answer = await relay.post()
    (seen,) = gateway.requests
    assert (answer.status, answer.body) == (200, ANSWER)
    assert answer.value("Content-Type") == "message/ohttp-res"
    assert seen.start_line == "POST /.well-known/ohttp-gateway HTTP/1.1"
    assert seen.body == SEALED


async def test_gateway_sees_three_fields_and_a_host(
    relay: Running, gateway: FakeGateway
) -> None:
    fields = [f"{name}: {CANARY}" for name in TRACKING]
    answer = await relay.post("/demo", *fields, "Incremental: ?1")
    (seen,) = gateway.requests
    assert answer.status == 200
    assert seen.names == ["Host", "Content-Type", "Content-Length", "Incremental"]
    assert CANARY.encode() not in seen.head
    assert seen.value("Host") == f"127.0.0.1:{gateway.port}"


async def test_client_sees_no_field_of_the_gateway(
    relay: Running, gateway: FakeGateway
) -> None:
    fields = tuple(f"{name}: {CANARY}" for name in RETURNED)
    gateway.script = say(raw_answer(fields=(*fields, "Date: yesterday")))
    answer = await relay.post()
    assert answer.names == ANSWERED
    assert CANARY.encode() not in answer.head
    assert answer.value("Server") == "curtilage-relay"
    assert answer.value("Cache-Control") == "no-store"
    assert "yesterday" not in answer.head.decode()


async def test_reason_phrase_of_the_gateway_does_not_pass(
    relay: Running, gateway: FakeGateway
) -> None:
    gateway.script = say(raw_answer(status="200 " + "canary"))
    answer = await relay.post()
    assert answer.start_line == "HTTP/1.1 200 OK"


@pytest.mark.parametrize(
    ("fields", "passes"),
    [
        (("Incremental: ?1",), True),
        (("incremental: ?1",), True),
        (("Incremental: ?0",), False),
        (("Incremental: 1",), False),
        (("Incremental: ?1;x=canary",), True),
        (("Incremental: ?1", "Incremental: ?1"), False),
        ((), False),
    ],
    ids=["?1", "lower-case", "?0", "1", "parameter", "twice", "absent"],
)
async def test_incremental_passes_as_exactly_true_or_not_at_all(
    relay: Running, gateway: FakeGateway, fields: tuple[str, ...], *, passes: bool
) -> None:
    gateway.script = say(raw_answer(fields=fields))
    answer = await relay.post("/demo", *fields)
    assert (gateway.requests[0].value("Incremental") == "?1") is passes
    assert (answer.value("Incremental") == "?1") is passes


@pytest.mark.parametrize(
    "target",
    [
        "/demo?canary=1",
        "/demo#canary",
        "/demo?a#b?c",
    ],
)
async def test_query_is_ignored(
    relay: Running, gateway: FakeGateway, target: str
) -> None:
    answer = await relay.post(target)
    (seen,) = gateway.requests
    assert answer.status == 200
    assert seen.start_line == "POST /.well-known/ohttp-gateway HTTP/1.1"
    assert b"canary" not in seen.head


@pytest.mark.parametrize(
    "target",
    [
        "http://relay.example/demo",
        "http://evil.example/demo",
        "HTTPS://evil.example:8443/demo?canary",
        "http://user@evil.example/demo",
        "relay.example:80",
        "*",
        "demo",
    ],
)
async def test_other_forms_of_a_target_are_refused(
    relay: Running, gateway: FakeGateway, target: str
) -> None:
    answer = await relay.post(target)
    assert problem_status(answer) == 400
    assert gateway.requests == []


async def test_http_1_0_is_answered_alike(relay: Running, gateway: FakeGateway) -> None:
    request = raw_request("POST", "/demo", ("Content-Type: message/ohttp-req",), SEALED)
    answer = await relay.send(request.replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert (answer.status, answer.body) == (200, ANSWER)
    assert gateway.requests[0].start_line.endswith("HTTP/1.1")


@pytest.mark.parametrize("side", ["request", "answer"])
async def test_http_1_0_does_not_stream(
    relay: Running, gateway: FakeGateway, side: str
) -> None:
    gateway.script = say(begin_stream() + b"3\r\nabc\r\n0\r\n\r\n")
    fields: tuple[str, ...] = (f"Content-Type: {CHUNKED_REQUEST}",)
    fields += ("Incremental: ?1",) if side == "request" else ()
    request = raw_request("POST", "/demo", fields, SEALED)
    answer = await relay.send(request.replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert problem_status(answer) == 501
    assert answer.value("Proxy-Status") == "relay; error=incremental_refused"
    assert len(gateway.requests) == (0 if side == "request" else 1)


async def test_media_type_is_our_constant_not_the_senders_spelling(
    relay: Running, gateway: FakeGateway
) -> None:
    gateway.script = say(raw_answer(kind="MESSAGE/ohttp-RES"))
    answer = await relay.post(kind="Message/OHTTP-Req")
    assert gateway.requests[0].value("Content-Type") == "message/ohttp-req"
    assert answer.value("Content-Type") == "message/ohttp-res"


@pytest.mark.parametrize("connection", [(), ("Connection: upgrade",)])
async def test_upgrade_is_refused(
    relay: Running, gateway: FakeGateway, connection: tuple[str, ...]
) -> None:
    answer = await relay.post("/demo", *connection, "Upgrade: websocket")
    assert problem_status(answer) == 400
    assert gateway.requests == []


async def test_chunked_request_passes_whole_when_not_incremental(
    relay: Running, gateway: FakeGateway
) -> None:
    head = raw_request(
        "POST",
        "/demo",
        ("Content-Type: message/ohttp-req", "Transfer-Encoding: chunked"),
    )
    answer = await relay.send(
        head + b"3\r\nabc\r\n2\r\nde\r\n0\r\nX-Trailer: x\r\n\r\n"
    )
    assert answer.status == 200
    assert gateway.requests[0].body == b"abcde"
    assert gateway.requests[0].value("Content-Length") == "5"


async def test_every_gateway_is_reached_by_its_own_name_only(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    relay = await make_relay(
        gateways={"a": f"http://127.0.0.1:{gateway.port}", "b": "http://127.0.0.1:1"}
    )
    assert (await relay.post("/a")).status == 200
    assert (await relay.post("/b")).status == 502
    assert (await relay.post("/c")).status == 404


# What is refused before anything goes on


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/d",
        "/dem",
        "/demo/",
        "/demo/x",
        "/Demo",
        "/%64emo",
        "//demo",
        "/../demo",
        "/other/../demo",
        "/demo/../demo",
        "/demo%2F",
        "/.well-known/ohttp-gateway",
        "/" + "x" * 100,
    ],
)
async def test_other_paths_are_not_found(
    relay: Running, gateway: FakeGateway, target: str
) -> None:
    answer = await relay.post(target)
    assert problem_status(answer) == 404
    assert gateway.requests == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *[(method, "/demo") for method in ("GET", "PUT", "HEAD", "OPTIONS", "TRACE")],
        ("DELETE", "/demo"),
        ("PATCH", "/demo"),
        ("POST", "/demo/keys"),
        ("HEAD", "/demo/keys"),
        ("POST", "/demo/bundle"),
        ("POST", "/healthz"),
        ("QUERY", "/demo"),
        ("post", "/demo"),
    ],
)
async def test_other_methods_are_not_allowed(
    relay: Running, gateway: FakeGateway, method: str, path: str
) -> None:
    reader, writer = await relay.connect()
    writer.write(raw_request(method, path, ("Content-Type: message/ohttp-req",), b"x"))
    head = Message(head=await reader.readuntil(b"\r\n\r\n"))
    writer.close()
    assert head.status in ({405, 400} if method in {"QUERY", "post"} else {405})
    if head.status == 405:
        assert head.value("Allow") == ("POST" if path == "/demo" else "GET")
    assert gateway.requests == []


async def test_connect_is_not_allowed(relay: Running, gateway: FakeGateway) -> None:
    answer = await relay.send(b"CONNECT demo:443 HTTP/1.1\r\nHost: demo:443\r\n\r\n")
    assert problem_status(answer) == 405
    assert gateway.requests == []


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("message/ohttp-req; charset=utf-8", 415),
        ("message/ohttp-res", 415),
        ("application/ohttp-keys", 415),
        ("application/octet-stream", 415),
        ("text/plain", 415),
        ("", 415),
    ],
)
async def test_other_media_types_are_refused(
    relay: Running, gateway: FakeGateway, kind: str, status: int
) -> None:
    answer = await relay.post(kind=kind)
    assert problem_status(answer) == status
    assert gateway.requests == []


async def test_missing_or_doubled_media_type_is_refused(
    relay: Running, gateway: FakeGateway
) -> None:
    missing = await relay.send(raw_request("POST", "/demo", (), SEALED))
    doubled = await relay.post("/demo", "Content-Type: message/ohttp-req")
    assert problem_status(missing) == 415
    assert problem_status(doubled) in {400, 415}
    assert gateway.requests == []


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate", "identity", ""])
async def test_content_coding_is_refused(
    relay: Running, gateway: FakeGateway, coding: str
) -> None:
    answer = await relay.post("/demo", f"Content-Encoding: {coding}")
    assert problem_status(answer) == 415
    assert gateway.requests == []


@pytest.mark.parametrize("value", ["100-continue", "banana"])
async def test_expectation_is_refused(
    relay: Running, gateway: FakeGateway, value: str
) -> None:
    head = raw_request("POST", "/demo", (f"Expect: {value}", "Content-Length: 5"))
    answer = await relay.send(head)
    assert problem_status(answer) == 417
    assert gateway.requests == []


async def test_http_2_is_refused(relay: Running, gateway: FakeGateway) -> None:
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)
    answer = await relay.send(preface)
    assert problem_status(answer) == 400
    assert gateway.requests == []


@pytest.mark.parametrize("version", ["HTTP/2.0", "HTTP/0.9", "HTTP/1.2", "HTTP/9.9"])
async def test_other_versions_are_not_spoken(relay: Running, version: str) -> None:
    request = raw_request("POST", "/demo", ("Content-Type: message/ohttp-req",), b"x")
    answer = await relay.send(request.replace(b"HTTP/1.1", version.encode()))
    assert answer.status in ({200, 400} if version == "HTTP/1.2" else {400})
    assert answer.start_line.startswith("HTTP/1.1 ")


async def test_host_is_checked_when_the_configuration_names_one(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    relay = await make_relay(hosts=["relay.example"])
    assert (await relay.post()).status == 200
    request = raw_request("POST", "/demo", ("Content-Type: message/ohttp-req",), b"x")
    for host in (b"evil.example", b"relay.example.evil.example", b"127.0.0.1"):
        answer = await relay.send(request.replace(b"relay.example", host))
        assert problem_status(answer) == 421
    old = request.replace(b"Host: relay.example\r\n", b"")
    assert (await relay.send(old)).status == 400
    old = old.replace(b"HTTP/1.1", b"HTTP/1.0")
    assert (await relay.send(old)).status == 421
    assert len(gateway.requests) == 1


async def test_no_host_is_needed_of_http_1_0(
    relay: Running, gateway: FakeGateway
) -> None:
    request = raw_request("POST", "/demo", ("Content-Type: message/ohttp-req",), b"x")
    old = request.replace(b"Host: relay.example\r\n", b"")
    assert problem_status(await relay.send(old)) == 400
    assert (await relay.send(old.replace(b"HTTP/1.1", b"HTTP/1.0"))).status == 200
    assert len(gateway.requests) == 1


async def test_early_data_is_refused(relay: Running, gateway: FakeGateway) -> None:
    answer = await relay.post("/demo", "Early-Data: 1")
    assert problem_status(answer) == 425
    assert gateway.requests == []


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 3", "Transfer-Encoding: chunked"),
        ("Content-Length: 3", "Content-Length: 3"),
        ("Content-Length: +3",),
        ("Content-Length: 0x3",),
        ("Content-Length: -3",),
        ("Content-Length: 3, 3",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: gzip, chunked",),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked, chunked",),
        ("X-Folded: a\r\n b",),
        ("X-Bare: a\nX-Other: b",),
        ("X-Null: a\0b",),
        ("X-Space : a",),
        ("X-Long: " + "a" * 20_000,),
        ("Host: other.example",),
        tuple(f"X-{number}: a" for number in range(200)),
    ],
)
async def test_malformed_heads_are_refused(
    relay: Running, gateway: FakeGateway, lines: tuple[str, ...]
) -> None:
    fields = ("Content-Type: message/ohttp-req", *lines)
    request = raw_request("POST", "/demo", fields) + b"0\r\n\r\n"
    answer = await relay.send(request)
    assert problem_status(answer) == 400
    assert answer.body == (await relay.send(b"GARBAGE\r\n\r\n")).body
    assert gateway.requests == []


async def test_parser_errors_echo_nothing(relay: Running) -> None:
    answer = await relay.send(b"G\x01 /canary HTTP/1.1\r\ncanary: canary\r\n\r\n")
    assert problem_status(answer) == 400
    assert b"canary" not in answer.head + answer.body
    assert answer.value("Server") == "curtilage-relay"


async def test_broken_chunk_framing_is_refused(
    relay: Running, gateway: FakeGateway
) -> None:
    head = raw_request(
        "POST",
        "/demo",
        ("Content-Type: message/ohttp-req", "Transfer-Encoding: chunked"),
    )
    answer = await relay.send(head + b"3\r\nabc\r\nzz\r\n")
    assert problem_status(answer) == 400
    assert gateway.requests == []


async def test_chunk_framing_that_breaks_later_ends_at_the_deadline(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    relay = await make_relay(limits={"body_timeout_s": 0.3})
    reader, writer = await relay.connect()
    fields = ("Content-Type: message/ohttp-req", "Transfer-Encoding: chunked")
    writer.write(raw_request("POST", "/demo", fields) + b"3\r\nabc\r\n")
    await asyncio.sleep(0.05)
    writer.write(b"zz\r\n")
    async with asyncio.timeout(5):
        answer = await read_message(reader)
        # The deadline's answer, then the connection is over.
        await reader.read()
    writer.close()
    assert problem_status(answer) in {400, 408}
    assert gateway.requests == []


async def test_announced_size_over_the_limit_is_refused_at_once(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    relay = await make_relay(limits={"max_request_bytes": 1000})
    head = raw_request(
        "POST", "/demo", ("Content-Type: message/ohttp-req", "Content-Length: 1001")
    )
    async with asyncio.timeout(8):
        answer = await relay.send(head)
    assert problem_status(answer) == 413
    assert gateway.requests == []
    assert (await relay.post(body=b"x" * 1000)).status == 200


@pytest.mark.parametrize("incremental", [(), ("Incremental: ?1",)])
async def test_chunked_size_over_the_limit_is_refused(
    make_relay: MakeRelay, gateway: FakeGateway, incremental: tuple[str, ...]
) -> None:
    relay = await make_relay(limits={"max_request_bytes": 1000})
    fields = ("Content-Type: message/ohttp-req", "Transfer-Encoding: chunked")
    head = raw_request("POST", "/demo", (*fields, *incremental))
    answer = await relay.send(head + b"3E9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n")
    assert problem_status(answer) == 413
    await asyncio.sleep(0.05)
    assert not any(request.complete for request in gateway.requests)


# What a gateway may say


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
async def test_redirects_are_not_followed_and_do_not_pass(
    relay: Running, gateway: FakeGateway, status: int
) -> None:
    gateway.script = say(
        raw_answer(
            b"" if status == 304 else ANSWER,
            status=f"{status} Moved",
            fields=(f"Location: http://127.0.0.1:{gateway.port}/{CANARY}",),
        )
    )
    answer = await relay.post()
    assert problem_status(answer) == 502
    assert len(gateway.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        raw_answer(kind="text/html"),
        raw_answer(kind="message/ohttp-res; x=canary"),
        raw_answer(kind="application/ohttp-keys"),
        raw_answer(kind=None),
        raw_answer(fields=("Content-Type: message/ohttp-res",)),
        raw_answer(fields=("Content-Encoding: gzip",)),
        raw_answer(status="201 Created"),
        raw_answer(status="206 Partial"),
        raw_answer(b"", status="204 None"),
        b"canary\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: message/ohttp-res\r\n\r\ncanary",
        b"HTTP/1.1 101 Go\r\nUpgrade: canary\r\nConnection: upgrade\r\n\r\ncanary",
        b"HTTP/1.1 103 Hints\r\n\r\n" * 100,
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
    ],
)
@pytest.mark.parametrize("incremental", [(), ("Incremental: ?1",)], ids=["whole", "in"])
async def test_odd_answers_do_not_pass(
    relay: Running,
    gateway: FakeGateway,
    answer: bytes,
    incremental: tuple[str, ...],
) -> None:
    gateway.script = say(answer)
    assert problem_status(await relay.post("/demo", *incremental)) == 502
    assert len(gateway.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 429, 500, 503, 599])
async def test_error_status_passes_with_our_words(
    relay: Running, gateway: FakeGateway, status: int
) -> None:
    gateway.script = say(
        raw_answer(CANARY.encode(), status=f"{status} canary", kind="text/plain")
    )
    answer = await relay.post()
    assert problem_status(answer) == status
    assert b"The gateway refused the request." in answer.body
    assert "canary" not in answer.start_line


@pytest.mark.parametrize("incremental", [(), ("Incremental: ?1",)])
async def test_problem_object_passes(
    relay: Running, gateway: FakeGateway, incremental: tuple[str, ...]
) -> None:
    problem = b'{"type":"https://iana.org/assignments/http-problem-types#ohttp-key"}'
    gateway.script = say(
        raw_answer(problem, status="422 No", kind="application/problem+json")
    )
    answer = await relay.post("/demo", *incremental)
    assert (answer.status, answer.body) == (422, problem)
    assert answer.names == ANSWERED


async def test_long_problem_object_does_not_pass(
    relay: Running, gateway: FakeGateway
) -> None:
    gateway.script = say(
        raw_answer(b"x" * 4097, status="422 No", kind="application/problem+json")
    )
    assert problem_status(await relay.post()) == 502


async def test_informational_answers_are_skipped(
    relay: Running, gateway: FakeGateway
) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: canary\r\n\r\n"
    gateway.script = say(early + raw_answer())
    answer = await relay.post()
    assert (answer.status, answer.body) == (200, ANSWER)
    assert answer.names == ANSWERED


@pytest.mark.parametrize("announced", [True, False])
async def test_oversize_answer_does_not_pass(
    make_relay: MakeRelay, gateway: FakeGateway, *, announced: bool
) -> None:
    relay = await make_relay(limits={"max_answer_bytes": 1000})
    gateway.script = say(raw_answer(b"x" * 1001))
    incremental = ("Incremental: ?1",) if announced else ()
    assert problem_status(await relay.post("/demo", *incremental)) == 502
    gateway.script = say(raw_answer(b"x" * 1000))
    assert (await relay.post("/demo", *incremental)).status == 200


async def test_reset_is_not_retried(relay: Running, gateway: FakeGateway) -> None:
    async def reset(writer: asyncio.StreamWriter, _: Message) -> None:
        writer.transport.abort()
        await asyncio.sleep(0)

    gateway.script = reset
    answer = await relay.post()
    assert problem_status(answer) == 502
    assert len(gateway.requests) == 1


@pytest.mark.parametrize("incremental", [(), ("Incremental: ?1",)])
async def test_a_pooled_connection_that_died_is_not_retried(
    relay: Running, gateway: FakeGateway, incremental: tuple[str, ...]
) -> None:
    assert (await relay.post("/demo", *incremental)).status == 200

    async def reset(writer: asyncio.StreamWriter, _: Message) -> None:
        writer.transport.abort()
        await asyncio.sleep(0)

    gateway.script = reset
    assert problem_status(await relay.post("/demo", *incremental)) == 502
    assert (len(gateway.requests), gateway.connections) == (2, 1)


async def test_unrequested_data_of_a_gateway_reaches_no_client(
    relay: Running, gateway: FakeGateway
) -> None:
    # A second answer behind the first would be the next client's.
    gateway.script = say(raw_answer() + raw_answer(b"canary"))
    assert (await relay.post()).body == ANSWER
    gateway.script = say(raw_answer(b"", status="503 No", kind=None))
    assert (await relay.post()).status == 503
    assert gateway.connections == 2


async def test_unreachable_gateway_is_reported(make_relay: MakeRelay) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    relay = await make_relay(upstream=f"http://127.0.0.1:{port}")
    assert problem_status(await relay.post()) == 502


@pytest.mark.parametrize("incremental", [(), ("Incremental: ?1",)])
async def test_silent_gateway_times_out(
    make_relay: MakeRelay, gateway: FakeGateway, incremental: tuple[str, ...]
) -> None:
    relay = await make_relay(limits={"upstream_read_timeout_s": 0.2})
    gateway.script = say()
    assert problem_status(await relay.post("/demo", *incremental)) == 504
    assert len(gateway.requests) == 1


async def test_cut_answer_is_not_passed_off_as_whole(
    relay: Running, gateway: FakeGateway
) -> None:
    async def cut(writer: asyncio.StreamWriter, _: Message) -> None:
        writer.write(raw_answer()[:-5])
        await writer.drain()
        writer.close()

    gateway.script = cut
    assert problem_status(await relay.post()) == 502


# Streaming


def begin_stream(kind: str = CHUNKED_ANSWER) -> bytes:
    return (
        f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nIncremental: ?1\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    ).encode()


async def test_pieces_pass_back_as_they_come(
    relay: Running, gateway: FakeGateway
) -> None:
    proceed = asyncio.Event()

    async def script(writer: asyncio.StreamWriter, _: Message) -> None:
        writer.write(begin_stream() + b"5\r\nfirst\r\n")
        await proceed.wait()
        writer.write(b"6\r\nsecond\r\n0\r\n\r\n")

    gateway.script = script
    reader, writer = await relay.connect()
    fields = (f"Content-Type: {CHUNKED_REQUEST}", "Incremental: ?1")
    writer.write(raw_request("POST", "/demo", fields, SEALED))
    async with asyncio.timeout(5):
        head = Message(head=await reader.readuntil(b"\r\n\r\n"))
        assert await reader.readexactly(10) == b"5\r\nfirst\r\n"
        proceed.set()
        assert await reader.readexactly(16) == b"6\r\nsecond\r\n0\r\n\r\n"
    writer.close()
    assert head.names == [
        "Content-Type",
        "Transfer-Encoding",
        "Incremental",
        "Cache-Control",
        "Server",
        "Date",
    ]


@pytest.mark.parametrize("ending", ["close", "reset", "silence", "too_long"])
async def test_stream_cut_by_the_gateway_is_cut_for_the_client(
    make_relay: MakeRelay, gateway: FakeGateway, ending: str
) -> None:
    async def script(writer: asyncio.StreamWriter, _: Message) -> None:
        writer.write(begin_stream() + b"5\r\nfirst\r\n")
        await asyncio.sleep(0.05)
        if ending == "close":
            writer.close()
        elif ending == "reset":
            writer.transport.abort()
        elif ending == "too_long":
            writer.write(b"7d0\r\n" + b"x" * 2000 + b"\r\n0\r\n\r\n")

    gateway.script = script
    relay = await make_relay(
        limits={"upstream_read_timeout_s": 0.3, "max_answer_bytes": 1000}
    )
    answer = await relay.post("/demo", "Incremental: ?1", kind=CHUNKED_REQUEST)
    assert answer.status == 200
    assert answer.body.startswith(b"first")
    assert not answer.complete


async def test_client_that_leaves_ends_the_gateways_work(
    relay: Running, gateway: FakeGateway
) -> None:
    closed = asyncio.Event()

    async def script(writer: asyncio.StreamWriter, _: Message) -> None:
        writer.write(begin_stream() + b"5\r\nfirst\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"1\r\nx\r\n")
                await writer.drain()
                await asyncio.sleep(0.01)
        closed.set()

    gateway.script = script
    reader, writer = await relay.connect()
    fields = (f"Content-Type: {CHUNKED_REQUEST}", "Incremental: ?1")
    writer.write(raw_request("POST", "/demo", fields, SEALED))
    await reader.readuntil(b"first")
    writer.close()
    async with asyncio.timeout(5):
        await closed.wait()


async def test_client_that_leaves_before_the_answer_ends_the_gateways_work(
    make_relay: MakeRelay,
) -> None:
    asked = asyncio.Event()
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_message(reader)
        asked.set()
        assert await reader.read() == b""
        closed.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    relay = await make_relay(upstream=f"http://127.0.0.1:{port}")
    _, writer = await relay.connect()
    fields = ("Content-Type: message/ohttp-req",)
    writer.write(raw_request("POST", "/demo", fields, SEALED))
    async with asyncio.timeout(5):
        await asked.wait()
        writer.close()
        await closed.wait()
    server.close()


async def test_slow_reader_holds_the_gateway_back_and_is_dropped(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    written = 0
    dropped = asyncio.Event()

    async def script(writer: asyncio.StreamWriter, _: Message) -> None:
        nonlocal written
        writer.write(begin_stream())
        block = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
        try:
            while True:
                writer.write(block)
                await writer.drain()
                written += 0x4000
        finally:
            dropped.set()

    gateway.script = script
    limits = {"write_timeout_s": 0.5, "max_answer_bytes": 1 << 30}
    relay = await make_relay(limits=limits)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", relay.port))
    fields = (f"Content-Type: {CHUNKED_REQUEST}", "Incremental: ?1")
    await loop.sock_sendall(client, raw_request("POST", "/demo", fields, SEALED))
    async with asyncio.timeout(10):
        await dropped.wait()
    client.close()
    assert 0 < written < 64 * 1024 * 1024
