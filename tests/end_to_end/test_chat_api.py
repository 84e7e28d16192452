"""Formats, tools and several answers over the whole path, on each route."""

import json
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, cast

import openai
import pytest
from openai.types.chat import ChatCompletion
from pydantic import BaseModel, ConfigDict, Field

from curtilage.attest.receipt import open_receipt
from curtilage.attest.verify import verify
from curtilage.cli.audit.receipt import ANY_NAME
from curtilage.client.audit.directory import AuditDirectory
from curtilage.client.audit.record import (
    AuditRecord,
    Line,
    Outcome,
    ReceiptLine,
    parse_line,
    receipt_secret,
)
from curtilage.client.chat.openai_chat import parse_completion_request
from curtilage.client.remote.receipts import proves_question
from curtilage.policy.document.load import load_policy
from curtilage.policy.expectations import expectations_from
from curtilage_dev.stack import Stack

HARMLESS: Final = "Where is the printer that jams?"
REGULATED: Final = "Where is the printer? My card is 4111 1111 1111 1111."
FINGERPRINTS: Final = {
    "enclave": "curtilage:enclave:emulated-sev-snp",
    "local": "curtilage:local",
}
BOUND: Final = 128
"""Tokens, which are bytes. The longest call or object here has fewer."""


class Ticket(BaseModel):
    """A form that a model of random weights fills in only if it is made to."""

    model_config = ConfigDict(extra="forbid", strict=True)

    device: str = Field(max_length=8)
    floor: int = Field(ge=0, le=99)
    urgent: bool


class Place(BaseModel):
    """The arguments of the tool."""

    model_config = ConfigDict(extra="forbid", strict=True)

    floor: int = Field(ge=0, le=99)


FORMAT: Final[dict[str, Any]] = {
    "type": "json_schema",
    "json_schema": {
        "name": "ticket",
        "schema": Ticket.model_json_schema(),
        "strict": True,
    },
}
# Not strict: OpenAI's package then refuses a stream that a limit ended.
TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "find",
        "description": "Finds the devices of a floor",
        "parameters": Place.model_json_schema(),
    },
}
RESULT: Final = "One printer, next to the stairs. " * 10
"""Longer than what a template writes around it."""


@pytest.fixture(scope="module")
def whole(stack: Stack) -> Generator[Stack]:
    stack.start_client()
    yield stack
    stack.running["client"].stop()


@dataclass(frozen=True, kw_only=True)
class Asking:
    """Asks on one route, and looks up what the client recorded of it."""

    stack: Stack
    client: openai.OpenAI
    receipt_key: bytes
    route: str
    stream: bool

    @property
    def messages(self) -> list[Any]:
        text = HARMLESS if self.route == "enclave" else REGULATED
        return [{"role": "user", "content": text}]

    def ask(self, **fields: object) -> ChatCompletion:
        """Return the answer, of the expected route and with its receipt."""
        body: dict[str, Any] = {"model": "curtilage", **fields}
        before = len(self._lines())
        answer = self._answer(body)
        assert answer.system_fingerprint == FINGERPRINTS[self.route]
        # Of a stream that was cut, both are missing.
        assert all(each.finish_reason for each in answer.choices)
        assert answer.usage is not None
        self._check(body, self._lines()[before:])
        return answer

    def _answer(self, body: dict[str, Any]) -> ChatCompletion:
        made: Any = self.client.chat.completions
        if not self.stream:
            return cast("ChatCompletion", made.create(**body))
        usage = {"include_usage": True}
        with made.stream(**body, stream_options=usage) as events:
            for _ in events:
                pass
            return cast("ChatCompletion", events.current_completion_snapshot)

    def _check(self, body: dict[str, Any], lines: list[Line]) -> None:
        """What was sent has one verified receipt; what was not has none."""
        (record,) = [each for each in lines if isinstance(each, AuditRecord)]
        receipts = [each for each in lines if isinstance(each, ReceiptLine)]
        if self.route == "local":
            assert record.outcome is Outcome.LOCAL
            assert receipts == []
            return
        assert record.outcome is Outcome.ENCLAVE
        (line,) = receipts
        assert (line.query, line.attempt) == (record.query, record.attempt)
        receipt = open_receipt(bytes.fromhex(line.receipt), public_key=self.receipt_key)
        assert receipt.model_digest.hex() == self.stack.model_sha256
        request = json.dumps({**body, "stream": self.stream}).encode()
        sent = parse_completion_request(request, ANY_NAME).query.payload().content
        secret = receipt_secret(
            AuditDirectory(self.stack.audit).keys().organisation,
            bytes.fromhex(line.receipt_id),
        )
        assert proves_question(receipt, secret, sent)

    def _lines(self) -> list[Line]:
        log = AuditDirectory(self.stack.audit)
        read = b"".join(
            piece for number in log.segments() for piece in log.read_segment(number)
        )
        return [parse_line(each) for each in read.splitlines()]


@pytest.fixture(scope="module")
def receipt_key(whole: Stack) -> bytes:
    policy = load_policy(whole.policy.read_text("utf-8"))
    bundle = whole.fetch_bundle().read_bytes()
    expected = expectations_from(policy)
    return verify(bundle, expected, now=datetime.now(UTC)).receipt_public_key


@pytest.fixture(params=["enclave", "local"])
def route(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)


@pytest.fixture(params=[False, True], ids=["complete", "streamed"])
def asking(
    request: pytest.FixtureRequest, whole: Stack, receipt_key: bytes, route: str
) -> Generator[Asking]:
    with closing(openai.OpenAI(base_url=whole.client_url, api_key="unused")) as client:
        yield Asking(
            stack=whole,
            client=client,
            receipt_key=receipt_key,
            route=route,
            stream=cast("bool", request.param),
        )


def test_an_answer_is_json_of_the_schema(asking: Asking) -> None:
    answer = asking.ask(
        messages=asking.messages,
        response_format=FORMAT,
        max_tokens=BOUND,
        temperature=0,
    )
    (choice,) = answer.choices
    assert choice.finish_reason == "stop"
    Ticket.model_validate_json(choice.message.content or "")


def test_a_required_call_is_made_and_its_result_is_read(asking: Asking) -> None:
    answer = asking.ask(
        messages=asking.messages,
        tools=[TOOL],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=BOUND,
        temperature=0,
    )
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    (call,) = cast("list[Any]", choice.message.tool_calls)
    assert call.function.name == "find"
    Place.model_validate_json(call.function.arguments)
    turn = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": "find", "arguments": call.function.arguments},
            }
        ],
    }
    result = {"role": "tool", "tool_call_id": call.id, "content": RESULT}
    final = asking.ask(
        messages=[*asking.messages, turn, result],
        tools=[TOOL],
        max_tokens=8,
        temperature=0,
    )
    assert final.choices[0].finish_reason in {"stop", "length"}
    assert answer.usage is not None
    assert final.usage is not None
    # Tokens are bytes: the model read the call and its result as well.
    more = final.usage.prompt_tokens - answer.usage.prompt_tokens
    assert more > len(call.function.arguments + RESULT)


def test_two_answers_are_given(asking: Asking) -> None:
    answer = asking.ask(messages=asking.messages, n=2, max_tokens=16, temperature=1)
    assert [each.index for each in answer.choices] == [0, 1]
    first, second = [each.message.content for each in answer.choices]
    assert first != second
