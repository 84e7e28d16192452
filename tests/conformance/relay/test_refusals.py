"""The relay's own refusals and their texts."""

import json

import pytest
from conformance.relay.conftest import StartRelay

from support.relay_differences import differs
from support.relay_processes import RelayProcess
from support.relay_wire import (
    HOST,
    SEALED,
    Answer,
    Gateway,
    one_chunk,
    raw_request,
    read_answer,
    read_head,
)

CANARY = "canary-4111111111111111"
PROBLEM = "application/problem+json"
TITLES = {
    400: "The request is not well formed.",
    404: "No gateway has this name here.",
    405: "The method is not allowed here.",
    413: "The request's content is too large.",
    417: "No expectation is supported.",
    421: "This relay has another name.",
    425: "Early data is not accepted.",
}
METHODS = ("GET", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND")
PASSING = {
    *("Content-Type", "Content-Length", "Cache-Control", "Server", "Date"),
    *("Connection", "Allow", "Proxy-Status"),
}


def check(answer: Answer, gateway: Gateway, status: int, title: str = "") -> None:
    """Check that this is our constant refusal, and that nothing was passed on."""
    assert answer.status == status
    assert set(answer.names) <= PASSING
    assert answer.value("Content-Type") == PROBLEM
    assert answer.value("Cache-Control") == "no-store"
    assert json.loads(answer.body) == {
        "type": "about:blank",
        "status": status,
        "title": title or TITLES[status],
    }
    assert gateway.exchanges == []


def request(*lines: str, body: bytes = b"", target: str = "/demo") -> bytes:
    """Write a request of exactly these lines."""
    first = f"POST {target} HTTP/1.1"
    return "\r\n".join([first, *lines, "", ""]).encode("latin-1") + body


TYPED = (f"Host: {HOST}", "Content-Type: message/ohttp-req")


@pytest.mark.parametrize(
    "target",
    [
        *("/", "/d", "/de", "/dem", "/demo1", "/abcdef", "/healthz/", "/demo/"),
        *("/demo/../other", "/other/../demo", "/demo/%2e%2e/other", "/./demo"),
        *("//demo", "/demo//", "/%64emo", "/DEMO", "/demo%2fkeys"),
        *("/demo/keys/", "/demo/Keys", "/demo;x=1", "/demo,other"),
        *("/.well-known/ohttp-gateway", "/ohttp-keys", "/attestation-bundle"),
        *(f"/{CANARY}", "/x?/demo", "/%2fdemo", "/demo\\", "/demo/http://a/"),
    ],
)
def test_an_unknown_path_is_refused(
    relay: RelayProcess, gateway: Gateway, other_gateway: Gateway, target: str
) -> None:
    check(relay.post(target=target), gateway, 404)
    assert other_gateway.exchanges == []


@pytest.mark.parametrize("method", METHODS)
def test_only_post_asks(relay: RelayProcess, gateway: Gateway, method: str) -> None:
    answer = relay.send(raw_request(method=method))
    check(answer, gateway, 405)
    assert answer.value("Allow") == "POST"


@pytest.mark.parametrize("target", ["/demo/keys", "/demo/bundle", "/healthz"])
@pytest.mark.parametrize("method", ["POST", "PUT", "OPTIONS"])
def test_only_get_fetches(
    relay: RelayProcess, gateway: Gateway, method: str, target: str
) -> None:
    answer = relay.send(raw_request(method=method, target=target, body=b""))
    check(answer, gateway, 405)
    assert answer.value("Allow") == "GET"


@pytest.mark.parametrize("method", ["HEAD", "TRACE"])
def test_head_and_trace_are_refused(
    relay: RelayProcess, gateway: Gateway, method: str
) -> None:
    wire = relay.connect()
    wire.send(raw_request(method=method, body=None, kind=None))
    assert read_head(wire).status == 405
    assert gateway.exchanges == []
    wire.close()


@differs("first-line")
def test_connect_is_refused(relay: RelayProcess, gateway: Gateway) -> None:
    raw = f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n".encode()
    check(relay.send(raw), gateway, 405)


@pytest.mark.parametrize(
    "target",
    [
        f"http://{HOST}/demo",
        f"https://{HOST}/demo",
        f"HTTP://{HOST}/demo",
        "http://elsewhere.example/demo",
        "http://127.0.0.1:1/demo",
    ],
)
def test_an_absolute_form_is_refused(
    relay: RelayProcess, gateway: Gateway, target: str
) -> None:
    check(relay.post(target=target), gateway, 400)


@pytest.mark.parametrize(
    "host",
    [
        *("elsewhere.example", f"{HOST}.elsewhere.example", f"x.{HOST}", "127.0.0.1"),
        *("localhost", "[::1]", "elsewhere.example:80"),
    ],
)
def test_a_foreign_host_is_refused(
    relay: RelayProcess, gateway: Gateway, host: str
) -> None:
    check(relay.send(raw_request(host=host)), gateway, 421)


@pytest.mark.parametrize("host", [HOST, HOST.upper(), f"{HOST}:443", f"{HOST}:80"])
def test_our_own_host_is_served(
    relay: RelayProcess, gateway: Gateway, host: str
) -> None:
    assert relay.send(raw_request(host=host)).status == 200
    assert len(gateway.exchanges) == 1


WORDS = ("default", "hostnames", "include", "volatile")


@pytest.fixture(scope="module")
def wordy(start_relay: StartRelay) -> RelayProcess:
    """Return a relay whose hosts have names with a meaning to nginx."""
    return start_relay(hosts=list(WORDS))


@pytest.mark.parametrize("host", WORDS)
def test_a_host_may_be_called_as_a_word_of_nginx(
    wordy: RelayProcess, gateway: Gateway, host: str
) -> None:
    assert wordy.send(raw_request(host=host)).status == 200
    assert wordy.send(raw_request(host=f"{host}.example")).status == 421
    assert len(gateway.exchanges) == 1


@pytest.mark.parametrize(
    "value",
    [
        *("application/json", "message/ohttp-res", "message/ohttp-keys", "message/"),
        *("message/ohttp-req; charset=utf-8", "message/ohttp-req;", CANARY),
        *("message/ohttp-req, message/ohttp-req", '"message/ohttp-req"', ""),
        *("message/ohttp-chunked-req; x", "message/ohttp-req x"),
    ],
)
def test_another_media_type_is_refused(
    relay: RelayProcess, gateway: Gateway, value: str
) -> None:
    answer = relay.send(raw_request(kind=value))
    check(answer, gateway, 415, "Only encapsulated requests pass.")


def test_no_media_type_is_refused(relay: RelayProcess, gateway: Gateway) -> None:
    answer = relay.send(raw_request(kind=None))
    check(answer, gateway, 415, "Only encapsulated requests pass.")


@differs("repeated-fields")
def test_two_media_types_are_refused(relay: RelayProcess, gateway: Gateway) -> None:
    answer = relay.send(raw_request("Content-Type: message/ohttp-req"))
    assert answer.status in {400, 415}
    assert gateway.exchanges == []


@differs("repeated-fields")
def test_incremental_twice_is_not_incremental(
    relay: RelayProcess, gateway: Gateway
) -> None:
    relay.post("Incremental: ?1", "Incremental: ?1")
    assert gateway.arrival().head.value("Incremental") is None


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "zstd", "identity", "x"])
def test_a_content_coding_is_refused(
    relay: RelayProcess, gateway: Gateway, coding: str
) -> None:
    answer = relay.post(f"Content-Encoding: {coding}")
    check(answer, gateway, 415, "No content coding is accepted.")


