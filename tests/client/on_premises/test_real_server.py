"""A real server, if there is one to ask.

CURTILAGE_ENGINE is its address, such as unix:/run/llm/llm.sock or 127.0.0.1:8000, and
CURTILAGE_ENGINE_MODEL the name of its model, whose chat template must know tools.
"""

import json
import os
from collections.abc import AsyncGenerator

import pytest

from curtilage.client.chat.answer import AnswerEvent, Delta, Finished
from curtilage.client.chat.openai_chat import parse_completion_request
from curtilage.client.on_premises.reasons import TooLongForServerError
from curtilage.client.on_premises.settings import on_premises_settings
from support.on_premises import Asked, asking

SHORT: dict[str, object] = {"max_tokens": 12, "temperature": 0, "seed": 7}
WEATHER = {
    "name": "weather",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


@pytest.fixture
async def real() -> AsyncGenerator[Asked]:
    if "CURTILAGE_ENGINE" not in os.environ:
        pytest.skip("SKIPPED LOUDLY: CURTILAGE_ENGINE names no server to ask")
    address = os.environ["CURTILAGE_ENGINE"]
    settings = on_premises_settings(
        address=address if address.startswith("unix:") else f"http://{address}/v1",
        model=os.environ["CURTILAGE_ENGINE_MODEL"],
        plain_loopback=True,
    )
    async with asking(settings, first_s=60) as asked:
        yield asked


async def ask(real: Asked, text: str, **fields: object) -> list[AnswerEvent]:
    body = {"messages": [user(text)], **SHORT, **fields}
    return await real.ask(parse_completion_request(json.dumps(body).encode()).query)


def user(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


def weather_in(city: str) -> list[dict[str, object]]:
    """Return a question about the weather, a call and its result."""
    function = {"name": "weather", "arguments": json.dumps({"city": city})}
    call = {"id": f"call_{city}", "type": "function", "function": function}
    return [
        user(f"Weather in {city}?"),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{city}", "content": "sunny"},
    ]


def text_of(events: list[AnswerEvent]) -> str:
    return "".join(each.text for each in events if isinstance(each, Delta))


async def test_a_real_server_answers_the_same_twice(real: Asked) -> None:
    first = await ask(real, "Count: one, two, three,")
    assert text_of(first)
    assert text_of(first) == text_of(await ask(real, "Count: one, two, three,"))
    assert isinstance(first[-1], Finished)
    assert first[-1].finish_reason in {"stop", "length"}
    assert first[-1].prompt_tokens > 0


async def test_a_real_server_says_that_a_text_is_too_long(real: Asked) -> None:
    with pytest.raises(TooLongForServerError) as caught:
        await ask(real, "word " * 200_000)
    assert caught.value.limit_tokens


async def test_a_real_server_keeps_to_a_schema(real: Asked) -> None:
    schema = {
        "type": "object",
        "properties": {"town": {"enum": ["Bern", "Basel"]}},
        "required": ["town"],
        "additionalProperties": False,
    }
    wanted = {"name": "town", "strict": True, "schema": schema}
    form = {"type": "json_schema", "json_schema": wanted}
    events = await ask(real, "Where?", max_tokens=60, response_format=form)
    assert json.loads(text_of(events)) in ({"town": "Bern"}, {"town": "Basel"})


@pytest.mark.parametrize("choice", ["required", "named"])
async def test_a_real_server_calls_a_tool(real: Asked, choice: str) -> None:
    function = {"type": "function", "function": {"name": "weather"}}
    events = await ask(
        real,
        "",
        # Examples, as small models otherwise write about the weather first.
        messages=[
            *weather_in("Bern"),
            *weather_in("Rome"),
            *weather_in("Oslo"),
            user("Weather in Basel?"),
        ],
        max_tokens=120,
        tools=[{"type": "function", "function": WEATHER}],
        tool_choice=function if choice == "named" else choice,
        parallel_tool_calls=False,
    )
    calls = [each for x in events if isinstance(x, Delta) for each in x.calls]
    assert {each.name for each in calls if each.name} == {"weather"}
    assert json.loads("".join(each.arguments for each in calls)).keys() == {"city"}
