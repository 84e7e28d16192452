"""``curtilage explain``: what was found in a text and which rule decides."""

import argparse
import asyncio

from curtilage.cli.examine import start_detectors
from curtilage.cli.options import (
    add_policy_flag,
    add_text,
    config_from,
    text_from,
)
from curtilage.cli.terminal import DONE, REFUSED, Commands, add_command, out
from curtilage.client.config import ClientConfig
from curtilage.client.query import single_query
from curtilage.policy.decision.decide import Inspection, decide
from curtilage.policy.decision.routes import Route
from curtilage.policy.explain.decision import explain, explain_json


def add(
    commands: "Commands[argparse.ArgumentParser]", *, path: str = "curtilage explain"
) -> None:
    """Add the command; ``path`` is how it is called there."""
    parser = add_command(
        commands,
        "explain",
        summary="say what was found in a text and which rule decides",
        text="Say where a text may go and why: the data classes found and their "
        "places, the rule\nthat decides, and the smallest change after which the text "
        "could go a less private\nway. The text itself is never printed.\n\n"
        "Offsets count characters from 0. Everything is looked for, even where the "
        "policy\nends a scan early.",
        example=f"{path}\n{path} --policy clinic --json - < letter.txt\n"
        f'{path} "What is HIV?"',
    )
    add_text(parser, "the text")
    add_policy_flag(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Explain; exit 1 where the policy blocks."""
    config = config_from(arguments)
    policy = config.policy
    inspection = asyncio.run(_inspect(config, text_from(arguments.text)))
    decision = decide(policy.rulebook, inspection)
    tell = explain_json if arguments.json else explain
    out(tell(policy, decision, inspection))
    return REFUSED if decision.route is Route.BLOCK else DONE


async def _inspect(config: ClientConfig, text: str) -> Inspection:
    inspector = await asyncio.to_thread(start_detectors, config.policy, config.currency)
    try:
        return await inspector.ainspect(single_query(text))
    finally:
        inspector.close()
