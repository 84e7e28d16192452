"""docs/openai-api.md shows the tables that the endpoint reads requests by."""

import json
from collections.abc import Iterator
from typing import cast

import pytest
from tools import openai_api

from curtilage.client.endpoint import admission
from curtilage.client.endpoint import server as gateway
from curtilage.client.errors import (
    BlockedError,
    BusyError,
    ClientError,
    TooLongError,
    UsageError,
)
from curtilage.client.local.model import LocalContextTooLongError
from curtilage.client.openai_chat import error_object
from curtilage.client.openai_fields import DROPPED, NEUTRAL, REFUSALS, ROUTES, USED

DOCUMENT = openai_api.PATH.read_text("utf-8")


def test_the_document_shows_what_the_code_does() -> None:
    """Where it fails: `python tools/openai_api.py` writes the tables."""
    assert openai_api.written(DOCUMENT) == DOCUMENT
    for name, table in openai_api.tables().items():
        assert f"<!-- table: {name} -->\n{table}<!-- end -->" in DOCUMENT


@pytest.mark.parametrize("word", ["`store`, ", "| `n` | `1` or `null` |\n", "| 413 |"])
def test_a_table_that_has_drifted_is_seen(word: str) -> None:
    assert word in DOCUMENT
    wrong = DOCUMENT.replace(word, "")
    assert openai_api.written(wrong) == DOCUMENT


def test_no_field_is_in_two_tables() -> None:
    assert not USED.keys() & NEUTRAL.keys()
    assert not (USED.keys() | NEUTRAL.keys()) & DROPPED


def test_every_route_is_in_the_document() -> None:
    paths = {route.partition(" ")[2] for route in ROUTES}
    queue = {each for each in paths if each.startswith(gateway.QUEUE_PATH)}
    model = {each for each in paths if each.startswith(f"{gateway.MODELS_PATH}/")}
    assert len(queue) == len(model) == 1
    assert paths - queue - model == {
        gateway.CHAT_PATH,
        gateway.MODELS_PATH,
        gateway.FEEDBACK_PATH,
        gateway.HEALTH_PATH,
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
        ).told_as("y"),
    ]
    bodies = [error_object(each) for each in raised]
    pages = {
        400: admission.MALFORMED,
        401: gateway.NO_CALLER,
        403: gateway.NOT_OURS,
        404: gateway.NOT_FOUND,
        405: gateway.NOT_ALLOWED,
        414: admission.LONG_LINE,
        417: gateway.NOT_EXPECTED,
        429: admission.CROWDED,
        431: admission.LONG_FIELD,
    }
    bodies += [(status, json.loads(page)) for status, page in pages.items()]
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
