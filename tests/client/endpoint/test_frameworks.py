"""LangChain and LiteLLM against the endpoint, on both routes.

They are not installed with the tests: ``CURTILAGE_FRAMEWORKS`` names a Python that has
``langchain-openai`` and ``litellm``.
"""

import asyncio
import os
import subprocess
from inspect import cleandoc
from pathlib import Path

import pytest
from client.endpoint.test_chat_api import CALL, WORDS, Asked, both_routes

from curtilage.inference.protocol import ToolCall
from curtilage_dev.scripted_engine import Script

PYTHON = os.environ.get("CURTILAGE_FRAMEWORKS", "")
pytestmark = pytest.mark.skipif(
    not Path(PYTHON).is_file(), reason="CURTILAGE_FRAMEWORKS names no Python"
)

BED = '{"ward": "A", "number": 3}'
LANGCHAIN = """
import sys
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

class Bed(BaseModel):
    ward: str
    number: int

def find(who: str) -> str:
    '''Find a patient.'''
    return "bed 3"

url, text = sys.argv[1:]
model = ChatOpenAI(base_url=url, api_key="unused", model="curtilage", max_retries=0)
"""
STRUCTURED = """
asked = model.with_structured_output(Bed, method="{method}")
assert asked.invoke(text) == Bed(ward="A", number=3)
"""
BOUND = """
tools = model.bind_tools([find])
first = tools.invoke([HumanMessage(text)])
assert [(each["name"], each["args"]) for each in first.tool_calls] == [
    ("find", {"who": "Bo"})
]
result = ToolMessage("bed 3", tool_call_id=first.tool_calls[0]["id"])
assert tools.invoke([HumanMessage(text), first, result]).content == "In 3."
"""
LITELLM = """
import json, sys
import litellm

url, text = sys.argv[1:]
schema = {"type": "object", "properties": {"who": {"type": "string"}}}
tool = {"type": "function", "function": {"name": "find", "parameters": schema}}
asked = {
    "model": "openai/curtilage", "api_base": url, "api_key": "unused",
    "tools": [tool], "num_retries": 0,
}
turns = [{"role": "user", "content": text}]
"""
CALLED = """
answer = litellm.completion(messages=turns, **asked)
(call,) = answer.choices[0].message.tool_calls
assert (call.function.name, json.loads(call.function.arguments)) == (
    "find", {"who": "Bo"}
)
turns.append(answer.choices[0].message.model_dump())
turns.append({"role": "tool", "tool_call_id": call.id, "content": "bed 3"})
answer = litellm.completion(messages=turns, **asked)
assert answer.choices[0].message.content == "In 3."
"""
STREAMED = """
chunks = [*litellm.completion(messages=turns, stream=True, **asked)]
answer = litellm.stream_chunk_builder(chunks)
(call,) = answer.choices[0].message.tool_calls
assert (call.function.name, json.loads(call.function.arguments)) == (
    "find", {"who": "Bo"}
)
"""
TWO_STEPS = (Script(pieces=(CALL,)), Script(pieces=("In 3.",)))
CASES: dict[str, tuple[str, tuple[Script, ...]]] = {
    "json_schema": (
        LANGCHAIN + STRUCTURED.format(method="json_schema"),
        (Script(pieces=(BED,)),),
    ),
    "json_mode": (
        LANGCHAIN + STRUCTURED.format(method="json_mode"),
        (Script(pieces=(BED,)),),
    ),
    "function_calling": (
        LANGCHAIN + STRUCTURED.format(method="function_calling"),
        (Script(pieces=(ToolCall(id="x", name="Bed", arguments=BED),)),),
    ),
    "bind_tools": (LANGCHAIN + BOUND, TWO_STEPS),
    "litellm": (LITELLM + CALLED, TWO_STEPS),
    "litellm_streamed": (LITELLM + STREAMED, TWO_STEPS[:1]),
}


@both_routes
@pytest.mark.parametrize("case", CASES)
async def test_a_framework_is_answered(route: str, case: str) -> None:
    program, scripts = CASES[case]
    asked = Asked(*scripts, **WORDS)
    text = "Find Bo" if route == "enclave" else "Find Bo, 4111"
    async with asked.client() as client:
        process = await asyncio.create_subprocess_exec(
            *(PYTHON, "-c", cleandoc(program), str(client.base_url), text),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        )
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert len(asked.engine_of(route).requests) == len(scripts)
