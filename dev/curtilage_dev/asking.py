"""Ask the client's endpoint over HTTP, as an OpenAI client does."""

import json
import urllib.request
from http.client import HTTPResponse
from typing import Final, cast

ANSWER_S: Final = 300


def open_answer(url: str, text: str, *, max_tokens: int) -> HTTPResponse:
    """Ask one question greedily and return the streamed answer.

    Args:
        url: the endpoint, ``http://127.0.0.1:PORT/v1``.
        text: the question.
        max_tokens: upper bound of the answer.
    """
    body = {
        "model": "curtilage",
        "messages": [{"role": "user", "content": text}],
        "stream": True,
        "max_tokens": max_tokens,
        "temperature": 0,
    }
    request = urllib.request.Request(  # noqa: S310 - our own loopback address
        f"{url}/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return cast("HTTPResponse", opener.open(request, timeout=ANSWER_S))
