"""Answers of the gateway: our own heads, and the sealed bytes."""

import json
import re

import pytest

from curtilage.relay.refusals import REFUSED_BY_GATEWAY, STATUS_AND_TITLE, Refusal
from support.relay_differences import differs
from support.relay_processes import RelayProcess
from support.relay_wire import (
    ANSWER,
    ANSWER_TYPE,
    CHUNKED_ANSWER,
    Answer,
    Exchange,
    Gateway,
    one_chunk,
    raw_answer,
    raw_request,
    read_answer,
    say,
    say_and_close,
)

CANARY = "canary-4111111111111111"
PROBLEM = "application/problem+json"
OHTTP_KEY = (
    b'{"type":"https://iana.org/assignments/http-problem-types#ohttp-key",'
    b'"title":"key identifier unknown"}'
)
PASSING = {
    *("Content-Type", "Content-Length", "Transfer-Encoding", "Incremental"),
    *("Cache-Control", "Server", "Date", "Connection"),
}
TRACKING = (
    *("Set-Cookie", "Set-Cookie2", "ETag", "Last-Modified", "Alt-Svc", "NEL"),
    *("Server-Timing", "Report-To", "Reporting-Endpoints", "Location"),
    *("Content-Location", "Via", "Forwarded", "X-Forwarded-For", "Link", "Refresh"),
    *("X-Request-ID", "X-Correlation-ID", "Traceparent", "Tracestate", "Baggage"),
    *("X-Powered-By", "X-Served-By", "X-Cache", "X-Timer", "CF-Ray", "Age"),
    *("Vary", "Expires", "Pragma", "Cache-Control", "WWW-Authenticate"),
    *("Proxy-Authenticate", "Proxy-Status", "Strict-Transport-Security"),
    *("Content-Security-Policy", "Clear-Site-Data", "Accept-CH", "Critical-CH"),
    *("Access-Control-Allow-Origin", "Timing-Allow-Origin", "Content-Language"),
    *("Content-Disposition", "Keep-Alive", "Trailer", "Warning", "Retry-After"),
    *("X-Accel-Limit-Rate", "X-Accel-Expires", "X-Accel-Charset", "Server"),
    *("X-Amzn-Trace-Id", "X-B3-TraceId", "X-Cloud-Trace-Context", "Accept-Ranges"),
    *("SourceMap", "Origin-Trial", "Permissions-Policy", "Authentication-Info"),
)


def timeless(answer: Answer) -> bytes:
    """Return an answer's head, without the time in its Date."""
    return re.sub(rb"\r\nDate: [^\r]+\r\n", b"\r\nDate: -\r\n", answer.raw)


def ask(relay: RelayProcess, gateway: Gateway, answer: bytes) -> Answer:
    gateway.script = say(answer)
    return relay.post()


@pytest.fixture
def plain(relay: RelayProcess, gateway: Gateway) -> bytes:
    """Return the head that a client gets for a minimal answer."""
    return timeless(ask(relay, gateway, raw_answer()))


def problem(answer: Answer) -> dict[str, object]:
    assert answer.value("Content-Type") == PROBLEM
    assert answer.value("Cache-Control") == "no-store"
    assert CANARY.encode() not in answer.raw + answer.body
    read: dict[str, object] = json.loads(answer.body)
    assert read.pop("type") == "about:blank"
    assert read["status"] == answer.status
    return read


def test_an_answer_has_the_allowed_fields_only(
    relay: RelayProcess, gateway: Gateway
) -> None:
    answer = ask(relay, gateway, raw_answer())
    assert set(answer.names) <= PASSING
    assert answer.value("Content-Type") == ANSWER_TYPE
    assert answer.value("Cache-Control") == "no-store"
    assert answer.body == ANSWER


@differs("server-field")
def test_server_names_the_relay(relay: RelayProcess, gateway: Gateway) -> None:
    assert ask(relay, gateway, raw_answer()).value("Server") == "curtilage-relay"


def test_server_is_the_same_on_every_answer(
    relay: RelayProcess, gateway: Gateway
) -> None:
    gateway.script = say(raw_answer(f"Server: {CANARY}"))
    servers = {relay.post().value("Server"), relay.get("/x").value("Server")}
    servers.add(relay.send(b"POST /demo HTTP/1.1\r\nX Y: z\r\n\r\n").value("Server"))
    assert len(servers) == 1
    assert "/" not in str(servers)


