"""A step that a policy does not turn on is not imported."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence

ANSWERING = "curtilage.client.answering.steps"
DRAFTS = {f"{ANSWERING}.drafts", "curtilage.client.routing.speculate"}
CONSENT = {f"{ANSWERING}.consent", "curtilage.client.consent"}
CONVERSATION = "curtilage.client.conversation"
BOUNDARY = {f"{CONVERSATION}.{name}" for name in ("narrowing", "excerpt", "redaction")}
CONTENT = {f"{CONVERSATION}.{name}" for name in ("contents", "everyday")}
QUEUE = {f"{ANSWERING}.queueing", "curtilage.client.queue"}
OPTIONAL = {
    *DRAFTS,
    *CONSENT,
    *BOUNDARY,
    *CONTENT,
    *QUEUE,
    f"{ANSWERING}.hedging",
    f"{ANSWERING}.doubt",
}
PLAIN_QUESTION = "How do I reverse a linked list in C?"
ABOUT_ANN = "What does Ann have?"
PROGRAM = """\
import asyncio, json, sys
import curtilage.client.api, curtilage.client.endpoint.server
from curtilage.client.assemble import queue_of, router_for
from curtilage.client.errors import ClientError
from curtilage.client.parts import ClientParts
from curtilage.client.session import Session
from curtilage.policy.document.load import load_policy, load_profile
from support.client_parts import PLAIN, MemoryTrail, ScriptedLocal, WordInspector, query
from support.memory_enclave import Clock, MemoryEnclave, key_store

async def main(section, questions):
    sticky = PLAIN.replace("sticky: conversation", "sticky: content")
    policy = load_policy(sticky + section) if section else load_profile("default")
    local = ScriptedLocal()
    session = Session(
        ClientParts(
            policy=policy,
            inspector=WordInspector({"Ann": "identifier.direct.person"}),
            local=local,
            transport=MemoryEnclave(),
            keys=key_store(),
            audit=MemoryTrail(),
            router=router_for(policy, local),
            queue=queue_of(policy),
            clock=Clock(),
        )
    )
    routes = []
    async with session:
        for question in questions:
            try:
                routes.append((await session.ask(query(question))).route)
            except ClientError as error:
                routes.append(type(error).__name__)
    return routes

routes = asyncio.run(main(*json.loads(sys.argv[1])))
print(json.dumps({"routes": routes, "modules": sorted(sys.modules)}))
"""


def ran(section: str, questions: Sequence[str]) -> tuple[list[str], set[str]]:
    """Return who answered in a fresh interpreter, and what it imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([section, list(questions)])],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(done.stdout)
    return said["routes"], set(said["modules"])


def test_the_default_profile_imports_no_optional_step() -> None:
    """It has drafts, but no thresholds for this model, and no tier is late."""
    routes, modules = ran("", (PLAIN_QUESTION, ABOUT_ANN))
    assert set(routes) <= {"enclave", "local"}
    assert "curtilage.client.answering.pipeline" in modules
    assert not modules & OPTIONAL


def test_a_policy_that_turns_steps_on_has_them_imported() -> None:
    """Else the test above could not fail."""
    section = """
routing:
  tiers: [{id: device, kind: in_process}, {id: enclave, kind: attested}]
  classes:
    confidential: {consent: required}
    restricted: {history: safe_summary}
  queue: {store: memory}
"""
    _, modules = ran(section, (ABOUT_ANN,))
    queue = {"curtilage.client.queue.deferring"}
    assert modules >= CONSENT | BOUNDARY | CONTENT | queue
    assert f"{ANSWERING}.drafts" not in modules
