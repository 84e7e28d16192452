"""``curtilage route explain``: which tier a text would be answered by, and why."""

import argparse
import asyncio
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Final

from curtilage.cli.examine import start_detectors
from curtilage.cli.options import text_from
from curtilage.cli.start import config_from
from curtilage.cli.terminal import DONE, REFUSED, out, out_json
from curtilage.client.assemble import estimator_of, router_for
from curtilage.client.config import ClientConfig
from curtilage.client.parts import UnavailableLocal
from curtilage.client.query import Query, Settings, single_query
from curtilage.client.routing.estimate import Estimate, Estimator
from curtilage.client.routing.estimators import open_estimator
from curtilage.client.routing.explain import explain_text
from curtilage.client.routing.health import TierView
from curtilage.client.routing.router import CHOSEN, WHY_NOT, Routed, Router
from curtilage.client.routing.utility import Reason
from curtilage.policy.decision.classes import STALE_POLICY
from curtilage.policy.decision.decide import Assessment, assess
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import DEFAULT
from curtilage.policy.document.model import Policy
from curtilage.policy.explain.decision import (
    CONSENT,
    NO_ENCLAVE,
    NOT_IN_FORCE,
    asks_first,
)
from curtilage.policy.explain.routing import ABSENT, OBSERVES

UNREAD: Final = "read      not for what it asks: there is nothing to choose"


def run(arguments: argparse.Namespace) -> int:
    """Explain; exit 1 where the policy blocks, or nobody may answer."""
    text = text_from(arguments.text)
    config = config_from(arguments)
    settings = Settings(max_tokens=arguments.max_tokens)
    query = replace(single_query(text), settings=settings)
    decision = asyncio.run(_decided(config, query))
    router = router_for(config.policy, UnavailableLocal("not started"))
    routed = None if router is None else routed_by(router, decision, query)
    nobody = not decision.permitted.tiers or (routed and not routed.choice.order)
    if arguments.json:
        out_json(object_of(config.policy, decision, router, routed))
    else:
        for line in words_of(config.policy, decision, query, router, routed):
            out(line)
        may_leave = decision.route in {Route.ENCLAVE, Route.DEIDENTIFY}
        if may_leave and config.policy.attestation is None:
            out(f"          {NO_ENCLAVE}")
    return REFUSED if decision.route is Route.BLOCK or nobody else DONE


async def _decided(config: ClientConfig, query: Query) -> Assessment:
    inspector = await asyncio.to_thread(start_detectors, config.policy, config.currency)
    try:
        return assess(config.policy.rulebook, await inspector.ainspect(query))
    finally:
        inspector.close()


def routed_by(router: Router, decision: Assessment, query: Query) -> Routed:
    """Return what a session would choose for a query that begins a conversation."""
    permitted = decision.permitted
    if router.chooses(permitted):
        return router.route(permitted, query, conversation=b"")
    return router.route_unread(
        permitted,
        query.options,
        octets=query.octets,
        messages=len(query.messages),
        most=query.settings.max_tokens,
    )


def words_of(
    policy: Policy,
    decision: Assessment,
    query: Query,
    router: Router | None,
    routed: Routed | None,
) -> Iterator[str]:
    """Yield in lines what is permitted, what is expected, and what would be chosen."""
    permitted = decision.permitted
    kind = permitted.routing_class.value
    if decision.route is Route.BLOCK:
        # Of tiers there is nothing to say: no reason of theirs keeps it from them.
        yield f"policy    route {decision.route.value}"
        yield f"choice    none: {_blocked_by(decision)}"
        return
    yield f"policy    route {decision.route.value}, class {kind}"
    yield from _conditions(policy, decision)
    if routed is None or router is None:
        yield from _unrouted(decision, query)
        return
    found, choice = routed.estimate, routed.choice
    yield from _permitted(router, routed)
    yield from _expected(estimator_of(router.plan), query, found)
    if choice.refusal is not None:
        yield f"choice    nobody: {router.remedy(routed)}"
        return
    yield f"choice    {choice.order[0].id}: {CHOSEN[choice.reason]}"
    if choice.reason is Reason.PRIVATE_TIE and found.source == "rules":
        yield "          (at the lower end of the gain another would not be better)"
    if router.plan.observe:
        yield f"          the policy observes: {OBSERVES}"


