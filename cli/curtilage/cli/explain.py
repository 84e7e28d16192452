"""``curtilage explain``: the findings in a text and the rule that decides."""

import asyncio

from curtilage.cli.decide_lines import read_lines
from curtilage.cli.declared import Arguments
from curtilage.cli.examine import start_detectors
from curtilage.cli.options import text_from
from curtilage.cli.start import config_from
from curtilage.cli.terminal import DONE, REFUSED, out
from curtilage.client.config import ClientConfig
from curtilage.client.errors import UsageError
from curtilage.client.query import Query, single_query
from curtilage.policy.decision.decide import Inspection, assess
from curtilage.policy.decision.routes import Route
from curtilage.policy.explain.decision import explain, explain_json


def run(arguments: Arguments) -> int:
    """Explain; exit 1 where the policy blocks."""
    config = config_from(arguments)
    policy = config.policy
    text = text_from(arguments.text)
    query: Query | None = single_query(text)
    if arguments.messages:
        ((_, query),) = read_lines([text.encode("utf-8", "surrogateescape")])
    if query is None:
        raise UsageError('--messages needs {"messages": [{"role": …, "content": …}]}')
    inspection = asyncio.run(_inspect(config, query))
    decision = assess(policy.rulebook, inspection)
    render = explain_json if arguments.json else explain
    out(render(policy, decision, inspection))
    return REFUSED if decision.route is Route.BLOCK else DONE


async def _inspect(config: ClientConfig, query: Query) -> Inspection:
    inspector = await asyncio.to_thread(start_detectors, config.policy, config.currency)
    try:
        return await inspector.ainspect(query)
    finally:
        inspector.close()
