"""The expected route of some texts, according to ``curtilage route explain``.

It uses the same policy and local model as the client that is then asked, and no live
figures: these may not change where a question goes.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from curtilage.cli.examine import start_detectors
from curtilage.cli.route.explain import routed_by, words_of
from curtilage.client.assemble import router_for, unloaded_model
from curtilage.client.chat.answer import Answerer
from curtilage.client.chat.query import Query, Settings, single_query
from curtilage.client.config import ClientConfig, Flags, read_config
from curtilage.client.routing.health import PRIORS
from curtilage.client.routing.router import Standing
from curtilage.policy.decision.decide import Inspection, assess
from curtilage.policy.document.model import Policy

_SENTENCES: Final = ("rank", "aim", "choice")


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The expected route of one text.

    Attributes:
        expected: ``local`` or ``enclave``.
        sentences: what ``route explain`` says of rank, line, aim and choice.
    """

    expected: str
    sentences: tuple[str, ...]


def expected_of(standing: Standing | None) -> str:
    """Return the tier that the operator's aim chooses for a text.

    Args:
        standing: its rank among ordinary questions; None: it must be kept local.
    """
    if standing is None or standing.line is None:
        return Answerer.LOCAL.value
    above = standing.rank > standing.line
    return (Answerer.ENCLAVE if above else Answerer.LOCAL).value


def read_client(
    policy: Path, *, model: str | None, model_sha256: str | None
) -> ClientConfig:
    """Return the configuration of a client with a policy file and a local model.

    Args:
        policy: the file.
        model: a GGUF file; None: the embedded model.
        model_sha256: its digest.
    """
    flags = Flags(policy=str(policy), model=model, model_sha256=model_sha256)
    return read_config(flags, os.environ)


def prices_of(policy: Policy) -> dict[str, int]:
    """Return the price of a million tokens by tier, in millionths of a dollar."""
    tiers = () if policy.routing is None else policy.routing.tiers
    return {
        tier.id: tier.cost_microusd_per_mtok or PRIORS[tier.kind].cost_microusd_per_mtok
        for tier in tiers
    }


def inspected(
    config: ClientConfig, asked: Sequence[tuple[str, int]]
) -> list[tuple[Query, Inspection]]:
    """Return texts as queries, each with the detectors' findings.

    Args:
        config: the client's.
        asked: the first texts of conversations, and the maximum lengths of answers.
    """
    queries = [
        replace(single_query(text), settings=Settings(max_tokens=most))
        for text, most in asked
    ]
    inspector = start_detectors(config.policy, config.currency)
    try:
        return list(zip(queries, inspector.inspect_many(queries), strict=True))
    finally:
        inspector.close()


def forecast(
    config: ClientConfig, found: Sequence[tuple[Query, Inspection]]
) -> list[Forecast]:
    """Return the expected routes of queries.

    Args:
        config: the client's; its policy has a section ``routing``.
        found: as ``inspected`` returns it.
    """
    router = router_for(config.policy, unloaded_model(config))
    if router is None:
        raise ValueError("the policy has no section `routing`")
    made: list[Forecast] = []
    for query, inspection in found:
        decision = assess(config.policy.rulebook, inspection)
        routed = routed_by(router, decision, query)
        lines = words_of(config.policy, decision, query, router, routed)
        made.append(
            Forecast(
                expected=expected_of(routed.standing),
                sentences=tuple(each for each in lines if each.startswith(_SENTENCES)),
            )
        )
    return made
