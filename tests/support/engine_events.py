"""Events of an OpenAI-compatible server, as it streams an answer."""

import json
from typing import Final


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def piece(text: str, index: int = 0, **more: object) -> bytes:
    choice: dict[str, object] = {"index": index, "delta": {"content": text}}
    return event(choices=[choice | more])


def finish(reason: object, index: int = 0) -> bytes:
    return event(choices=[{"index": index, "finish_reason": reason}])


def calling(index: object, arguments: object, name: object = "find") -> bytes:
    call = {"index": index, "function": {"name": name, "arguments": arguments}}
    return event(choices=[{"index": 0, "delta": {"tool_calls": [call]}}])


STOP: Final = finish("stop")
CALLED: Final = finish("tool_calls")
USAGE: Final = event(choices=[], usage={"prompt_tokens": 5, "completion_tokens": 2})
DONE: Final = b"data: [DONE]\n\n"
WHOLE: Final = (piece("From "), piece("near."), STOP, USAGE, DONE)