@pytest.mark.parametrize("value", ["100-continue", "100-Continue", "banana"])
def test_an_expectation_is_refused(
    relay: RelayProcess, gateway: Gateway, value: str
) -> None:
    check(relay.post(f"Expect: {value}"), gateway, 417)


@differs("continue")
def test_no_client_gets_100_continue(relay: RelayProcess) -> None:
    wire = relay.connect()
    wire.send(raw_request("Expect: 100-continue"))
    assert read_head(wire).status == 417
    wire.close()


@pytest.mark.parametrize("value", ["1", "0", CANARY])
def test_early_data_is_refused(
    relay: RelayProcess, gateway: Gateway, value: str
) -> None:
    check(relay.post(f"Early-Data: {value}"), gateway, 425)


@pytest.mark.parametrize("value", ["websocket", "h2c", "x"])
def test_an_upgrade_is_refused(
    relay: RelayProcess, gateway: Gateway, value: str
) -> None:
    check(relay.post(f"Upgrade: {value}", "Connection: upgrade"), gateway, 400)


def test_streaming_over_an_older_version_is_refused(
    relay: RelayProcess, gateway: Gateway
) -> None:
    raw = raw_request("Incremental: ?1").replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    answer = relay.send(raw)
    title = "HTTP/1.0 has no way to stream that shows a cut."
    check(answer, gateway, 501, title)
    assert answer.value("Proxy-Status") == "relay; error=incremental_refused"


