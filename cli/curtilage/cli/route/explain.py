"""``curtilage route explain``: which tier would answer a text, and why."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import BinaryIO, Final

from curtilage.cli.declared import Arguments
from curtilage.cli.examine import inspect_one, start_many
from curtilage.cli.options import text_from
from curtilage.cli.provenance import demonstration_words
from curtilage.cli.route.explain_lines import Inspected, Unread, inspected
from curtilage.cli.start import config_from
from curtilage.cli.terminal import COULD_NOT, DONE, REFUSED, err, out, out_json, plural
from curtilage.client.assemble import estimator_of, router_for, unloaded_model
from curtilage.client.chat.query import Query, Settings, single_query
from curtilage.client.errors import UsageError
from curtilage.client.parts import AnswersLocally, demonstrates, known_model
from curtilage.client.routing.estimate import Estimate, Estimator
from curtilage.client.routing.estimators import open_estimator
from curtilage.client.routing.explain import explain_text
from curtilage.client.routing.router import CHOSEN, WHY_NOT, Routed, Router
from curtilage.client.routing.utility import Reason
from curtilage.client.system.files import open_named
from curtilage.policy.decision.classes import STALE_POLICY
from curtilage.policy.decision.decide import Assessment, assess
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import DEFAULT
from curtilage.policy.decision.tiers import TierKind
from curtilage.policy.document.model import Policy
from curtilage.policy.document.routing_settings import Aim
from curtilage.policy.explain.decision import (
    CONSENT,
    NO_ENCLAVE,
    NOT_IN_FORCE,
    asks_first,
)
from curtilage.policy.explain.routing import ABSENT, OBSERVES, aim_in_words

NO_ROUTING: Final = "no_routing"
BLOCKED_BY_DEFAULT: Final = "the policy's default blocks it"
UNREAD: Final = "read      no estimate: there is nothing to choose"


def run(arguments: Arguments) -> int:
    """Explain; exit 1 if the policy blocks, or no tier may answer."""
    if arguments.jsonl is not None:
        return _run_lines(arguments)
    text = text_from(arguments.text)
    config = config_from(arguments)
    settings = Settings(max_tokens=arguments.max_tokens)
    query = replace(single_query(text), settings=settings)
    # Not loaded: what is known of it by its digest is enough, and loading takes seconds
    # and gigabytes.
    model = unloaded_model(config)
    inspection = asyncio.run(inspect_one(query, config.policy, config.currency))
    # ``assess`` and not ``decide``: it returns no permission, so that explaining a
    # query can never send it.
    decision = assess(config.policy.rulebook, inspection)
    router = router_for(config.policy, model)
    routed = None if router is None else routed_by(router, decision, query)
    unanswerable = not decision.permitted.tiers or (routed and not routed.choice.order)
    if arguments.json:
        fields = object_of(config.policy, decision, router, routed)
        out_json(fields | {"demonstration": demonstrates(model)})
    else:
        for line in words_of(config.policy, decision, query, router, routed):
            out(line)
        if demonstrates(model):
            words = "\n          ".join(demonstration_words(config.policy, router))
            out(f"model     {words}")
        elif assumed := _assumed_words(router, model):
            out(f"model     {assumed}")
        may_leave = decision.route in {Route.ENCLAVE, Route.DEIDENTIFY}
        if may_leave and config.policy.attestation is None:
            out(f"          {NO_ENCLAVE}")
    return REFUSED if decision.route is Route.BLOCK or unanswerable else DONE


def _run_lines(arguments: Arguments) -> int:
    """Explain every line; exit 3 if some cannot be read."""
    if arguments.text or arguments.json:
        raise UsageError("--jsonl excludes a text and --json")
    config = config_from(arguments)
    settings = Settings(max_tokens=arguments.max_tokens)
    model = unloaded_model(config)
    router = router_for(config.policy, model)
    row_of = rows_by(config.policy, router, settings)
    unread = 0
    with ExitStack() as opened:
        file: BinaryIO = sys.stdin.buffer
        if arguments.jsonl != "-":
            file = opened.enter_context(open_named(Path(arguments.jsonl)))
        inspector = start_many(config.policy, config.currency)
        opened.callback(inspector.close)
        for line in inspected(file, inspector):
            unread += isinstance(line, Unread)
            # Each row at once, since a program may wait for it before it writes its
            # next line.
            out_json(row_of(line))
    if config.policy.attestation is None:
        err(NO_ENCLAVE)
    if demonstrates(model):
        words = "; ".join(demonstration_words(config.policy, router))
        err(f"the local model is {words}")
    elif assumed := _assumed_words(router, model):
        err(f"the local model is {assumed}")
    if unread:
        err(f"{unread} {plural(unread, 'line')} could not be read")
    return COULD_NOT if unread else DONE


def _assumed_words(router: Router | None, model: AnswersLocally) -> str | None:
    """Return the assumed quality of a model without a known one, or None."""
    if router is None or known_model(model) is not None:
        return None
    local = [t for t in router.plan.tiers if t.kind is TierKind.IN_PROCESS]
    if not local or local[0].priors.quality_permille is not None:
        return None
    quality = router.views()[local[0].id].quality_permille / 10
    return (
        f"not in the catalogue: quality {quality:g} of 100 is assumed "
        "(routing.tiers: priors.quality_permille overrides it)"
    )


def rows_by(
    policy: Policy, router: Router | None, settings: Settings
) -> Callable[[Inspected | Unread], dict[str, object]]:
    """Return a function that makes the output row of a line.

    Args:
        policy: the policy.
        router: its router; None: the policy has no routing section.
        settings: of every query; the length of the answer counts.
    """

    def row_of(line: Inspected | Unread) -> dict[str, object]:
        # A row all the same, so that rows can be matched with the lines of the input.
        if isinstance(line, Unread):
            return {"id": line.id, "error": line.problem}
        query = replace(line.query, settings=settings)
        decision = assess(policy.rulebook, line.inspection)
        row: dict[str, object] = {
            "id": line.id,
            "permitted": [tier.id for tier in decision.permitted.tiers],
            "chosen": None,
            "why": None,
            "intent": None,
            "gain": None,
            "rank": None,
        }
        if decision.route is Route.BLOCK:
            return row | {"why": "blocked"}
        if router is None:
            return row | {"why": NO_ROUTING}
        routed = routed_by(router, decision, query)
        choice, found = routed.choice, routed.estimate
        if choice.refusal is not None:
            row["why"] = choice.refusal.value
        else:
            row |= {"chosen": choice.order[0].id, "why": choice.reason.value}
        if found.source == "unread":
            # The text was not read for an estimate, so the gain is only a placeholder.
            return row | {"intent": found.intent.value}
        if routed.standing is not None:
            row["rank"] = round(routed.standing.rank, 4)
        return row | {"intent": found.intent.value, "gain": round(found.gain, 4)}

    return row_of


def routed_by(router: Router, decision: Assessment, query: Query) -> Routed:
    """Return a session's choice for the first query of a conversation."""
    permitted = decision.permitted
    if router.chooses(permitted):
        # No real key is empty, so there is no earlier turn that the choice could depend
        # on.
        return router.route(permitted, query, conversation=b"")
    # As in a session: without a choice, the text is not read.
    return router.route_unread(
        permitted,
        query.options,
        text_bytes=query.text_bytes,
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
    """Yield lines: the permitted tiers, the estimate, and the choice."""
    permitted = decision.permitted
    kind = permitted.routing_class.value
    if decision.route is Route.BLOCK:
        # Tiers are not listed: the rule blocks the query, not a condition of a tier.
        yield f"policy    route {decision.route.value}"
        cause, reason = BLOCKED_BY_DEFAULT, decision.reason.strip()
        if decision.rule != DEFAULT:
            also = f" ({reason})" if reason else ""
            cause = f"a rule blocks it: {decision.rule}{also}"
        yield f"choice    none: {cause}"
        return
    yield f"policy    route {decision.route.value}, class {kind}"
    yield from _conditions(policy, decision)
    if routed is None or router is None:
        yield from _unrouted(decision, query)
        return
    found, choice = routed.estimate, routed.choice
    yield from _permitted(router, routed)
    yield from _expected(estimator_of(router.plan, policy.routing_files), query, found)
    if choice.refusal is not None:
        yield f"choice    none: {router.remedy(routed)}"
        return
    yield from _standing(router.plan.aim, routed)
    yield f"choice    {choice.order[0].id}: {CHOSEN[choice.reason]}"
    if choice.reason is Reason.PRIVATE_TIE and found.source == "rules":
        yield "          (at the lower bound of the gain no other tier would be better)"
    if router.plan.observe:
        yield f"          the policy observes: {OBSERVES}"


def _standing(aim: Aim | None, routed: Routed) -> Iterator[str]:
    """Yield the rank, its distance from the line, and the aim that sets the line."""
    standing, found = routed.standing, routed.estimate
    if standing is None:
        return
    rank = round(100 * standing.rank)
    said = (
        f"with a gain between {found.gain_low:+.2f} and {found.gain_high:+.2f}, it "
        f"needs a strong model more than {rank} of 100 ordinary questions do"
    )
    if aim is None or standing.line is None:
        yield f"rank      {said}"
        return
    # Both rounded before they are compared: the text must not say "below" for two equal
    # numbers.
    line = round(100 * standing.line)
    side = "below" if rank < line else "above"
    where = "on the line" if rank == line else f"{abs(rank - line)} {side} the line"
    yield f"rank      {said}: {where}, which is at {line} under the policy's aim"
    yield f"          ({aim_in_words(aim)})"


def _conditions(policy: Policy, decision: Assessment) -> Iterator[str]:
    if STALE_POLICY in decision.uncertain:
        yield f"          {NOT_IN_FORCE}"
    if decision.route is Route.DEIDENTIFY:
        yield "          the text without its names is decided anew"
    if asks_first(policy, decision):
        yield f"          {CONSENT}"


def _permitted(router: Router, routed: Routed) -> Iterator[str]:
    found, choice = routed.estimate, routed.choice
    views = router.views()
    for tier, score in zip(choice.order, choice.scores, strict=True):
        yield f"permitted {tier.id} ({tier.kind.value}): {score:+.3f}"
        view, prompt, answer = views[tier.id], found.prompt_tokens, found.answer_tokens
        quality = view.quality_permille / 10
        yield (
            f"          quality {quality:g} of 100; first text after "
            f"{view.ttft_ms(prompt) / 1000:.2f} s, the end after "
            f"{view.total_ms(prompt, answer) / 1000:.1f} s; "
            f"${view.cost_microusd(prompt, answer) / 1e6:.6f}"
        )
    for name, denial in choice.denied:
        yield f"not       {name}: {WHY_NOT[denial]}"


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
    """Yield the estimate of a text."""
    if found is not None and found.source == "unread":
        yield f"tokens    about {found.prompt_tokens} asked"
        yield UNREAD
        return
    text, most = query.messages[0].content, query.settings.max_tokens
    for line in explain_text(estimator, text, most):
        yield f"{line[:9]} {line[9:]}"


def object_of(
    policy: Policy,
    decision: Assessment,
    router: Router | None,
    routed: Routed | None,
) -> dict[str, object]:
    """Return the same as a JSON object."""
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
        # Tiers have no reasons: the rule blocks the query for all of them.
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
        "rank": None if routed.standing is None else routed.standing.rank,
        "line": None if routed.standing is None else routed.standing.line,
        "choice": choice.order[0].id if choice.order else None,
        "why": choice.reason.value,
        "refusal": None if choice.refusal is None else choice.refusal.value,
        "observing": router.plan.observe,
    }
