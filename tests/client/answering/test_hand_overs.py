"""Which modules get the text of a query, on its way to a tier."""

import dataclasses
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import cast

import pytest

from curtilage.client.assemble import router_for
from curtilage.client.parts import ClientParts
from curtilage.client.session import Session
from curtilage.policy.document.load import load_profile
from support.client_parts import MemoryTrail, ScriptedLocal, WordInspector, query
from support.memory_enclave import Clock, MemoryEnclave, key_store

NEEDLE = "a linked list of integers"
CLIENT = "/curtilage/client/"
DEEP = 4


def holds(value: object, depth: int = 0) -> bool:
    """Return whether a value has the text, or one of its fields and items has it."""
    if isinstance(value, str):
        return NEEDLE in value
    if isinstance(value, bytes | bytearray):
        return NEEDLE.encode() in value
    inside: list[object] = []
    if isinstance(value, Mapping):
        inside = list(cast("Mapping[object, object]", value).values())
    elif isinstance(value, list | tuple | set | frozenset):
        inside = list(cast("Iterable[object]", value))
    elif dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        inside = [getattr(value, each.name, None) for each in fields]
    return depth < DEEP and any(holds(each, depth + 1) for each in inside)


@contextmanager
def handed_over() -> Generator[list[str]]:
    """Yield the modules of the client that are called with the text, in order."""
    path: list[str] = []
    seen: dict[int, FrameType] = {}  # kept, so that no identity is used twice

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or id(frame) in seen:  # a resumed generator gets nothing
            return
        seen[id(frame)] = frame
        code = frame.f_code
        _, _, module = code.co_filename.partition(CLIENT)
        # A query consists of turns: both are one type, in two modules.
        module = module.replace("chat/turns.py", "chat/query.py")
        if not module:
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        arguments = [frame.f_locals.get(name) for name in names]
        sys.setprofile(None)
        try:
            if any(holds(each) for each in arguments) and path[-1:] != [module]:
                path.append(module)
        finally:
            sys.setprofile(watch)

    sys.setprofile(watch)
    try:
        yield path
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(
    ("named", "tier", "modules", "hand_overs"),
    [("", "enclave", 16, 40), ("For Ann: ", "local", 6, 15)],
)
async def test_in_answering_only_the_pipeline_and_a_tier_get_the_text(
    named: str, tier: str, modules: int, hand_overs: int
) -> None:
    """From the query until its answer is remembered; detectors are not included."""
    policy, local = load_profile("default"), ScriptedLocal()
    session = Session(
        ClientParts(
            policy=policy,
            inspector=WordInspector({"Ann": "health.condition.person"}),
            local=local,
            transport=MemoryEnclave(),
            keys=key_store(),
            audit=MemoryTrail(),
            router=router_for(policy, local),
            clock=Clock(),
        )
    )
    async with session:
        with handed_over() as path:
            answer = await session.ask(query(f"{named}How do I reverse {NEEDLE}?"))
    assert answer.route.value == tier
    inside = {each for each in path if each.startswith("answering/")}
    assert inside == {
        "answering/pipeline.py",
        f"answering/tiers/{tier}.py",
    }
    assert len(set(path)) <= modules
    assert len(path) - 1 <= hand_overs
