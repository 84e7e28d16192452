"""The relay's decisions about heads, its configuration and its keys' lines."""

from typing import Final

from fuzz.common import Harness, hold

from curtilage.relay.access_keys import AccessKeys, parse_key_record
from curtilage.relay.config import parse_config
from curtilage.relay.errors import ConfigError
from curtilage.relay.forward import (
    Fields,
    RequestHead,
    admit,
    admit_answer,
    answer_fields,
    find_route,
    index,
    make_table,
    request_head,
)
from curtilage.relay.refusals import (
    Refusal,
    RefusedError,
    refusal_body,
    refusal_fields,
    status_of,
)

TABLE: Final = make_table(["enclave", "other"])
MAX_REQUEST_BYTES: Final = 1_048_576
PASSED: Final = {
    b"host",
    b"connection",
    b"content-type",
    b"content-length",
    b"transfer-encoding",
    b"incremental",
    b"accept",
}
RECORD: Final = f"a:{'0' * 32}:{'0' * 64}"


def parsed(data: bytes) -> tuple[list[bytes], Fields]:
    """Return the first line's words and the fields, as a parser would cut them."""
    first, *rest = data.split(b"\n")
    fields: list[tuple[bytes, bytes]] = []
    for line in rest:
        name, _, value = line.partition(b":")
        fields.append((name.strip(), value.strip()))
    return first.split(b" "), index(fields)


def check_relay_head(data: bytes) -> None:
    """A head is refused from a closed list, or passed on in our own form."""
    words, fields = parsed(data)
    head = RequestHead(
        method=words[0].decode("latin-1"),
        target=words[1].decode("latin-1") if len(words) > 1 else "",
        fields=fields,
        minor=len(words) % 2,
    )
    try:
        route = find_route(head, TABLE, hosts=frozenset({b"relay.test"}))
        passage = admit(head, route, max_request_bytes=MAX_REQUEST_BYTES)
    except RefusedError as error:
        check_refusal(error.refusal)
        return
    assert head.target.partition("?")[0].partition("#")[0] in TABLE
    if not passage.content_type:
        return
    sent = request_head(passage, host="gateway.test", length=passage.content_length)
    lines = sent.removesuffix(b"\r\n\r\n").split(b"\r\n")
    assert {line.partition(b":")[0].lower() for line in lines[1:]} <= PASSED
    assert b"\n" not in sent.replace(b"\r\n", b"")
    assert len(sent) < 400


def check_relay_answer(data: bytes) -> None:
    """A gateway's head is refused, or passed on in our own form."""
    words, fields = parsed(data)
    digits = words[0][:3]
    status = int(digits) if digits.isdigit() else 0
    try:
        answer = admit_answer(status, fields)
    except RefusedError as error:
        check_refusal(error.refusal)
        return
    assert answer.status == 200 or 400 <= answer.status <= 599
    assert answer.passes or answer.status != 200
    fields_sent = answer_fields(answer, length=answer.content_length)
    assert all("\n" not in name + value for name, value in fields_sent)


def check_refusal(refusal: Refusal) -> None:
    assert 400 <= status_of(refusal) <= 599
    assert refusal_fields(refusal)
    assert refusal_body(refusal).startswith(b"{")


def check_relay_config(data: bytes) -> None:
    """A configuration, or every problem of it."""
    try:
        parse_config(data.decode("utf-8", errors="replace"), {})
    except ConfigError as error:
        hold(str(error))


def check_access(data: bytes) -> None:
    """A record is one that is written again the same; no guess is admitted."""
    record = parse_key_record(data.decode("latin-1"))
    assert record is None or record.line().encode("latin-1") == data
    known = parse_key_record(RECORD)
    assert known is not None
    assert not AccessKeys([known]).admits([data])


HARNESSES: Final = (
    Harness(name="relay_head", check=check_relay_head, max_bytes=8192),
    Harness(name="relay_answer", check=check_relay_answer, max_bytes=8192),
    Harness(name="relay_config", check=check_relay_config, max_bytes=1024),
    Harness(name="relay_access", check=check_access, max_bytes=256),
)
