"""Sends requests to the client's endpoint over HTTP, as an OpenAI client does."""

import json
import urllib.request
from collections.abc import Iterator, Mapping
from http.client import HTTPResponse
from types import MappingProxyType
from typing import Any, Final, cast
from urllib.error import HTTPError

from curtilage_dev.processes import ProcessError

ANSWER_S: Final = 300
_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


def open_answer(
    url: str, text: str, *, max_tokens: int, more: Mapping[str, object] = _NOTHING
) -> HTTPResponse:
    """Ask one question greedily and return the streamed answer.

    Args:
        url: the endpoint, ``http://127.0.0.1:PORT/v1``.
        text: the question.
        max_tokens: upper bound of the answer.
        more: further fields of the request.

    Raises:
        ProcessError: the endpoint refused the request; has its reason.
    """
    body = {
        "model": "curtilage",
        "messages": [{"role": "user", "content": text}],
        "stream": True,
        "max_tokens": max_tokens,
        "temperature": 0,
        **more,
    }
    request = urllib.request.Request(  # noqa: S310 - our own loopback address
        f"{url}/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        return cast("HTTPResponse", opener.open(request, timeout=ANSWER_S))
    except HTTPError as error:
        with error:
            why = json.load(error)["error"]["message"]
        raise ProcessError(f"the question was refused: {why}") from error


def events_of(response: HTTPResponse) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream; comments are skipped (they keep it alive).

    Raises:
        ProcessError: the answer was truncated.
    """
    for line in response:
        kind, _, data = line.decode().strip().partition("data: ")
        if kind or not data or data == "[DONE]":
            continue
        event: dict[str, Any] = json.loads(data)
        if "error" in event:
            raise ProcessError(f"the answer was cut off: {event['error']['message']}")
        yield event
