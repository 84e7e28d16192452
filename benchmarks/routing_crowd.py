"""A simulated crowd of clients of a dead enclave: how often they try to connect."""

import math
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Final

from benchmarks.report import Table, quantile
from curtilage.client.errors import Failure
from curtilage.client.routing.health import TierHealth
from curtilage.client.system.budget import RETRY_PERMILLE, Budget
from curtilage.policy.decision.tiers import TierKind

CONNECT_S: Final = 5.0
CLIENTS: Final = 200
ASKS_EVERY_S: Final = 10.0
DEAD_S: Final = 600.0


def measure_crowd() -> Table:
    """Measure how often 200 clients try to connect to an enclave that is dead."""
    crowds = {
        "one retry, no breaker": Crowd(breaker=False, background=False),
        "breaker, retry budget": Crowd(breaker=True, background=False),
        "the same, probed in the background": Crowd(breaker=True, background=True),
    }
    for crowd in crowds.values():
        draw = Random(1)  # noqa: S311 -- the same crowd for all
        for _ in range(CLIENTS):
            crowd.pass_time(draw)
    return Table(
        title=f"{CLIENTS} clients, each asks once in {ASKS_EVERY_S:.0f} s; "
        f"the enclave is dead for {DEAD_S:.0f} s",
        columns=(
            "client",
            "questions",
            "connections tried",
            "most in a second",
            "s waited for them, a question",
            "s until back",
        ),
        rows=tuple(
            (
                name,
                str(each.questions),
                str(len(each.tries_s)),
                str(max(Counter(map(math.floor, each.tries_s)).values())),
                each.waited_s / each.questions,
                quantile(each.back_s, 0.5),
            )
            for name, each in crowds.items()
        ),
        note="back: from the enclave's return to a client's next answer of it, median",
    )


@dataclass(slots=True, kw_only=True)
class Crowd:
    """Independent clients of a dead enclave, one after the other.

    Attributes:
        breaker: they have one, and a budget of retries; else they retry once.
        background: recovery is probed in the background, not by a question.
        questions: asked while it is dead.
        tries_s: the times of attempts to connect meanwhile.
        waited_s: how long questions waited for them.
        back_s: for each client, how long after the recovery the enclave was asked.
    """

    breaker: bool
    background: bool
    questions: int = 0
    tries_s: list[float] = field(default_factory=list[float])
    waited_s: float = 0.0
    back_s: list[float] = field(default_factory=list[float])

    def pass_time(self, draw: Random) -> None:
        """Simulate one client until the enclave answers again."""
        health = TierHealth(TierKind.ATTESTED)
        health.ready()
        retries = Budget(RETRY_PERMILLE, reserve=1)
        now = draw.uniform(0, ASKS_EVERY_S)
        while now < DEAD_S:
            self.questions += 1
            retries.earn()
            asked = now
            now = self._try(now, health)
            if now > asked and (retries.take() if self.breaker else True):
                now = self._try(now, health)
            self.waited_s += now - asked
            now = max(now, asked + draw.expovariate(1 / ASKS_EVERY_S))
        while self.breaker and health.begin(1000 * now, prompt_tokens=100) is None:
            now += draw.expovariate(1 / ASKS_EVERY_S)
        self.back_s.append(now - DEAD_S)

    def _try(self, now: float, health: TierHealth) -> float:
        """Try to connect, if permitted; return when the question continues."""
        attempt = health.begin(1000 * now, prompt_tokens=100)
        if attempt is None and self.breaker:
            return now
        self.tries_s.append(now)
        if attempt is not None:
            failed_ms = 1000 * (now + CONNECT_S)
            health.failed(attempt, failed_ms, Failure.UNREACHABLE)
            if self.background and attempt.probe:
                return now
        return now + CONNECT_S
