"""Tables of OpenAI's API: fields that are accepted, dropped or refused.

``openai_chat`` reads requests by them, the endpoint answers at their paths, and
docs/openai-api.md shows them (``tools/openai_api.py`` writes it). A field that is in
no table is refused by its name.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

DOCUMENT: Final = "docs/openai-api.md"
MODEL_ID: Final = "curtilage"
CHAT_PATH: Final = "/v1/chat/completions"
MODELS_PATH: Final = "/v1/models"
FEEDBACK_PATH: Final = "/v1/curtilage/feedback"
QUEUE_PATH: Final = "/v1/curtilage/queue/"
HEALTH_PATH: Final = "/healthz"

USED: Final[Mapping[str, str]] = {
    "model": f"`{MODEL_ID}`, left out, or a name of the file of models",
    "messages": "text: a string, or a list of parts of type `text`; a `name` of 1 to "
    "64 characters, which the model reads in front of the text; calls of tools and "
    "their results",
    "max_tokens": "1 to 32768; an enclave ends each answer at 4096 "
    "(`limits.max_tokens`)",
    "max_completion_tokens": "the same; counts where both are given",
    "temperature": "0 to 2",
    "top_p": "0.001 to 1",
    "seed": "0 to 4294967295",
    "stop": "a string, or up to 4; of 1 to 1024 characters each",
    "stream": "`true` or `false`",
    "stream_options": "`include_usage`: `true` or `false`; `include_obfuscation`: only "
    "`false`",
    "logprobs": "of each token that was chosen, in that order: also of the tokens of a "
    "stop string or of a call, which `content` does not have. A query that may be sent "
    "only with pseudonyms is kept local if it asks for them, since they would be the "
    "pseudonyms'",
    "top_logprobs": "0 to 20; with `logprobs`",
    "n": "1 to 4",
    "presence_penalty": "-2 to 2",
    "frequency_penalty": "-2 to 2",
    "tools": "up to 128 of type `function`",
    "tool_choice": "`none`, `auto`, `required`, or one function",
    "parallel_tool_calls": "`true` or `false`",
    "response_format": "of type `text`, `json_object` or `json_schema`",
    "deterministic": "`true` or `false`: with a `seed`, or `temperature` 0, the same "
    "request has the same tokens each time; not in OpenAI's API",
    "curtilage": "how to route this request; not in OpenAI's API",
}
"""Supported fields of a request, and their values."""

# Values that change nothing. Null does that in any field.
NEUTRAL: Final[Mapping[str, tuple[object, ...]]] = {
    "logit_bias": ({},),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "moderation": (),
    "web_search_options": (),
}
"""OpenAI's fields that would change the answer, and the values that do not."""

# Each is an identifier, or a preference that makes no difference for our models:
# without it the answer is the same.
DROPPED: Final[frozenset[str]] = frozenset(
    {
        "cache_control",
        "cache_prompt",
        "chat_id",
        "conversation_id",
        "id",
        "message_id",
        "metadata",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning_effort",
        "request_id",
        "safety_identifier",
        "service_tier",
        "session_id",
        "store",
        "thread_id",
        "trace_id",
        "user",
        "verbosity",
    }
)
"""Fields of a request that are dropped: never forwarded, and not inspected."""

DROPPED_IN_MESSAGES: Final[frozenset[str]] = frozenset(
    {"annotations", "cache_control", "copilot_cache_control", "id", "timestamp"}
)
"""The same of a message."""

DROPPED_IN_PARTS: Final[frozenset[str]] = frozenset(
    {
        "annotations",
        "cache_control",
        "copilot_cache_control",
        "prompt_cache_breakpoint",
    }
)
"""The same of a part of a message."""

