"""The rules by themselves, and that they repeat the wire's words exactly."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.relay import forward, refusals
from curtilage.relay.forward import Action, Passage, RequestHead, Route
from curtilage.relay.refusals import Refusal, RefusedError
from curtilage.wire import media

TABLE = forward.make_table(["demo", "other"])
NAMES = st.one_of(
    st.sampled_from(
        [
            b"content-type",
            b"Content-Length",
            b"incremental",
            b"transfer-encoding",
            b"content-encoding",
            b"expect",
            b"early-data",
            b"cookie",
        ]
    ),
    st.binary(max_size=12),
)
VALUES = st.one_of(
    st.sampled_from(
        [b"?1", b"message/ohttp-req", b"message/ohttp-res", b"chunked", b"5", b"gzip"]
    ),
    st.binary(max_size=12),
)
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=6)


def test_constants_equal_the_wires() -> None:
    assert forward.OHTTP_KEYS == media.OHTTP_KEYS
    assert forward.OHTTP_REQUEST == media.OHTTP_REQUEST
    assert forward.OHTTP_RESPONSE == media.OHTTP_RESPONSE
    assert forward.OHTTP_CHUNKED_REQUEST == media.OHTTP_CHUNKED_REQUEST
    assert forward.OHTTP_CHUNKED_RESPONSE == media.OHTTP_CHUNKED_RESPONSE
    assert refusals.PROBLEM_JSON == media.PROBLEM_JSON
    assert forward.EVIDENCE_BUNDLE == media.EVIDENCE_BUNDLE
    assert forward.GATEWAY_PATH == media.GATEWAY_PATH
    assert forward.KEYS_PATH == media.KEYS_PATH
    assert forward.BUNDLE_PATH == media.BUNDLE_PATH


def test_table_holds_three_paths_for_each_gateway_and_health() -> None:
    assert sorted(TABLE) == [
        "/demo",
        "/demo/bundle",
        "/demo/keys",
        "/healthz",
        "/other",
        "/other/bundle",
        "/other/keys",
    ]


NO_HOSTS: frozenset[bytes] = frozenset()
HOST = {b"host": [b"relay.example"]}


@settings(deadline=None)
@given(target=st.text(max_size=40))
def test_any_target_is_in_the_table_or_refused(target: str) -> None:
    for where in (target, f"/demo{target}"):
        head = RequestHead(method="POST", target=where, fields=HOST)
        try:
            route = forward.find_route(head, TABLE, hosts=NO_HOSTS)
        except RefusedError:
            continue
        assert route is TABLE["/demo"]
        assert where[:6] in {"/demo", "/demo?", "/demo#"}


@pytest.mark.parametrize(
    ("host", "passes"),
    [
        (b"relay.example", True),
        (b"RELAY.example", True),
        (b"relay.example:8443", True),
        (b"relay.example:", True),
        (b"[2001:db8::1]", True),
        (b"[2001:db8::1]:443", True),
        (b"relay.example:x", False),
        (b"relay.example:443:443", False),
        (b"relay.example.", False),
        (b"user@relay.example", False),
        (b"evil.relay.example", False),
        (b"relay.example,evil.example", False),
        (b"[2001:db8::2]", False),
        (b"[2001:db8::1]x", False),
        (b"", False),
    ],
)
def test_host_is_one_of_ours(host: bytes, *, passes: bool) -> None:
    names = frozenset({b"relay.example", b"[2001:db8::1]"})
    head = RequestHead(method="POST", target="/demo", fields={b"host": [host]})
    if passes:
        assert forward.find_route(head, TABLE, hosts=names) is TABLE["/demo"]
    else:
        with pytest.raises(RefusedError) as refused:
            forward.find_route(head, TABLE, hosts=names)
        assert refused.value.refusal is Refusal.MISDIRECTED
    assert forward.find_route(head, TABLE, hosts=NO_HOSTS) is TABLE["/demo"]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (b"?1", True),
        (b"?1;x", True),
        (b"?1; x=canary", True),
        (b'?1;a=1.5;b="x\\"y";c=:YQ==:;d=?0', True),
        (b"?0", False),
        (b"?1?1", False),
        (b"1", False),
        (b'"1"', False),
        (b'"?1"', False),
        (b"true", False),
        (b"?1, ?1", False),
        (b"?1;", False),
        (b"?1;X", False),
        (b"?1;x=", False),
        (b'?1;x="', False),
        (b"(?1)", False),
        (b"?1\n", False),
        (b"", False),
    ],
)
def test_incremental_is_a_boolean_item(value: bytes, *, wanted: bool) -> None:
    assert forward.wants_pieces({b"incremental": [value]}) is wanted
    assert not forward.wants_pieces({b"incremental": [value, value]})


@settings(deadline=None)
@given(target=st.text(max_size=40), method=st.text(max_size=8), fields=FIELDS)
def test_any_head_passes_in_our_words_or_is_refused(
    target: str, method: str, fields: list[tuple[bytes, bytes]]
) -> None:
    for where, how in ((target, method), ("/demo", "POST"), ("/demo/keys", "GET")):
        named = {**HOST, **forward.index(fields)}
        head = RequestHead(method=how, target=where, fields=named)
        try:
            route = forward.find_route(head, TABLE, hosts=NO_HOSTS)
            passage = forward.admit(head, route, max_request_bytes=1000)
        except RefusedError:
            continue
        assert passage.content_type in {*forward.REQUEST_TYPES, ""}
        if how == "POST":
            assert (forward.content_length(named) or 0) <= 1000


@settings(deadline=None)
@given(status=st.integers(100, 999), fields=FIELDS)
def test_any_answer_passes_in_our_words_or_is_refused(
    status: int, fields: list[tuple[bytes, bytes]]
) -> None:
    try:
        head = forward.admit_answer(status, forward.index(fields))
    except RefusedError:
        return
    assert head.content_type in {*forward.RESPONSE_TYPES, refusals.PROBLEM_JSON}
    assert head.status == 200 or 400 <= head.status <= 599
    names = [name for name, _ in forward.answer_fields(head, length=5)]
    assert names == [
        name
        for name in ("Content-Type", "Content-Length", "Incremental", "Cache-Control")
        if name != "Incremental" or head.incremental
    ]


@pytest.mark.parametrize("incremental", [True, False])
@pytest.mark.parametrize("length", [7, None])
def test_request_head_is_constants_in_fixed_order(
    length: int | None, *, incremental: bool
) -> None:
    passage = Passage(
        route=Route(method="POST", action=Action.EXCHANGE, gateway="demo"),
        content_type=forward.OHTTP_REQUEST,
        incremental=incremental,
    )
    framing = b"Transfer-Encoding: chunked" if length is None else b"Content-Length: 7"
    expected = (
        b"POST /.well-known/ohttp-gateway HTTP/1.1\r\nHost: gateway.example\r\n"
        b"Content-Type: message/ohttp-req\r\n" + framing + b"\r\n"
    )
    expected += b"Incremental: ?1\r\n" if incremental else b""
    head = forward.request_head(passage, host="gateway.example", length=length)
    assert head == expected + b"\r\n"


@pytest.mark.parametrize("refusal", list(Refusal))
def test_refusals_are_constant_problem_objects(refusal: Refusal) -> None:
    body = refusals.refusal_body(refusal)
    assert body == refusals.refusal_body(refusal)
    problem = json.loads(body)
    assert list(problem) == ["type", "status", "title"]
    assert problem["status"] == refusals.status_of(refusal)
    assert problem["type"] == "about:blank"
    fields = refusals.refusal_fields(refusal)
    assert fields[:2] == [
        ("Content-Type", "application/problem+json"),
        ("Content-Length", str(len(body))),
    ]


@pytest.mark.parametrize(
    "values",
    [
        [b"5", b"5"],
        [b"+5"],
        [b"-1"],
        [b"5 "],
        [b""],
        [b"\xb2"],
        [b"0x5"],
        [b"9" * 5000],
    ],
)
def test_odd_lengths_are_refused(values: list[bytes]) -> None:
    with pytest.raises(RefusedError) as refused:
        forward.content_length({b"content-length": values})
    assert refused.value.refusal is Refusal.MALFORMED
