"""Throw bytes at the enclave: two answers outside, sealed errors inside.

Whatever comes, decapsulation ends in an exchange or in one of two constants;
a request that opened ends in a chat request or in an error with a known code;
a configuration is read or has problems. Run ``python tests/fuzz/fuzz_enclave.py
--seconds 60``; ``--seed`` runs the same inputs again.
"""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz.common import Source, run

from curtilage.enclave_server.answers import ERROR_CODES, encode_error
from curtilage.enclave_server.chat import ChatLimits, parse_chat_request
from curtilage.enclave_server.config import parse_config
from curtilage.enclave_server.errors import ChatError, ConfigError
from curtilage.enclave_server.gateway import (
    UNDECAPSULATED,
    UNKNOWN_KEY,
    Form,
    OuterError,
    form_of,
    open_exchange,
    seal_error,
)
from curtilage.enclave_server.keys import make_key
from curtilage.wire import bhttp, chunked, ohttp

MAX_INPUT_BYTES: Final = 400
NOW = datetime(2026, 11, 21, tzinfo=UTC)
KEY = make_key(now=NOW, lifetime_s=60, replay_capacity=2**22)
KEYS = {KEY.key_id: KEY}
CONFIG = KEY.gateway_key.config
LIMITS = ChatLimits(max_messages=8, max_tokens=64)
BODY = (
    b'{"messages":[{"role":"user","content":"hi","name":"a"}],"max_tokens":4,'
    b'"temperature":0.5,"top_p":1,"seed":-1,"stop":["x"],"stream":true,'
    b'"logprobs":false}'
)
REQUEST = bhttp.encode_request(
    bhttp.Request(
        method=b"POST",
        scheme=b"https",
        authority=b"curtilage.invalid",
        path=b"/v1/chat/completions",
        fields=((b"content-type", b"application/json"),),
        content=BODY,
    )
)
SEEDS: tuple[bytes, ...] = (
    BODY,
    REQUEST,
    ohttp.seal_request(CONFIG, REQUEST).message,
    chunked.seal_chunked_request(CONFIG, REQUEST, chunk_bytes=50).message,
    b'environment = "development"\nlisten = "127.0.0.1:0"\n[limits]\nbody_s = 1\n',
    b"message/ohttp-req",
)


def make_input(source: Source) -> bytes:
    if source.below(4) == 0:
        return source.octets(source.below(MAX_INPUT_BYTES))
    data = bytearray(SEEDS[source.below(len(SEEDS))])
    for _ in range(1 + source.below(4)):
        place = source.below(len(data) + 1)
        data[place : place + source.below(8)] = source.octets(source.below(8))
    return bytes(data)


def check(data: bytes, _: Source) -> None:
    """Try one input everywhere; raise where it gets any other answer."""
    for form in Form:
        _open(form, data)
    _open(Form.PLAIN, ohttp.seal_request(CONFIG, data).message, opens=True)
    _open(Form.CHUNKED, chunked.seal_chunked_request(CONFIG, data).message, opens=True)
    _read_chat(data)
    _read_config(data.decode("utf-8", errors="replace"))
    _read_type(data.decode("latin-1"))


def _open(form: Form, message: bytes, *, opens: bool = False) -> None:
    try:
        exchange = open_exchange(KEYS, form, message, LIMITS)
    except OuterError as error:
        if opens or error.answer not in {UNDECAPSULATED, UNKNOWN_KEY}:
            raise AssertionError("another answer outside") from None
        return
    if isinstance(exchange.asked, ChatError):
        _check_error(exchange.asked)
        if not seal_error(exchange.sealer, exchange.asked):
            raise AssertionError("an error that is not sealed")


def _read_chat(data: bytes) -> None:
    try:
        request = parse_chat_request(data, LIMITS)
    except ChatError as error:
        _check_error(error)
        return
    if not 1 <= request.max_tokens <= LIMITS.max_tokens:
        raise AssertionError("a limit that does not hold")


def _read_config(text: str) -> None:
    try:
        parse_config(text)
    except ConfigError as error:
        if not error.problems:
            raise AssertionError("a refusal without a problem") from None


def _read_type(value: str) -> None:
    try:
        form_of([value])
    except OuterError as error:
        if error.answer.status != 415:
            raise AssertionError("another answer to a wrong type") from None


def _check_error(error: ChatError) -> None:
    if error.code not in ERROR_CODES:
        raise AssertionError("an error code of no list")
    json.loads(encode_error(error))


if __name__ == "__main__":
    sys.exit(run("fuzz_enclave", check, make_input))
