"""Answers that must have a form: JSON of a schema, and tool calls. Pure."""

from curtilage.inference.errors import RequestError
from curtilage.inference.protocol import GenerateRequest


def refuse_unbuilt(request: GenerateRequest) -> None:
    """Refuse what this engine cannot do yet: it must not be ignored.

    Raises:
        RequestError: the request uses it.
    """
    settings = request.settings
    turns = request.messages
    unbuilt = {
        "tools": request.tools or any(turn.tool_calls for turn in turns),
        "response_format": request.response_format,
        "name": any(turn.name for turn in turns),
        "tool_call_id": any(turn.tool_call_id for turn in turns),
        "top_logprobs": settings.top_logprobs,
        "frequency_penalty": settings.frequency_penalty,
        "presence_penalty": settings.presence_penalty,
        "logit_bias": settings.logit_bias,
    }
    for name, used in unbuilt.items():
        if used:
            raise RequestError(f"this engine does not support {name}")
