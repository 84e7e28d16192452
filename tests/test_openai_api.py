"""docs/openai-api.md shows the tables that the endpoint reads requests by."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from tools import openai_api

import curtilage.client
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
    ElsewhereError,
    IncompleteAnswerError,
    TooLongError,
    UsageError,
)
from curtilage.client.local.model import LocalContextTooLongError
from curtilage.client.local.reasons import LocalFailure
from curtilage.client.queue.reasons import REASONS
from curtilage.client.routing.utility import Refusal
from curtilage.enclave_server.ohttp.chat import (
    MAX_QUOTES,
    MAX_STRUCTURE_BYTES,
    ChatLimits,
)
from curtilage.inference import schema
from curtilage.inference.calls import MAX_PARALLEL
from curtilage.inference.formats import FORMATS
from curtilage.inference.grammar import MAX_REPEATS
from curtilage.inference.protocol import MAX_SCHEMA_CHARS
from curtilage.inference.schema import KEYWORDS

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


def test_the_document_names_every_keyword_of_a_schema() -> None:
    section = DOCUMENT.partition("\n## Tools and JSON schemas\n")[2]
    section = " ".join(section.partition("\n## ")[0].split())
    words = set(re.findall(r"`([$A-Za-z0-9-]+)`", section))
    assert {*KEYWORDS, *FORMATS} <= words
    for number, what in (
        (schema.MAX_PROPERTIES, "properties"),
        (schema.MAX_ENUM_VALUES, "listed values"),
        (schema.MAX_SCHEMAS, "parts"),
        (schema.MAX_ALL_REPEATS, "repetitions"),
        (schema.MAX_BOUNDS, "bounds"),
        (MAX_PARALLEL, "calls"),
        (MAX_QUOTES // 2, "strings"),
        (MAX_STRUCTURE_BYTES, "bytes"),
        (ChatLimits().max_tokens, "tokens"),
    ):
        assert f"{number:,} {what}" in section
    assert f"to {MAX_REPEATS:,}" in section
    assert f"depth {schema.MAX_NESTED}" in section
    assert MAX_SCHEMA_CHARS == 64 * 1024
    assert schema.MAX_INTEGER == 10**15


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


def codes_in(source: str) -> set[str]:
    """Return the codes of the errors that a module makes of a literal."""
    made = r"(?:NotRoutedError|TooLongError|TicketError|refusal_of)"
    found = re.findall(rf"{made}\(\s*\"([a-z_]+)\"", source)
    return {*found, *re.findall(r"super\(\).__init__\(\s*\"([a-z_]+)\"", source)}


def test_every_failure_is_in_the_document() -> None:
    rows = openai_api.failures()
    known = {*rows, *REFUSALS}
    elsewhere = [each for each in REASONS.values() if each not in {*LocalFailure}]
    for reason in elsewhere:
        status, body = error_object(ElsewhereError(reason))
        assert (status, _code(body)) in known, reason
        status, body = error_object(IncompleteAnswerError(reason))
        assert (status, _code(body)) in known, reason
    for kind in openai_api.local_errors():
        status, code = kind.http_status, kind.code
        # Tests have classes of their own.
        if kind.__module__.startswith("curtilage."):
            assert (status, code) in known, kind
    root = Path(curtilage.client.__path__[0])
    said = [codes_in(path.read_text("utf-8")) for path in root.rglob("*.py")]
    found = {*Refusal, *set[str]().union(*said)} - {"context_too_long"}
    assert {"queue_full", "queue_expired", "consent_required"} <= found
    assert found <= {code for _, code in known}


def test_each_failure_has_a_meaning_and_says_what_to_do() -> None:
    for (status, code), (meaning, remedy) in openai_api.failures().items():
        assert status >= 400, code
        assert meaning, code
        assert remedy, code
    for word in (*openai_api.MEANINGS, *openai_api.REMEDIES):
        assert word in {code for _, code in openai_api.failures()}, word


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
