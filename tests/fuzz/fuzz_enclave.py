"""The enclave's parsers: two answers outside, sealed errors inside."""

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from fuzz.common import Harness, hold

from curtilage.attest.receipt import KEY_FIELD
from curtilage.enclave_server.acquire.configfs_tsm import parse_certificate_table
from curtilage.enclave_server.acquire.nitro_nsm import parse_attestation_response
from curtilage.enclave_server.acquire.tpm_commands import Tpm
from curtilage.enclave_server.config import parse_config
from curtilage.enclave_server.errors import (
    AcquisitionError,
    ChatError,
    ConfigError,
)
from curtilage.enclave_server.ohttp.chat import (
    ChatCompletionRequest,
    ChatLimits,
    parse_chat_completion_request,
)
from curtilage.enclave_server.ohttp.gateway import (
    UNDECAPSULATED,
    UNKNOWN_KEY,
    Exchange,
    Form,
    OuterError,
    Terms,
    form_of,
    is_in_window,
    open_exchange,
)
from curtilage.enclave_server.ohttp.inner_requests import (
    ChallengeRequest,
    CoverRequest,
    parse_challenge_request,
    parse_cover_request,
)
from curtilage.enclave_server.ohttp.keys import ReceiptTerms, make_key
from curtilage.enclave_server.ohttp.openai_answers import ERROR_CODES, encode_error
from curtilage.wire import bhttp, chunked, ohttp
from curtilage.wire.dates import format_date, parse_date
from curtilage.wire.shaping import PADDED, UNPADDED

NOW: Final = datetime(2026, 11, 21, tzinfo=UTC)
LIMITS: Final = ChatLimits(max_messages=8, max_tokens=64)
MINUTE: Final = timedelta(seconds=60)


KEY: Final = make_key(
    now=NOW,
    lifetime_s=60,
    replay_capacity=2**16,
    receipts=ReceiptTerms(release_digest=bytes(32), model_digest=bytes(32)),
)
KEYS: Final = dict.fromkeys(KEY.key_ids, KEY)
CONFIG: Final = KEY.gateway_keys[-1].config


def exchange(form: Form, message: bytes) -> Exchange | None:
    """Return an exchange, or None for one of the two answers outside."""
    if KEY.replay.is_full:
        KEY.replay.clear()
    padded = len(message) % 2 == 0
    terms = Terms(
        chat=LIMITS,
        transport=PADDED if padded else UNPADDED,
        now=NOW,
        challenge_bucket=1,
    )
    try:
        return open_exchange(KEYS, form, message, terms)
    except OuterError as error:
        hold(error.answer in {UNDECAPSULATED, UNKNOWN_KEY})
        return None


def check_error(error: ChatError) -> None:
    assert error.code in ERROR_CODES
    json.loads(encode_error(error))


def check_encapsulated(data: bytes) -> None:
    """What was not sealed to the key gets one of two answers outside."""
    for form in Form:
        assert exchange(form, data) is None


def check_dispatch(data: bytes) -> None:
    """What was sealed gets a request, or an error with a known code, inside."""
    plain = ohttp.seal_request(CONFIG, data).message
    pieces = chunked.seal_chunked_request(CONFIG, data).message
    for form, message in ((Form.PLAIN, plain), (Form.CHUNKED, pieces)):
        opened = exchange(form, message)
        assert opened is not None
        if isinstance(opened.asked, ChatError):
            assert opened.asked.status != 500
            check_error(opened.asked)
        else:
            request = bhttp.decode_request(data)
            assert request.authority == b"curtilage.invalid"
            assert dict(request.fields)[b"date"]
            known = ChatCompletionRequest | CoverRequest | ChallengeRequest
            assert isinstance(opened.asked, known)
            # At most one trailer, and only for a client that sent a key for it.
            asked = any(name == KEY_FIELD for name, _ in request.fields)
            assert len(opened.receipt.trailers()) == asked


def check_chat_json(data: bytes) -> None:
    """A request within its limits, or an error with a known code."""
    try:
        request = parse_chat_completion_request(data, LIMITS)
    except ChatError as error:
        check_error(error)
        return
    assert 1 <= request.max_tokens <= LIMITS.max_tokens
    assert 1 <= len(request.messages) <= LIMITS.max_messages


def check_cover_json(data: bytes) -> None:
    """A bucket that exists, or an error with a known code."""
    try:
        assert 0 <= parse_cover_request(data, 7).bucket < 7
    except ChatError as error:
        check_error(error)


def check_challenge_json(data: bytes) -> None:
    """A nonce of 32 bytes, or an error with a known code."""
    try:
        challenge = parse_challenge_request(data)
    except ChatError as error:
        check_error(error)
        return
    assert len(challenge.nonce) == 32
    assert len(challenge.base) in {0, 64}


def check_tsm_table(data: bytes) -> None:
    """Certificates that are in the table, or a refusal."""
    try:
        table = parse_certificate_table(data)
    except AcquisitionError:
        return
    hold(all(content in data for content in table.values()))


def check_nsm_response(data: bytes) -> None:
    """A document that is in the response, or a refusal."""
    try:
        document = parse_attestation_response(data)
    except AcquisitionError:
        return
    hold(document in data)


class _Channel:
    """Answers every command with the same bytes."""

    def __init__(self, response: bytes) -> None:
        self._response = response

    def transmit(self, command: bytes) -> bytes:
        assert command
        return self._response


def check_tpm_response(data: bytes) -> None:
    """Registers, a quote or an index as asked for, or a refusal."""
    tpm = Tpm(_Channel(data), sleep=lambda _seconds: None)
    with suppress(AcquisitionError):
        ((index, value),) = tpm.pcr_read((0,))
        assert (index, len(value)) == (0, 32)
    with suppress(AcquisitionError):
        message, signature = tpm.quote(1, b"q", (0,))
        hold(message + signature in data)
    with suppress(AcquisitionError):
        assert len(tpm.nv_read(1, 4096)) <= 4096


def check_enclave_config(data: bytes) -> None:
    """A configuration, or every problem of it."""
    try:
        parse_config(data.decode("utf-8", errors="replace"))
    except ConfigError as error:
        hold(error.problems)


def check_media_type(data: bytes) -> None:
    """One of two types in any case, or 415."""
    try:
        form = form_of(data.decode("latin-1").split("\n"))
    except OuterError as error:
        hold(error.answer.status == 415)
        return
    assert form.value.encode() == data.strip(b" \t").lower()


def check_enclave_date(data: bytes) -> None:
    """A date is one that is written again the same; the window is a minute."""
    found = parse_date(data)
    assert found is None or format_date(found) == data
    assert is_in_window(data, NOW) == (found is not None and abs(found - NOW) <= MINUTE)


HARNESSES: Final = (
    Harness(name="encapsulated", check=check_encapsulated),
    Harness(name="dispatch", check=check_dispatch),
    Harness(name="chat_json", check=check_chat_json),
    Harness(name="cover_json", check=check_cover_json, max_bytes=256),
    Harness(name="challenge_json", check=check_challenge_json, max_bytes=512),
    Harness(name="tsm_table", check=check_tsm_table, max_bytes=1024),
    Harness(name="nsm_response", check=check_nsm_response, max_bytes=512),
    Harness(name="tpm_response", check=check_tpm_response, max_bytes=512),
    Harness(name="enclave_config", check=check_enclave_config, max_bytes=2048),
    Harness(name="media_type", check=check_media_type, max_bytes=128),
    Harness(name="enclave_date", check=check_enclave_date, max_bytes=64),
)