@pytest.mark.parametrize("field", TRACKING)
def test_a_tracking_field_of_the_gateway_stops(
    relay: RelayProcess, gateway: Gateway, plain: bytes, field: str
) -> None:
    answer = ask(relay, gateway, raw_answer(f"{field}: {CANARY}"))
    assert timeless(answer) == plain
    assert answer.body == ANSWER


@differs("unknown-answer-fields")
def test_an_unknown_field_of_the_gateway_stops(
    relay: RelayProcess, gateway: Gateway, plain: bytes
) -> None:
    answer = ask(relay, gateway, raw_answer(f"X-Unknown: {CANARY}"))
    assert timeless(answer) == plain


def test_order_and_casing_of_the_gateway_change_nothing(
    relay: RelayProcess, gateway: Gateway, plain: bytes
) -> None:
    odd = (
        "HTTP/1.1 200 OK\r\ncontent-TYPE:  Message/OHTTP-res \r\n"
        f"date: {CANARY}\r\nCONTENT-length: {len(ANSWER)}\r\n\r\n"
    )
    assert timeless(ask(relay, gateway, odd.encode() + ANSWER)) == plain


def test_the_chunked_media_type_passes(relay: RelayProcess, gateway: Gateway) -> None:
    answer = ask(relay, gateway, raw_answer(kind=CHUNKED_ANSWER))
    assert answer.value("Content-Type") == CHUNKED_ANSWER


@pytest.mark.parametrize("value", ["?1", "?1;x=y"])
def test_incremental_comes_back_as_a_constant(
    relay: RelayProcess, gateway: Gateway, value: str
) -> None:
    gateway.script = say(raw_answer(f"Incremental: {value}"))
    answer = relay.post("Incremental: ?1")
    assert b"\r\nIncremental: ?1\r\n" in answer.raw


@pytest.mark.parametrize("value", ["?0", "1", "true", CANARY])
def test_what_is_not_true_does_not_come_back(
    relay: RelayProcess, gateway: Gateway, value: str
) -> None:
    gateway.script = say(raw_answer(f"Incremental: {value}"))
    assert relay.post("Incremental: ?1").value("Incremental") is None


@pytest.mark.parametrize(
    "status", ["300", "301", "302", "303", "304", "305", "307", "308", "399"]
)
def test_a_redirect_is_neither_followed_nor_passed(
    relay: RelayProcess, gateway: Gateway, status: str
) -> None:
    length = None if status == "304" else CANARY.encode()
    field = f"Location: http://127.0.0.1:{gateway.port}/{CANARY}"
    answer = ask(
        relay, gateway, raw_answer(field, status=f"{status} Moved", body=length)
    )
    assert answer.status == 502
    assert problem(answer)["title"] == STATUS_AND_TITLE[Refusal.GATEWAY_ANSWER][1]
    assert len(gateway.exchanges) == 1


@pytest.mark.parametrize(
    "status", [400, 401, 403, 404, 405, 413, 415, 418, 429, 451, 500, 502, 503, 504]
)
def test_an_error_passes_as_its_status_with_our_content(
    relay: RelayProcess, gateway: Gateway, status: int
) -> None:
    line, page = f"{status} {CANARY}", CANARY.encode()
    loud = raw_answer(f"Set-Cookie: {CANARY}", status=line, kind="text/html", body=page)
    answer = ask(relay, gateway, loud)
    assert answer.status == status
    assert problem(answer)["title"] == REFUSED_BY_GATEWAY
    assert answer.value("Allow") is None
    assert answer.value("Proxy-Status") is None


def test_the_key_problem_passes(relay: RelayProcess, gateway: Gateway) -> None:
    refusal = raw_answer(
        "ETag: x", status="422 Unprocessable", kind=PROBLEM, body=OHTTP_KEY
    )
    answer = ask(relay, gateway, refusal)
    assert (answer.status, answer.body) == (422, OHTTP_KEY)
    assert answer.value("Content-Type") == PROBLEM
    assert set(answer.names) <= PASSING


