"""docs/openai-api.md shows the tables that the endpoint reads requests by."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from tools import openai_api

from curtilage.client.chat import openai_fields
from curtilage.client.chat.openai_fields import DROPPED, NEUTRAL, REFUSALS, ROUTES, USED
from curtilage.client.endpoint import admission, gateway, server
from curtilage.client.endpoint.accounts import Callers
from curtilage.client.endpoint.openai_answers import (
    error_object,
)
from curtilage.client.errors import (
    BlockedError,
    BusyError,
    ClientError,
    TooLongError,
    UsageError,
)
from curtilage.client.local.model import LocalContextTooLongError

if TYPE_CHECKING:
    from curtilage.client.session import Session

DOCUMENT = openai_api.PATH.read_text("utf-8")


def test_the_document_shows_what_the_code_does() -> None:
    """Where it fails: `python tools/openai_api.py` writes the tables."""
    assert openai_api.written(DOCUMENT) == DOCUMENT
    for name, table in openai_api.tables().items():
        assert f"<!-- table: {name} -->\n{table}<!-- end -->" in DOCUMENT


@pytest.mark.parametrize(
    "word", ["`store`, ", "| `logit_bias` | `{}` or `null` |\n", "| 413 |"]
)
def test_a_table_that_has_drifted_is_seen(word: str) -> None:
    assert word in DOCUMENT
    wrong = DOCUMENT.replace(word, "")
    assert openai_api.written(wrong) == DOCUMENT


def test_no_field_is_in_two_tables() -> None:
    assert not USED.keys() & NEUTRAL.keys()
    assert not (USED.keys() | NEUTRAL.keys()) & DROPPED


def test_every_route_is_in_the_document_and_is_answered() -> None:
    endpoint = server.Endpoint(cast("Session", None), Callers())
    listed = {(method, path) for method, path in map(str.split, ROUTES)}
    for method, path in listed:
        asked = make_mocked_request(method, path)
        assert not isinstance(endpoint._handler(asked), web.Response), path  # pyright: ignore[reportPrivateUsage]
    answered = {
        (method, path)
        for path, methods in endpoint._routes.items()  # pyright: ignore[reportPrivateUsage]
        for method in methods
        if method != "HEAD"
    }
    below = {openai_fields.QUEUE_PATH, f"{openai_fields.MODELS_PATH}/"}
    assert answered == {
        (method, path) for method, path in listed if not path.startswith(tuple(below))
    }


def usage_errors(root: type[UsageError] = UsageError) -> Iterator[type[UsageError]]:
    yield root
    for each in root.__subclasses__():
        yield from usage_errors(each)


def test_every_refusal_is_in_the_document() -> None:
    raised: list[ClientError] = [each("x") for each in usage_errors()]
    raised += [
        BlockedError(rule="r", reason="x", classes=(), policy_digest=""),
        BusyError("x"),
        TooLongError("context_too_long", "x"),
        LocalContextTooLongError(
            prompt_tokens=9, max_tokens=2, context_tokens=10
        ).with_message("y"),
    ]
    bodies = [error_object(each) for each in raised]
    pages = [
        (400, admission.MALFORMED),
        (401, server.NO_CALLER),
        (401, gateway.NO_KEY),
        (403, server.NOT_OURS),
        (403, gateway.NOT_NAMED),
        (404, server.NOT_FOUND),
        (405, server.NOT_ALLOWED),
        (414, admission.LONG_LINE),
        (417, server.NOT_EXPECTED),
        (429, admission.CROWDED),
        (429, gateway.IN_PROGRESS),
        (431, admission.LONG_FIELD),
    ]
    bodies += [(status, json.loads(page)) for status, page in pages]
    found = {(status, _code(body)) for status, body in bodies}
    assert found == set(REFUSALS)


def _code(body: dict[str, object]) -> object:
    error = body["error"]
    assert isinstance(error, dict)
    return cast("dict[str, object]", error)["code"]


def test_nothing_promises_that_all_of_it_works() -> None:
    root = openai_api.PATH.parents[1]
    files = [*root.glob("*.md"), *(root / "docs").glob("*.md")]
    files += [*(root / "cli").rglob("*.py"), *(root / "dev").rglob("*.py")]
    for path in files:
        if path.name != "CHANGELOG.md":
            words = " ".join(path.read_text("utf-8").split())
            assert "OpenAI client works unchanged" not in words, path
            assert "as any OpenAI client would" not in words, path
