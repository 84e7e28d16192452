"""The rules by themselves, and that they repeat the wire's words exactly."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.relay import forward
from curtilage.relay.forward import (
    Action,
    Passage,
    Place,
    Refusal,
    RefusedError,
    RequestHead,
)
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
    assert forward.PROBLEM_JSON == media.PROBLEM_JSON
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


@settings(deadline=None)
@given(target=st.text(max_size=40))
def test_any_target_is_in_the_table_or_refused(target: str) -> None:
    path = forward.target_path(target)
    if path is not None and path in TABLE:
        assert path in target
    assert path is None or "?" not in path


@settings(deadline=None)
@given(target=st.text(max_size=40), method=st.text(max_size=8), fields=FIELDS)
def test_any_head_passes_in_our_words_or_is_refused(
    target: str, method: str, fields: list[tuple[bytes, bytes]]
) -> None:
    for where, how in ((target, method), ("/demo", "POST"), ("/demo/keys", "GET")):
        head = RequestHead(method=how, target=where, fields=fields)
        try:
            passage = forward.admit(head, TABLE, max_request_bytes=1000)
        except RefusedError:
            continue
        assert passage.content_type in {*forward.REQUEST_TYPES, ""}
        if how == "POST":
            assert (forward.content_length(fields) or 0) <= 1000


@settings(deadline=None)
@given(status=st.integers(100, 999), fields=FIELDS)
def test_any_answer_passes_in_our_words_or_is_refused(
    status: int, fields: list[tuple[bytes, bytes]]
) -> None:
    try:
        head = forward.admit_answer(status, fields)
    except RefusedError:
        return
    assert head.content_type in {*forward.RESPONSE_TYPES, forward.PROBLEM_JSON}
    assert head.status == 200 or 400 <= head.status <= 599
    names = [name for name, _ in forward.answer_fields(head, length=5)]
    assert names == [
        name
        for name in ("Content-Type", "Content-Length", "Incremental", "Cache-Control")
        if name != "Incremental" or head.incremental
    ]


@pytest.mark.parametrize("incremental", [True, False])
def test_request_fields_are_constants_in_fixed_order(*, incremental: bool) -> None:
    passage = Passage(
        place=Place(method="POST", action=Action.EXCHANGE, gateway="demo"),
        content_type=forward.OHTTP_REQUEST,
        incremental=incremental,
    )
    expected = [("Content-Type", "message/ohttp-req"), ("Content-Length", "7")]
    expected += [("Incremental", "?1")] if incremental else []
    assert forward.request_fields(passage, length=7) == expected


@pytest.mark.parametrize("refusal", list(Refusal))
def test_refusals_are_constant_problem_objects(refusal: Refusal) -> None:
    body = forward.refusal_body(refusal)
    assert body == forward.refusal_body(refusal)
    problem = json.loads(body)
    assert list(problem) == ["type", "status", "title"]
    assert problem["status"] == forward.status_of(refusal)
    assert problem["type"] == "about:blank"
    fields = forward.refusal_fields(refusal)
    assert fields[:2] == [
        ("Content-Type", "application/problem+json"),
        ("Content-Length", str(len(body))),
    ]


@pytest.mark.parametrize(
    "values", [[b"5", b"5"], [b"+5"], [b"-1"], [b"5 "], [b""], [b"\xb2"], [b"0x5"]]
)
def test_odd_lengths_are_refused(values: list[bytes]) -> None:
    with pytest.raises(RefusedError) as refused:
        forward.content_length([(b"content-length", value) for value in values])
    assert refused.value.refusal is Refusal.MALFORMED