@differs("gateway-errors")
@pytest.mark.parametrize("status", [400, 503])
def test_any_problem_object_passes(
    relay: RelayProcess, gateway: Gateway, status: int
) -> None:
    refusal = raw_answer(status=f"{status} No", kind=PROBLEM, body=OHTTP_KEY)
    assert ask(relay, gateway, refusal).body == OHTTP_KEY


@differs("answer-kind")
def test_the_key_problem_of_another_type_is_replaced(
    relay: RelayProcess, gateway: Gateway
) -> None:
    page = raw_answer(status="422 No", kind="text/html", body=CANARY.encode())
    assert problem(ask(relay, gateway, page))["status"] == 422


@pytest.mark.parametrize(
    "kind", ["text/html", "message/ohttp-req", f"{ANSWER_TYPE}; charset=utf-8", None]
)
def test_another_media_type_does_not_reach_the_client(
    relay: RelayProcess, gateway: Gateway, kind: str | None
) -> None:
    answer = ask(relay, gateway, raw_answer(kind=kind))
    assert answer.value("Content-Type") in {None, PROBLEM}
    assert set(answer.names) <= PASSING


@differs("answer-kind")
@pytest.mark.parametrize("kind", ["text/html", f"{ANSWER_TYPE}; charset=utf-8", None])
def test_another_media_type_is_refused(
    relay: RelayProcess, gateway: Gateway, kind: str | None
) -> None:
    assert ask(relay, gateway, raw_answer(kind=kind)).status == 502


@differs("answer-kind")
@pytest.mark.parametrize("status", ["201 Created", "202 Accepted", "299 Fine"])
def test_another_success_is_refused(
    relay: RelayProcess, gateway: Gateway, status: str
) -> None:
    assert ask(relay, gateway, raw_answer(status=status)).status == 502


@differs("answer-kind")
@pytest.mark.parametrize("coding", ["gzip", "br", "identity"])
def test_a_content_coding_is_refused(
    relay: RelayProcess, gateway: Gateway, coding: str
) -> None:
    answer = ask(relay, gateway, raw_answer(f"Content-Encoding: {coding}"))
    assert answer.status == 502


@differs("unframed-answers")
def test_an_answer_that_only_its_connection_ends_is_refused(
    relay: RelayProcess, gateway: Gateway
) -> None:
    gateway.script = say_and_close(raw_answer(body=None) + ANSWER)
    assert relay.post().status == 502


def first_line(relay: RelayProcess) -> bytes:
    """Send a request, and read only the first line of the answer."""
    wire = relay.connect()
    wire.send(raw_request())
    line = wire.until(b"\r\n")
    wire.close()
    return line


@differs("informational")
@pytest.mark.parametrize("early", ["103 Early Hints", "100 Continue", "199 Odd"])
def test_an_informational_answer_is_skipped(
    relay: RelayProcess, gateway: Gateway, early: str
) -> None:
    informational = f"HTTP/1.1 {early}\r\nLink: </x>\r\n\r\n".encode()
    gateway.script = say_and_close(informational + raw_answer())
    assert first_line(relay).startswith(b"HTTP/1.1 200 ")


def test_a_gateway_cannot_switch_protocols(
    relay: RelayProcess, gateway: Gateway
) -> None:
    switch = b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
    gateway.script = say_and_close(switch + CANARY.encode())
    wire = relay.connect()
    wire.send(raw_request("Upgrade: x", "Connection: upgrade"))
    head = wire.until(b"\r\n\r\n")
    wire.close()
    assert b" 101 " not in head
    assert CANARY.encode() not in wire.seen


@differs("no-http")
@pytest.mark.parametrize(
    "answer",
    [b"garbage\r\n\r\n", b"HTTP/1.1 abc OK\r\n\r\n"],
    ids=["garbage", "status"],
)
def test_an_answer_that_is_not_http_is_refused(
    relay: RelayProcess, gateway: Gateway, answer: bytes
) -> None:
    gateway.script = say_and_close(answer)
    assert first_line(relay).startswith(b"HTTP/1.1 502 ")


@pytest.mark.parametrize("line", ["X: " + "a" * 20_000, "no colon"])
def test_a_malformed_head_is_refused(
    relay: RelayProcess, gateway: Gateway, line: str
) -> None:
    gateway.script = say_and_close(raw_answer(line))
    assert first_line(relay).startswith(b"HTTP/1.1 502 ")