PARTS: Final[Mapping[str, str]] = {
    "image_url": "a picture",
    "input_image": "a picture",
    "input_audio": "a sound recording",
    "file": "a file",
    "input_file": "a file",
    "refusal": "a refusal",
    "text": "a text with other fields than type and text",
}
"""Types of parts that are refused, described for their sender. Any other is reported
without its type, which the sender chose."""

MESSAGE_FIELDS: Final[Mapping[str, str]] = {
    "tool_calls": "tool calls in a turn that is not an assistant's",
    "tool_call_id": "the result of a tool call in a turn that is not a tool's",
    "function_call": "a function call",
    "audio": "a sound recording",
    "refusal": "a refusal",
}
"""Fields of a message that are refused unless they are empty. A ``refusal`` of an
assistant is text like its ``content``."""

ROUTES: Final[Mapping[str, str]] = {
    f"POST {CHAT_PATH}": "see the tables below",
    f"GET {MODELS_PATH}": f"`{MODEL_ID}`, and the names of the file of models; the "
    "field `curtilage` of each names the local model and says whether that is a "
    "demonstration model (`demonstration`), or what an alias stands for (`alias_of`)",
    f"GET {MODELS_PATH}/NAME": "one entry",
    f"POST {FEEDBACK_PATH}": "not in OpenAI's API: whether an answer was good",
    f"GET {QUEUE_PATH}TICKET": "not in OpenAI's API: the answer to a queued "
    "question; `DELETE` deletes it",
    f"GET {HEALTH_PATH}": "not in OpenAI's API: the health of the endpoint",
}
"""Supported paths; every other path is 404."""

OTHERS: Final = (
    "/v1/audio",
    "/v1/batches",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/files",
    "/v1/images",
    "/v1/moderations",
    "/v1/responses",
)
"""OpenAI's paths that applications often use, and that are not supported."""

REFUSALS: Final[Mapping[tuple[int, str], str]] = {
    (400, "invalid_request"): "a field has a value that is not possible; `param` names "
    "it",
    (400, "unknown_parameter"): "a field is in none of these tables; `param` names it",
    (400, "unsupported_parameter"): "a field requests an unsupported feature "
    "(`logit_bias`, `functions`, a tool that is not a function); `param` names it",
    (400, "unsupported_content"): "a message contains a picture, a recording or a "
    "file; `param` names its place",
    (400, "context_length_exceeded"): "the text exceeds the model's context",
    (400, "malformed_http"): "the request is not well-formed HTTP",
    (401, "invalid_api_key"): "another account without the token; at a gateway, no "
    "key, or one that it does not list",
    (403, "blocked_by_policy"): "the policy blocks it",
    (403, "not_local"): "`Host`, `Origin` or `Sec-Fetch-Site` names another site than "
    "this machine",
    (403, "unknown_host"): "at a gateway: `Host` or `Origin` has a name that its file "
    "does not list, or `Sec-Fetch-Site` names another site",
    (404, "model_not_found"): f"a `model` that `GET {MODELS_PATH}` does not list",
    (404, "not_found"): "another path",
    (405, "method_not_allowed"): "another method for this path; `Allow` names the "
    "available ones",
    (413, "request_too_large"): "the request is larger than 1 MiB",
    (414, "uri_too_long"): "the request line is longer than 4 KiB",
    (417, "expectation_failed"): "`Expect` is another than `100-continue`",
    (429, "rate_limit_exceeded"): "too many questions are waiting, too many "
    "connections are open, or an application has too many requests in progress",
    (431, "header_too_large"): "a header field is longer than 8 KiB, or there are more "
    "than 64",
}
"""Status and code of requests that are refused before a tier is asked, and when."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_MOST_NAMED: Final = 5


def sayable(names: Iterable[str]) -> tuple[str, ...]:
    """Return the field names that an error may repeat, sorted.

    A name is chosen by the sender. One that could be an identifier is repeated, to help
    the sender; anything else may be part of a question.
    """
    return tuple(name for name in names if _NAME.fullmatch(name))[:_MOST_NAMED]
