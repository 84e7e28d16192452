"""Other services' documents: limits of any of them, and when one may be a tier."""

import json
from collections.abc import Callable

import pytest

from curtilage.cli.attest.foreign import reader
from curtilage.cli.attest.foreign.intel_answers import collateral_of
from curtilage.cli.attest.foreign.published import (
    Carrier,
    Finding,
    Judged,
    Way,
    checked,
    stated,
    unknown,
)
from curtilage.cli.attest.foreign.reader import Members, read_document, read_value
from curtilage.cli.attest.foreign.verdict import NAMES, READERS, tier_of
from support.evidence_texts import refused

WAY = Way(by=Carrier.OHTTP, key="00", where="here")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "malformed"),
        (b"[1]", "malformed"),
        (b'{"a":1,"a":1}', "malformed"),
        (b'{"a":{"b":1,"b":1}}', "malformed"),
        (b"\xff{}", "malformed"),
        (b"[" * 10_000, "malformed"),
        (b"[" * (reader.MAX_OPENED + 1), "too_large"),
        (b" " * (reader.MAX_DOCUMENT_BYTES + 1), "too_large"),
    ],
)
def test_other_texts_are_refused(data: bytes, code: str) -> None:
    assert refused(lambda: read_document(data, "document")) == code


def test_windows_tools_may_put_a_mark_first() -> None:
    assert read_document(b'\xef\xbb\xbf{"a":1}', "document").has("a")
    assert read_value(b"[]", "list") == []


MEMBERS = Members(
    {
        "text": "ab",
        "half": "\ud800",
        "spaces": "ab cd",
        "odd": "abc",
        "loose": "YWJj\n",
        "null": None,
        "list": ["a", 1],
        "objects": [{"a": 1}, "b"],
        "long": "a" * 9,
    },
    "document",
)


@pytest.mark.parametrize(
    ("read", "code"),
    [
        (lambda: MEMBERS.text("missing"), "malformed"),
        (lambda: MEMBERS.text("null"), "malformed"),
        (lambda: MEMBERS.text("list"), "malformed"),
        (lambda: MEMBERS.text("half"), "malformed"),
        (lambda: MEMBERS.text("long", limit=8), "too_large"),
        (lambda: MEMBERS.hexadecimal("spaces"), "malformed"),
        (lambda: MEMBERS.hexadecimal("odd"), "malformed"),
        (lambda: MEMBERS.hexadecimal("text", length=2), "malformed"),
        (lambda: MEMBERS.base64("loose"), "malformed"),
        (lambda: MEMBERS.child("text"), "malformed"),
        (lambda: MEMBERS.children("objects", limit=2), "malformed"),
        (lambda: MEMBERS.entries("text", limit=2), "malformed"),
        (lambda: MEMBERS.entries("list", limit=1), "too_large"),
        (lambda: MEMBERS.texts("list", limit=2), "malformed"),
    ],
)
def test_a_member_of_another_kind_is_refused(
    read: Callable[[], object], code: str
) -> None:
    assert refused(read) == code


def test_a_null_is_absent() -> None:
    assert not MEMBERS.has("null")
    assert MEMBERS.has("text", "list")
    assert MEMBERS.hexadecimal("text", length=1) == b"\xab"
    assert Members({"a": "0xAB"}, "document").hexadecimal("a") == b"\xab"


@pytest.mark.parametrize(
    "response",
    [
        {"url": "http://[", "body_base64": "", "headers": {}},
        {
            "url": "https://pcs.example/tdx/certification/v4/tcb",
            "body_base64": "/w==",
            "headers": {"TCB-Info-Issuer-Chain": ["a"]},
        },
        {
            "url": "https://pcs.example/tdx/certification/v4/tcb",
            "body_base64": "",
            "headers": {"tcb-info-issuer-chain": ["a"], "TCB-Info-Issuer-Chain": ["b"]},
        },
    ],
)
def test_other_answers_of_intel_are_refused(response: dict[str, object]) -> None:
    answers = [Members(response, "response")]
    assert refused(lambda: collateral_of(answers)) == "malformed"


def test_other_addresses_are_passed_over() -> None:
    response: dict[str, object] = {"url": "https://pcs.example/sgx/other"}
    assert json.loads(collateral_of([Members(response, "response")])) == {}


def findings(**others: Finding) -> dict[str, Finding]:
    return dict.fromkeys(NAMES, checked("")) | others


def test_a_tier_needs_a_way_and_four_claims() -> None:
    assert tier_of(findings(), Judged(findings={}, way=WAY)).may
    for name in ("hardware", "measurement", "key", "freshness"):
        for finding in (stated(""), unknown("")):
            tier = tier_of(findings(**{name: finding}), Judged(findings={}, way=WAY))
            assert (tier.may, name in tier.why) == (False, True)
    others = {name: unknown("") for name in ("gpu", "weights", "receipts")}
    assert tier_of(findings(**others), Judged(findings={}, way=WAY)).may
    without = tier_of(findings(), Judged(findings={}, no_way="no key"))
    assert (without.may, without.why) == (False, "no key")


@pytest.mark.parametrize("by", list(Carrier))
def test_a_possible_tier_says_how_and_that_none_is_opened(by: Carrier) -> None:
    way = Way(by=by, key="00", where="here")
    why = tier_of(findings(), Judged(findings={}, way=way)).why
    assert "speaks to no such service" in why
    assert len(READERS) == 4