@differs("answer-framing")
@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 5", "Content-Length: 7"],
        ["Content-Length: -1"],
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
    ],
    ids=["two", "negative", "both"],
)
def test_an_answer_of_two_lengths_is_refused(
    relay: RelayProcess, gateway: Gateway, lines: list[str]
) -> None:
    gateway.script = say_and_close(raw_answer(*lines, body=None) + b"hello")
    assert first_line(relay).startswith(b"HTTP/1.1 502 ")


@differs("reason-phrase")
def test_the_reason_phrase_of_the_gateway_stops(
    relay: RelayProcess, gateway: Gateway
) -> None:
    answer = ask(relay, gateway, raw_answer(status=f"200 {CANARY}"))
    assert answer.start_line == "HTTP/1.1 200 OK"


def test_the_largest_answer_passes(relay: RelayProcess, gateway: Gateway) -> None:
    body = bytes(1024 * 1024)
    assert ask(relay, gateway, raw_answer(body=body)).body == body


@differs("answer-size")
def test_a_larger_answer_is_refused(relay: RelayProcess, gateway: Gateway) -> None:
    answer = ask(relay, gateway, raw_answer(body=bytes(1024 * 1024 + 1)))
    assert not (answer.status == 200 and answer.complete)


@differs("answer-size")
def test_a_larger_answer_in_chunks_is_cut(
    relay: RelayProcess, gateway: Gateway
) -> None:
    head = raw_answer("Transfer-Encoding: chunked", body=None)
    gateway.script = say(head, *[one_chunk(bytes(65536))] * 17, b"0\r\n\r\n")
    answer = relay.post("Incremental: ?1")
    assert not (answer.status == 200 and answer.complete)


def test_trailers_of_the_gateway_stop(relay: RelayProcess, gateway: Gateway) -> None:
    head = raw_answer("Transfer-Encoding: chunked", body=None)
    end = f"0\r\nX-Trailer: {CANARY}\r\n\r\n".encode()
    gateway.script = say(head + one_chunk(ANSWER) + end)
    wire = relay.connect()
    wire.send(raw_request("Incremental: ?1"))
    assert read_answer(wire).body == ANSWER
    assert CANARY.encode() not in wire.seen
    wire.close()


def test_an_absent_gateway_is_reported(relay: RelayProcess) -> None:
    answer = relay.post(target="/absent")
    assert answer.status == 502
    assert problem(answer)["title"] == STATUS_AND_TITLE[Refusal.GATEWAY_UNREACHABLE][1]


def reset(exchange: Exchange) -> None:
    exchange.read()
    exchange.wire.reset()


@pytest.mark.parametrize("script", [reset, say_and_close()], ids=["reset", "closed"])
def test_a_lost_gateway_is_reported_and_nothing_is_sent_twice(
    relay: RelayProcess, gateway: Gateway, script: object
) -> None:
    # The first uses up a pooled connection, the second opens a new one.
    relay.post()
    gateway.script = reset if script is reset else say_and_close()
    for count in (2, 3):
        answer = relay.post()
        assert answer.status == 502
        problem(answer)
        assert len(gateway.exchanges) == count


def test_a_silent_gateway_is_reported(hasty: RelayProcess, gateway: Gateway) -> None:
    gateway.script = Exchange.read
    answer = hasty.post()
    assert answer.status == 504
    assert problem(answer)["title"] == STATUS_AND_TITLE[Refusal.GATEWAY_TIMEOUT][1]
    assert len(gateway.exchanges) == 1


@pytest.mark.parametrize("incremental", [(), ("Incremental: ?1",)])
def test_a_cut_answer_is_never_whole(
    relay: RelayProcess, gateway: Gateway, incremental: tuple[str, ...]
) -> None:
    gateway.script = say_and_close(raw_answer()[:-100])
    answer = relay.post(*incremental)
    assert not (answer.status == 200 and answer.complete)


@differs("unasked-streaming")
def test_an_answer_waits_to_be_whole_unless_asked(
    relay: RelayProcess, gateway: Gateway
) -> None:
    gateway.script = say_and_close(raw_answer()[:-100])
    assert relay.post().status == 502
