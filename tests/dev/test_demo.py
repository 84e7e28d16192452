"""What the demonstration shows of an answer."""

import io
import json
from types import SimpleNamespace
from typing import Any

import pytest

from curtilage_dev import demo
from curtilage_dev.demo import MAX_TOKENS, Question

SAID = {"class": "", "route": "local", "rule": "default"}


@pytest.mark.parametrize("cut", [True, False])
def test_an_answer_that_was_cut_says_so(
    *, cut: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = "length" if cut else "stop"
    events: list[object] = [
        {"choices": [{"delta": {"content": ""}, "finish_reason": None}]},
        {"choices": [{"delta": {"content": "So much"}, "finish_reason": None}]},
        {"choices": [{"delta": {}, "finish_reason": ends}]},
    ]
    first: dict[str, object] = {"curtilage": SAID, "choices": ()}
    lines = [f"data: {json.dumps(each)}\n" for each in (first, *events)]
    body = io.BytesIO(("".join(lines) + "data: [DONE]\n").encode())
    stack: Any = SimpleNamespace(client_url="http://127.0.0.1:1/v1")

    def answers(*_asked: object, **_more: object) -> io.BytesIO:
        return body

    monkeypatch.setattr(demo, "open_answer", answers)
    outcome = demo.ask(stack, Question(text="Why?"))
    assert (outcome.text, outcome.cut) == ("So much", cut)
    said = f"the answer was cut at {MAX_TOKENS} tokens" in capsys.readouterr().out
    assert said is cut


def test_only_what_nobody_else_was_asked_is_said_not_to_have_been_sent() -> None:
    assert demo.where({"route": "local"}).endswith("; nothing was sent")
    tried = {"route": "local", "fallback": "enclave_unreachable"}
    assert "nothing was sent" not in demo.where(tried)
