"""How engines say that a text is too long: llama.cpp's server, vLLM and SGLang.

Both readers of it, the client's and the enclave's, are tested by these.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class TooLongSaid:
    """The body of a refusal (400), and the numbers in it.

    Attributes:
        id: of the test.
        body: JSON.
        prompt: tokens of the text; None: not said.
        context: tokens of the context; likewise.
    """

    id: str
    body: dict[str, object]
    prompt: int | None
    context: int | None


LLAMA_CPP: Final[dict[str, object]] = {
    "code": 400,
    "message": "request (9000 tokens) exceeds the available context size (8192 "
    "tokens), try increasing it",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 9000,
    "n_ctx": 8192,
}
LENGTH: Final = "This model's maximum context length is 4096 tokens"
OUTPUT: Final = ", for a total of at least 4097 tokens. Please reduce the length."


def said(message: str) -> dict[str, object]:
    """Return a refusal of vLLM with these words."""
    return {"message": message, "type": "BadRequestError", "code": 400}


TOO_LONG: Final = (
    TooLongSaid(id="llama.cpp", body={"error": LLAMA_CPP}, prompt=9000, context=8192),
    TooLongSaid(
        id="llama.cpp, a context that is text",
        body={"error": {**LLAMA_CPP, "n_ctx": "8192"}},
        prompt=9000,
        context=None,
    ),
    TooLongSaid(
        id="llama.cpp, a context without bound",
        body={"error": {**LLAMA_CPP, "n_ctx": 2**31}},
        prompt=9000,
        context=None,
    ),
    TooLongSaid(
        id="llama.cpp, flags for numbers",
        body={"error": {**LLAMA_CPP, "n_prompt_tokens": True, "n_ctx": True}},
        prompt=None,
        context=None,
    ),
    TooLongSaid(
        id="vLLM, messages",
        body={
            "error": said(
                f"{LENGTH}. However, you requested 5000 tokens (4744 in the messages, "
                "256 in the completion). Please reduce the length."
            )
        },
        prompt=4744,
        context=4096,
    ),
    TooLongSaid(
        id="vLLM, at the top",
        body={"object": "error", **said(f"{LENGTH}. Please reduce the length.")},
        prompt=None,
        context=4096,
    ),
    TooLongSaid(
        id="vLLM, a long answer",
        body=said(
            "'max_tokens' or 'max_completion_tokens' is too large: 5000. "
            f"{LENGTH} and your request has 12 input tokens (5000 > 4096 - 12)."
        ),
        prompt=12,
        context=4096,
    ),
    TooLongSaid(
        id="vLLM, input",
        body={"error": said(f"{LENGTH}. However, your request has 5000 input tokens.")},
        prompt=5000,
        context=4096,
    ),
    TooLongSaid(
        id="vLLM, at least",
        body={
            "error": said(
                f"{LENGTH}. However, you requested 256 output tokens and your prompt "
                f"contains at least 3841 input tokens{OUTPUT}"
            )
        },
        prompt=3841,
        context=4096,
    ),
    TooLongSaid(
        id="vLLM, characters",
        body={
            "error": said(
                f"{LENGTH}. However, you requested 256 output tokens and your prompt "
                "contains 900000 characters (more than 81280 characters)."
            )
        },
        prompt=None,
        context=4096,
    ),
    TooLongSaid(
        id="vLLM, at least by characters",
        body={
            "error": said(
                f"{LENGTH}. However, your prompt contains 900000 characters (more than "
                "53248 characters, which is the upper bound for 4096 input tokens). "
                "Please reduce the length of the input prompt."
            )
        },
        prompt=4096,
        context=4096,
    ),
    TooLongSaid(
        id="vLLM, passed",
        body={
            "error": said(
                "You passed 5000 input tokens and requested 256 output tokens. However,"
                " the model's context length is only 4096 tokens, resulting in a "
                "maximum input length of 3840 tokens."
            )
        },
        prompt=5000,
        context=4096,
    ),
    TooLongSaid(
        id="SGLang, total",
        body={
            "object": "error",
            **said(
                "Requested token count exceeds the model's maximum context length of "
                "4096 tokens. You requested a total of 5000 tokens: 4744 tokens from "
                "the input messages and 256 tokens for the completion."
            ),
        },
        prompt=4744,
        context=4096,
    ),
    TooLongSaid(
        id="SGLang, input",
        body={
            "object": "error",
            **said(
                "The input (5000 tokens) is longer than the model's context length "
                "(4096 tokens)."
            ),
        },
        prompt=5000,
        context=4096,
    ),
)
