from functools import partial

import pytest

from curtilage.inference.errors import RequestError
from curtilage.inference.protocol import CancelToken, ChatMessage, GenerateRequest
from curtilage.inference.sampling import SamplingSettings
from support.chains import chain

HELLO = ChatMessage(role="user", content="hello")


def test_message_refuses_an_unknown_role() -> None:
    with pytest.raises(RequestError, match="unknown role"):
        ChatMessage(role="<|im_start|>system", content="")


def test_message_refuses_lone_surrogates_without_telling_the_text() -> None:
    with pytest.raises(RequestError, match="no UTF-8 form") as refusal:
        ChatMessage(role="user", content="canary \ud800")
    assert "canary" not in chain(refusal.value)


def test_request_refuses_lone_surrogates_in_a_stop_string() -> None:
    settings = SamplingSettings(stop=("canary\udfff",))
    with pytest.raises(RequestError, match="stop string") as refusal:
        GenerateRequest(messages=(HELLO,), settings=settings)
    assert "canary" not in chain(refusal.value)


def test_request_refuses_no_message() -> None:
    with pytest.raises(RequestError, match="no message"):
        GenerateRequest(messages=())


def test_request_shows_no_content() -> None:
    assert "hello" not in repr(GenerateRequest(messages=(HELLO,)))


def test_cancel_calls_back_once() -> None:
    token = CancelToken()
    calls: list[int] = []
    token.subscribe(lambda: calls.append(1))
    assert not token.cancelled
    token.cancel()
    token.cancel()
    assert (token.cancelled, calls) == (True, [1])


def test_subscribing_late_calls_back_at_once() -> None:
    token = CancelToken()
    calls: list[int] = []
    token.cancel()
    token.subscribe(lambda: calls.append(1))
    assert calls == [1]


def test_who_unsubscribed_is_not_called_back() -> None:
    token = CancelToken()
    calls: list[int] = []
    callback = partial(calls.append, 1)
    token.subscribe(callback)
    token.unsubscribe(callback)
    token.unsubscribe(callback)
    token.cancel()
    assert calls == []
