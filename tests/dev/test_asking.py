"""Tests of the requests that the demonstration sends."""

import io
import urllib.request
from email.message import Message
from urllib.error import HTTPError

import pytest

from curtilage_dev.asking import open_answer
from curtilage_dev.processes import ProcessError


def test_a_refusal_is_an_error_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_asked: object, **_more: object) -> None:
        body = io.BytesIO(b'{"error": {"message": "it must stay local"}}')
        raise HTTPError("http://127.0.0.1:1/v1", 403, "", Message(), body)

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", refuse)
    with pytest.raises(ProcessError, match="refused: it must stay local"):
        open_answer("http://127.0.0.1:1/v1", "Where is it?", max_tokens=8)