def _conditions(policy: Policy, decision: Assessment) -> Iterator[str]:
    if STALE_POLICY in decision.uncertain:
        yield f"          {NOT_IN_FORCE}"
    if decision.route is Route.DEIDENTIFY:
        yield "          what it becomes without its names is decided anew"
    if asks_first(policy, decision):
        yield f"          {CONSENT}"


def _permitted(router: Router, routed: Routed) -> Iterator[str]:
    found, choice = routed.estimate, routed.choice
    views = router.views()
    for tier, score in zip(choice.order, choice.scores, strict=True):
        yield f"permitted {tier.id} ({tier.kind.value}): {score:+.3f}"
        terms = _terms(views[tier.id], found.prompt_tokens, found.answer_tokens)
        yield f"          {terms}"
    for name, denial in choice.denied:
        yield f"not       {name}: {WHY_NOT[denial]}"


def _blocked_by(decision: Assessment) -> str:
    if decision.rule == DEFAULT:
        return "the policy's default blocks it"
    reason = decision.reason.strip()
    return f"a rule blocks it: {decision.rule}{f' ({reason})' if reason else ''}"


def _unrouted(decision: Assessment, query: Query) -> Iterator[str]:
    for tier in decision.permitted.tiers:
        yield f"permitted {tier.id} ({tier.kind.value})"
    for name, denial in decision.permitted.denied:
        yield f"not       {name}: {WHY_NOT[denial]}"
    yield from _expected(open_estimator(), query)
    yield f"choice    the policy has no routing section: {ABSENT}"


def _expected(
    estimator: Estimator, query: Query, found: Estimate | None = None
) -> Iterator[str]:
    """Yield what is expected of a text, and what the router takes in its place."""
    if found is not None and found.source == "unread":
        yield f"tokens    about {found.prompt_tokens} asked"
        yield UNREAD
        return
    text, most = query.messages[0].content, query.settings.max_tokens
    for line in explain_text(estimator, text, most):
        yield f"{line[:9]} {line[9:]}"
    read = estimator.estimate(text, most)
    if found and (found.gain_low, found.gain_high) != (read.gain_low, read.gain_high):
        yield (
            f"          taken as {found.gain:+.2f}, between {found.gain_low:+.2f} and "
            f"{found.gain_high:+.2f}: small models do short tasks of this kind about "
            "as well"
        )


def _terms(view: TierView, prompt: int, answer: int) -> str:
    return (
        f"quality {view.quality_permille / 10:g} of 100; first text after "
        f"{view.ttft_ms(prompt) / 1000:.2f} s, the end after "
        f"{view.total_ms(prompt, answer) / 1000:.1f} s; "
        f"${view.cost_microusd(prompt, answer) / 1e6:.6f}"
    )


def object_of(
    policy: Policy,
    decision: Assessment,
    router: Router | None,
    routed: Routed | None,
) -> dict[str, object]:
    """Return the same for a program."""
    permitted = decision.permitted
    said: dict[str, object] = {
        "policy": policy.digest,
        "route": decision.route.value,
        "routing_class": permitted.routing_class.value,
        "permitted": [tier.id for tier in permitted.tiers],
        "denied": {name: denial.value for name, denial in permitted.denied},
        "consent": asks_first(policy, decision),
        "choice": None,
    }
    if decision.route is Route.BLOCK:
        # No reason of a tier: whichever was asked, the rule would block it.
        said["denied"] = dict[str, str]()
        return said | {"refusal": "blocked", "rule": decision.rule}
    if routed is None or router is None:
        return said
    found, choice = routed.estimate, routed.choice
    views = router.views()
    return said | {
        "denied": {name: denial.value for name, denial in choice.denied},
        "estimate": asdict(found),
        "tiers": {
            tier.id: {
                "score": score,
                "quality_permille": views[tier.id].quality_permille,
                "ttft_ms": views[tier.id].ttft_ms(found.prompt_tokens),
                "total_ms": views[tier.id].total_ms(
                    found.prompt_tokens, found.answer_tokens
                ),
                "cost_microusd": views[tier.id].cost_microusd(
                    found.prompt_tokens, found.answer_tokens
                ),
            }
            for tier, score in zip(choice.order, choice.scores, strict=True)
        },
        "choice": choice.order[0].id if choice.order else None,
        "why": choice.reason.value,
        "refusal": None if choice.refusal is None else choice.refusal.value,
        "observing": router.plan.observe,
    }
