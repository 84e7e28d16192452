"""``curtilage explain``: what was found in a text and which rule decides."""

import argparse
import asyncio

from curtilage.client.assemble import inspector_for
from curtilage.client.commands.shared import (
    add_policy_flag,
    config_from,
    single_query,
    text_from,
)
from curtilage.client.commands.terminal import (
    DONE,
    REFUSED,
    Commands,
    add_command,
    out,
    progress,
)
from curtilage.policy.decide import Decision, decide
from curtilage.policy.explain import explain, explain_json
from curtilage.policy.model import Policy
from curtilage.policy.routes import Route


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "explain",
        summary="say what was found in a text and which rule decides",
        text="Say where a text may go and why: the data classes found, and the rule "
        "that decides.\nThe text itself is never printed.",
        example='curtilage explain "My card 4111 1111 1111 1111 was refused"',
    )
    parser.add_argument("text", nargs="+", help="the text; `-` reads it")
    add_policy_flag(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Explain; exit 1 where the policy blocks."""
    policy = config_from(arguments).policy
    decision = asyncio.run(_decide(policy, text_from(arguments.text)))
    if arguments.json:
        out(explain_json(policy, decision))
    else:
        out(explain(policy, decision))
    return REFUSED if decision.route is Route.BLOCK else DONE


async def _decide(policy: Policy, text: str) -> Decision:
    with progress("starting detectors"):
        inspector = await asyncio.to_thread(inspector_for, policy)
    try:
        inspection = await inspector.ainspect(single_query(text))
    finally:
        inspector.close()
    return decide(policy, inspection)