@pytest.mark.parametrize("size", [1024 * 1024 + 1, 10**9, 10**15])
def test_a_long_content_is_refused_before_it_is_sent(
    relay: RelayProcess, gateway: Gateway, size: int
) -> None:
    answer = relay.send(request(*TYPED, f"Content-Length: {size}"))
    check(answer, gateway, 413)


def test_a_long_content_in_chunks_is_refused(
    relay: RelayProcess, gateway: Gateway
) -> None:
    wire = relay.connect()
    wire.send(request(*TYPED, "Transfer-Encoding: chunked"))
    wire.send(one_chunk(bytes(65536)) * 17)
    assert read_answer(wire).status == 413
    assert all(not exchange.complete for exchange in gateway.exchanges)
    wire.close()


MALFORMED = {
    "two framings": ("Transfer-Encoding: chunked", "Content-Length: 5"),
    "two framings, turned": ("Content-Length: 5", "Transfer-Encoding: chunked"),
    "two equal lengths": ("Content-Length: 5", "Content-Length: 5"),
    "two lengths": ("Content-Length: 5", "Content-Length: 7"),
    "list of lengths": ("Content-Length: 5, 5",),
    "signed length": ("Content-Length: +5",),
    "hexadecimal length": ("Content-Length: 0x5",),
    "negative length": ("Content-Length: -5",),
    "fractional length": ("Content-Length: 5.0",),
    "length of letters": ("Content-Length: five",),
    "huge length": ("Content-Length: 99999999999999999999999999",),
    "empty length": ("Content-Length: ",),
    "unknown coding": ("Transfer-Encoding: xchunked",),
    "chunked twice": ("Transfer-Encoding: chunked, chunked",),
    "chunked not last": ("Transfer-Encoding: chunked, gzip",),
    "gzip coding": ("Transfer-Encoding: gzip, chunked",),
    "identity coding": ("Transfer-Encoding: identity",),
    "folded line": ("X-A: a", " folded"),
    "NUL in a value": (f"X-A: a\0{CANARY}",),
    "NUL in a name": (f"X-A\0{CANARY}: a",),
    "space before the colon": ("X-A : a",),
    "space in a name": ("X A: a",),
    "no name": (": a",),
    "20 KB in one line": ("X-A: " + "a" * 20_000,),
    "40 KB in all": tuple(f"X-{n}: " + "a" * 4000 for n in range(10)),
    "second host": ("Host: elsewhere.example",),
    "second host, the same": (f"Host: {HOST}",),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_head_is_refused(
    relay: RelayProcess, gateway: Gateway, name: str
) -> None:
    raw = request(*TYPED, *MALFORMED[name], body=b"hello")
    check(relay.send(raw), gateway, 400)


def test_a_missing_host_is_refused(relay: RelayProcess, gateway: Gateway) -> None:
    raw = request(TYPED[1], "Content-Length: 5", body=b"hello")
    check(relay.send(raw), gateway, 400)


FIRST_LINES = {
    "no version": b"POST /demo\r\n\r\n",
    "odd version": b"POST /demo HTTP/9.9\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "binary": bytes(range(128, 200)) + b"\r\n\r\n",
    "tab": b"POST\t/demo\tHTTP/1.1\r\n\r\n",
    "long": b"POST /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n",
    "asterisk": b"OPTIONS * HTTP/1.1\r\nHost: relay.example\r\n\r\n",
    "NUL": b"POST /demo%00 HTTP/1.1\r\nHost: relay.example\r\n\r\n",
    "no slash": b"POST demo HTTP/1.1\r\nHost: relay.example\r\n\r\n",
}


@pytest.mark.parametrize("name", FIRST_LINES)
def test_a_malformed_first_line_discloses_nothing(
    relay: RelayProcess, gateway: Gateway, name: str
) -> None:
    wire = relay.connect()
    wire.send(FIRST_LINES[name])
    line = wire.until(b"\r\n")
    while wire.more():
        pass
    assert b" 200 " not in line
    assert b"elay.example" not in wire.seen
    assert b"aaaa" not in wire.seen
    assert gateway.exchanges == []
    wire.close()


@differs("first-line")
@pytest.mark.parametrize("name", ["odd version", "binary", "tab", "long", "no slash"])
def test_a_malformed_first_line_gets_our_words(
    relay: RelayProcess, gateway: Gateway, name: str
) -> None:
    check(relay.send(FIRST_LINES[name]), gateway, 400)


@differs("lax-heads")
def test_bare_line_feeds_are_refused(relay: RelayProcess, gateway: Gateway) -> None:
    raw = request(*TYPED, f"Content-Length: {len(SEALED)}").replace(b"\r\n", b"\n")
    check(relay.send(raw + SEALED), gateway, 400)


@differs("lax-heads")
def test_many_fields_are_refused(relay: RelayProcess, gateway: Gateway) -> None:
    many = [f"X-{number}: a" for number in range(100)]
    check(relay.send(raw_request(*many)), gateway, 400)


@differs("lax-heads")
def test_a_line_without_a_colon_is_refused(
    relay: RelayProcess, gateway: Gateway
) -> None:
    check(relay.post(CANARY), gateway, 400)


@pytest.mark.parametrize(
    "body", [b"zz\r\nhello\r\n0\r\n\r\n", b"-5\r\nhello\r\n0\r\n\r\n"], ids=["zz", "-5"]
)
def test_malformed_chunks_are_refused(
    relay: RelayProcess, gateway: Gateway, body: bytes
) -> None:
    raw = request(*TYPED, "Transfer-Encoding: chunked", body=body)
    assert relay.send(raw).status == 400
    assert all(not exchange.complete for exchange in gateway.exchanges)


def test_a_refusal_is_the_same_for_everybody(relay: RelayProcess) -> None:
    one = relay.get("/x", f"Cookie: {CANARY}")
    other = relay.get(f"/{CANARY}?{CANARY}", "User-Agent: other")
    assert one.body == other.body
    assert one.names == other.names


def test_nothing_is_smuggled_behind_a_refusal(
    relay: RelayProcess, gateway: Gateway
) -> None:
    inner = raw_request(body=CANARY.encode())
    outer = raw_request("Transfer-Encoding: chunked", body=inner)
    wire = relay.connect()
    wire.send(outer)
    assert read_answer(wire).status == 400
    assert wire.ended()
    assert gateway.exchanges == []
    wire.close()


def test_health_is_reported(relay: RelayProcess, gateway: Gateway) -> None:
    answer = relay.get("/healthz")
    assert (answer.status, answer.body) == (200, b"ok\n")
    assert answer.value("Content-Type") == "text/plain"
    assert answer.value("Cache-Control") == "no-store"
    assert gateway.exchanges == []
