"""``curtilage explain``: the findings in a text and the rule that decides."""

import asyncio

from curtilage.cli.decide_lines import read_lines
from curtilage.cli.declared import Arguments
from curtilage.cli.examine import inspect_one
from curtilage.cli.options import text_from
from curtilage.cli.start import config_from
from curtilage.cli.terminal import DONE, REFUSED, out
from curtilage.client.chat.query import Query, single_query
from curtilage.client.errors import UsageError
from curtilage.policy.decision.decide import assess
from curtilage.policy.decision.routes import Route
from curtilage.policy.explain.decision import explain, explain_json


def run(arguments: Arguments) -> int:
    """Explain; exit 1 where the policy blocks."""
    config = config_from(arguments)
    policy = config.policy
    text = text_from(arguments.text)
    query: Query | None = single_query(text)
    if arguments.messages:
        # The inverse of how ``text_from`` decodes, so that invalid bytes are recognised
        # as such.
        ((_, query),) = read_lines([text.encode("utf-8", "surrogateescape")])
    if query is None:
        raise UsageError('--messages needs {"messages": [{"role": …, "content": …}]}')
    inspection = asyncio.run(inspect_one(query, policy, config.currency))
    decision = assess(policy.rulebook, inspection)
    render = explain_json if arguments.json else explain
    out(render(policy, decision, inspection))
    return REFUSED if decision.route is Route.BLOCK else DONE
