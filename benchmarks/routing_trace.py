"""The scheduler's effect on quality, cost and waiting, on a simulated day.

Simulated with the shipped ``choose`` and ``TierHealth``: a device that writes two
answers at a time, an enclave that writes eight, a rate limit, bursts and outages. A
quarter of the questions must be kept local. The quality and the duration of an answer,
and what an estimator sees of them, are drawn at random here, so the figures compare
policies with each other and predict nothing about real traffic.
"""

import heapq
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from random import Random
from typing import Final, Literal

from typing_extensions import override

from benchmarks.report import Table, quantile
from benchmarks.routing_crowd import CONNECT_S, measure_crowd
from curtilage.client.chat.options import RoutingOptions
from curtilage.client.errors import Failure
from curtilage.client.routing.aim import REFERENCE_SCALE, Pair, tokens_of, traffic_of
from curtilage.client.routing.estimate import Estimate, Intent
from curtilage.client.routing.health import PRIORS, Attempt, TierHealth, TierView
from curtilage.client.routing.utility import Reason, UtilitySettings, choose
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.tiers import (
    ENCLAVE_TIER,
    LOCAL_TIER,
    Permitted,
    Tiering,
    TierKind,
)
from curtilage.policy.document.routing_settings import Aim, Weights
from curtilage.wire.shaping import PADDED

HOURS: Final = 8
SHIPPED_AIM: Final = 35
"""``quality_loss_permille`` of the profiles."""
SEEDS: Final = 3
BURST_EVERY_S: Final = 600.0
BURST_S: Final = 20.0
BURST_FACTOR: Final = 8
OUTAGE_EVERY_S: Final = 7200.0
OUTAGE_S: Final = 300.0
"""The duration of an attempt to connect to a dead enclave."""
RATE_PER_MIN: Final = 40
QUEUE_S: Final = 8.0
"""The length of the local queue that a static table considers too long."""
RTT_S: Final = 0.35
ROUTINE_TOKENS: Final = 60
HARD_TOKENS: Final = 200
DEADLINES_S: Final = {6.0: 0.4, 15.0: 0.4, 60.0: 0.2}
"""Deadlines of answers, with the share of such questions."""
LOCAL_TOKENS_PER_S: Final = 40
ENCLAVE_TOKENS_PER_S: Final = 90
ENCLAVE_PRICE: Final = 1_650_000
LOCAL_PRICE: Final = 50_000
RECOGNISED: Final = 0.87
"""The share of questions whose kind the estimator recognises."""
RESTRICTED: Final = 0.25

Place = Literal["local", "enclave"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question of the day, with properties that are unknown beforehand.

    Attributes:
        at_s: when it is asked.
        restricted: it must be kept local.
        routine: any model answers it about equally well.
        looks_routine: the estimator takes it for routine.
        looks_short: a binary classifier takes it for routine.
        quality: of an answer, by tier.
        gain: what the estimator expects of the enclave.
        prompt: tokens.
        answer: tokens.
        slo_s: how soon the answer should be there.
        jitter: factor of the duration, by tier.
    """

    at_s: float
    restricted: bool
    routine: bool
    looks_routine: bool
    looks_short: bool
    quality: Mapping[Place, float]
    gain: float
    prompt: int
    answer: int
    slo_s: float
    jitter: Mapping[Place, float]

    @property
    def permitted(self) -> Permitted:
        """The permitted tiers."""
        route = Route.LOCAL if self.restricted else Route.ENCLAVE
        return Tiering().permitted(route, frozenset())

    @property
    def estimate(self) -> Estimate:
        """The estimator's expectation."""
        return Estimate(
            intent=Intent.UNKNOWN,
            intent_confidence=0.5,
            gain=self.gain,
            gain_low=self.gain,
            gain_high=self.gain,
            source="ngram",
            prompt_tokens=self.prompt,
            # The real length is known only up to a factor of about two.
            answer_tokens=80 if self.looks_routine else 300,
        )


def cost(place: Place, question: Question) -> float:
    """Return the cost in micro-US-dollars."""
    price = LOCAL_PRICE if place == "local" else ENCLAVE_PRICE
    return (question.prompt + question.answer) * price / 1e6


def trace(draw: Random, *, per_s: float, routine: float) -> list[Question]:
    """Draw a day of questions."""
    questions: list[Question] = []
    now = 0.0
    burst = draw.expovariate(1 / BURST_EVERY_S)
    while now < HOURS * 3600:
        if now > burst + BURST_S:
            burst = now + draw.expovariate(1 / BURST_EVERY_S)
        now += draw.expovariate(per_s * (BURST_FACTOR if now >= burst else 1))
        questions.append(_question(draw, now, routine))
    return questions


def _question(draw: Random, now: float, share: float) -> Question:
    routine = draw.random() < share
    seen = routine == (draw.random() < RECOGNISED)
    depth = draw.random()  # the difficulty of a hard question
    # The mean result of an estimator that sees the difficulty with noise: how likely a
    # question that looks hard or routine is so, and what is to be gained.
    noisy = 0.5 + 0.29 * (depth + draw.gauss(0, 0.45) - 0.5)
    right, wrong = (1 - share) * RECOGNISED, share * (1 - RECOGNISED)
    if seen:
        right, wrong = (1 - share) * (1 - RECOGNISED), share * RECOGNISED
    hard = right / (right + wrong)
    return Question(
        at_s=now,
        restricted=draw.random() < RESTRICTED,
        routine=routine,
        looks_routine=seen,
        looks_short=draw.random() < (0.95 if routine else 0.45),
        quality={"local": 0.96, "enclave": 0.97}
        if routine
        else {"local": 0.86 - 0.66 * depth, "enclave": 0.93 - 0.2 * depth},
        gain=hard * (0.07 + 0.46 * noisy) + (1 - hard) * 0.01,
        prompt=min(4000, round(draw.lognormvariate(math.log(200), 0.8))),
        answer=min(
            1000,
            round(
                draw.lognormvariate(
                    math.log(ROUTINE_TOKENS if routine else HARD_TOKENS), 0.5
                )
            )
            + 1,
        ),
        slo_s=draw.choices([*DEADLINES_S], [*DEADLINES_S.values()])[0],
        jitter={
            "local": draw.lognormvariate(0, 0.15),
            "enclave": draw.lognormvariate(0, 0.35),
        },
    )


class Machine:
    """Serves so many questions at a time, in order of arrival."""

    def __init__(self, places: int) -> None:
        self._free_at_s = [0.0] * places

    def start_s(self, now: float) -> float:
        """Return when a question that arrives now would be served."""
        return max(now, self._free_at_s[0])

    def take(self, now: float, service_s: float) -> float:
        """Occupy a place for so long; return when that begins."""
        start = self.start_s(now)
        heapq.heapreplace(self._free_at_s, start + service_s)
        return start


@dataclass(slots=True)
class Outcome:
    """The results of a day's questions.

    Attributes:
        took_s: until the end of each answer.
        missed: those that came later than they should.
        quality: the sum.
        cost: the sum, micro-US-dollars.
        local: answered locally.
        degraded: answered locally because the enclave could not.
        refused: attempts that met no connection or a full rate limit.
        outside: restricted questions that the enclave answered, or was asked.
    """

    took_s: list[float] = field(default_factory=list[float])
    missed: int = 0
    quality: float = 0.0
    cost: float = 0.0
    local: int = 0
    degraded: int = 0
    refused: int = 0
    outside: int = 0

    def add(self, other: "Outcome") -> None:
        """Add another day's."""
        self.took_s += other.took_s
        self.missed += other.missed
        self.quality += other.quality
        self.cost += other.cost
        self.local += other.local
        self.degraded += other.degraded
        self.refused += other.refused
        self.outside += other.outside


class Day:
    """One day under one policy; everything else is the same for all policies.

    Args:
        questions: in order of time.
        outages: the beginnings and ends of the enclave's outages.
        policy: determines the order of the tiers.
    """

    def __init__(
        self,
        questions: list[Question],
        outages: list[tuple[float, float]],
        policy: "Policy",
    ) -> None:
        self.machines: dict[Place, Machine] = {
            "local": Machine(2),
            "enclave": Machine(8),
        }
        self.outcome = Outcome()
        self._questions = questions
        self._outages = outages
        self._policy = policy
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = count()
        self._begun_s: deque[float] = deque()

    def run(self) -> Outcome:
        """Simulate the day."""
        for question in self._questions:
            self.at(question.at_s, partial(self._ask, question))
        while self._events:
            now, _, event = heapq.heappop(self._events)
            event(now)
        return self.outcome

    def at(self, when_s: float, event: Callable[[float], None]) -> None:
        """Schedule an event."""
        heapq.heappush(self._events, (when_s, next(self._numbers), event))

    def is_out(self, now: float) -> bool:
        """Return whether the enclave is unavailable."""
        return any(begin <= now < end for begin, end in self._outages)

    def wait_for_rate_s(self, now: float) -> float:
        """Return how long until the enclave accepts another question."""
        while self._begun_s and self._begun_s[0] <= now - 60:
            self._begun_s.popleft()
        full = len(self._begun_s) >= RATE_PER_MIN
        return self._begun_s[0] + 60 - now if full else 0.0

    def times_s(self, place: Place, question: Question) -> tuple[float, float]:
        """Return the durations to the first and to the last text, without the queue."""
        jitter = question.jitter[place]
        if place == "local":
            first = 0.1 + question.prompt / 400
            return first * jitter, (
                first + question.answer / LOCAL_TOKENS_PER_S
            ) * jitter
        first = RTT_S * jitter + 0.1 + question.prompt / 4000
        return first, first + question.answer / ENCLAVE_TOKENS_PER_S

    def end_s(self, place: Place, now: float, start: float, whole: float) -> float:
        """Return when an answer ends; for the enclave, its bucket."""
        if place == "local":
            return start + whole
        frames = math.ceil((start + whole - now) * 1000 / PADDED.period_ms)
        bucket = PADDED.bucket_of(min(frames, PADDED.max_frames))
        return now + PADDED.frames_of(bucket) * PADDED.period_ms / 1000

    def _ask(self, question: Question, now: float) -> None:
        order = self._policy.order(self, now, question)
        self.outcome.outside += question.restricted and "enclave" in order
        self._try(now, question, order, wanted=order[0])

    def _try(
        self, now: float, question: Question, order: list[Place], wanted: Place
    ) -> None:
        place, *rest = order
        if place == "enclave" and (self.is_out(now) or self.wait_for_rate_s(now) > 0):
            dead = self.is_out(now)
            later = now + (CONNECT_S if dead else RTT_S)
            attempt = self._policy.begun(now, place, question)
            wait_s = self.wait_for_rate_s(now)
            self.outcome.refused += 1

            def fail(then: float) -> None:
                self._policy.failed(then, attempt, dead=dead, wait_s=wait_s)
                self._try(then, question, rest, wanted)

            self.at(later, fail)
            return
        if place == "enclave":
            self._begun_s.append(now)
        attempt = self._policy.begun(now, place, question)
        first, whole = self.times_s(place, question)
        start = self.machines[place].take(now, whole)
        end = self.end_s(place, now, start, whole)
        texts = (start + first, start + whole)
        for then in texts:
            self.at(then, partial(self._policy.went, place, attempt, "text", question))
        self.at(end, partial(self._policy.went, place, attempt, "end", question))
        outcome = self.outcome
        outcome.took_s.append(end - question.at_s)
        outcome.missed += end - question.at_s > question.slo_s
        outcome.quality += question.quality[place]
        outcome.cost += cost(place, question)
        outcome.local += place == "local"
        outcome.degraded += place != wanted or self._policy.degraded


class Policy:
    """The order of the tiers: always the enclave if permitted; no memory."""

    degraded = False

    def order(self, day: Day, now: float, question: Question) -> list[Place]:
        """Return the tiers to try, in order."""
        del day, now
        return ["local"] if question.restricted else ["enclave", "local"]

    def begun(self, now: float, place: Place, question: Question) -> Attempt | None:
        """Note that a tier is asked."""

    def went(
        self,
        place: Place,
        attempt: Attempt | None,
        what: str,
        question: Question,
        now: float,
    ) -> None:
        """Note the progress of an answer."""

    def failed(
        self, now: float, attempt: Attempt | None, *, dead: bool, wait_s: float
    ) -> None:
        """Note that the enclave did not answer."""


class Binary(Policy):
    """Keeps local what looks routine, and sends everything else.

    Args:
        stays: whether a question looks so.
    """

    def __init__(self, stays: Callable[[Question], bool]) -> None:
        self._stays = stays

    @override
    def order(self, day: Day, now: float, question: Question) -> list[Place]:
        """Return the tiers to try, in order."""
        if self._stays(question):
            return ["local"]
        return super().order(day, now, question)


class Static(Policy):
    """A table: routine or urgent questions are kept local, unless there is a queue."""

    @override
    def order(self, day: Day, now: float, question: Question) -> list[Place]:
        """Return the tiers to try, in order."""
        hurry = question.slo_s == min(DEADLINES_S)
        waits = day.machines["local"].start_s(now) - now > QUEUE_S
        if (question.looks_routine or hurry) and not waits:
            return ["local"]
        return super().order(day, now, question)


class Oracle(Policy):
    """Knows every answer's quality, time and cost, and whether the enclave is up."""

    @override
    def order(self, day: Day, now: float, question: Question) -> list[Place]:
        """Return the tiers to try, in order."""
        away = day.is_out(now) or day.wait_for_rate_s(now) > 0

        def worth(place: Place) -> float:
            _, whole = day.times_s(place, question)
            start = day.machines[place].start_s(now)
            took = day.end_s(place, now, start, whole) - now
            late = 0.25 * max(0.0, took / question.slo_s - 1)
            late += 0.1 * (took > question.slo_s)
            return question.quality[place] - late - 0.08 * cost(place, question) / 1000

        if question.restricted or away or worth("local") >= worth("enclave"):
            return ["local"]
        return ["enclave"]


class Utility(Policy):
    """The shipped choice by its weights, without an aim."""

    def __init__(self, settings: UtilitySettings | None = None) -> None:
        self._settings = settings or UtilitySettings()
        self._health: dict[Place, TierHealth] = {
            "local": TierHealth(
                TierKind.IN_PROCESS,
                replace(PRIORS[TierKind.IN_PROCESS], parallel=2),
            ),
            "enclave": TierHealth(
                TierKind.ATTESTED,
                replace(
                    PRIORS[TierKind.ATTESTED], cost_microusd_per_mtok=ENCLAVE_PRICE
                ),
                limit_per_min=RATE_PER_MIN,
            ),
        }
        self._health["local"].ready()
        self._health["enclave"].ready(
            period_ms=PADDED.period_ms,
            first_bucket=PADDED.first_bucket,
            buckets=PADDED.buckets,
        )

    def bar(self, now: float, question: Question) -> float | None:
        """Return the need from which the enclave is asked; None: no aim decides."""
        del now, question
        return None

    @override
    def order(self, day: Day, now: float, question: Question) -> list[Place]:
        """Return the tiers to try, in order."""
        del day
        choice = choose(
            question.permitted,
            self.views(now),
            question.estimate,
            RoutingOptions(total_ms=round(1000 * question.slo_s)),
            self._settings,
            last=None,
            bar=self.bar(now, question),
        )
        self.degraded = choice.reason is Reason.UNAVAILABLE
        return [_PLACES[tier.id] for tier in choice.order]

    def views(self, now: float) -> dict[str, TierView]:
        """Return what is known of both tiers."""
        return {place: each.view(1000 * now) for place, each in self._health.items()}

    @override
    def begun(self, now: float, place: Place, question: Question) -> Attempt | None:
        """Note that a tier is asked."""
        return self._health[place].begin(1000 * now, prompt_tokens=question.prompt)

    @override
    def went(
        self,
        place: Place,
        attempt: Attempt | None,
        what: str,
        question: Question,
        now: float,
    ) -> None:
        """Note the progress of an answer."""
        if attempt is None:
            return
        health = self._health[place]
        if what == "text":
            health.text(attempt, 1000 * now)
        elif what == "end":
            health.finished(attempt, 1000 * now, tokens=question.answer)

    @override
    def failed(
        self, now: float, attempt: Attempt | None, *, dead: bool, wait_s: float
    ) -> None:
        """Note that the enclave did not answer."""
        if attempt is not None:
            failure = Failure.UNREACHABLE if dead else Failure.BUSY
            self._health["enclave"].failed(
                attempt, 1000 * now, failure, retry_after_ms=1000 * wait_s
            )


class Aimed(Utility):
    """The shipped policy: the profiles' aim decides, as the router applies it."""

    def __init__(self) -> None:
        super().__init__()
        self._aim = Aim(quality_loss_permille=SHIPPED_AIM)
        self._traffic = traffic_of("ngram")

    @override
    def bar(self, now: float, question: Question) -> float | None:
        """Return it by the questions before, and count this one."""
        views = self.views(now)
        pair = Pair(
            local=views["local"].quality_permille / 1000,
            strong=views["enclave"].quality_permille / 1000,
            local_price=0.0,
            strong_price=ENCLAVE_PRICE / 1e6,
        )
        line = self._traffic.line(self._aim, pair, REFERENCE_SCALE)
        if not question.restricted:
            found = question.estimate
            self._traffic.saw(REFERENCE_SCALE.need(found.gain), tokens_of(found))
        return self._traffic.need(line)


_PLACES: Final[Mapping[str, Place]] = {
    LOCAL_TIER.id: "local",
    ENCLAVE_TIER.id: "enclave",
}


def measure_routing_trace() -> list[Table]:
    """Measure the policies on each day, the crowd, and a decision's time."""
    days = [
        _table(title, per_s=per_s, routine=routine)
        for title, per_s, routine in (
            ("70 % routine, 0.12/s", 0.12, 0.7),
            ("70 % routine, 0.30/s", 0.30, 0.7),
            ("none routine, 0.12/s", 0.12, 0.0),
        )
    ]
    return [*days, measure_crowd(), measure_time()]


def _table(title: str, *, per_s: float, routine: float) -> Table:
    policies: Mapping[str, Callable[[], Policy]] = {
        "cloud first": Policy,
        "binary": lambda: Binary(lambda question: question.looks_short),
        "binary, the router's estimate": lambda: Binary(
            lambda question: question.looks_routine
        ),
        "static table": Static,
        "utility, by its weights": Utility,
        "utility, by the aim (shipped)": Aimed,
        "utility, cost three times": lambda: Utility(
            UtilitySettings(weights=Weights(cost=240))
        ),
        "oracle": Oracle,
    }
    whole = {name: Outcome() for name in policies}
    asked = 0
    for seed in range(SEEDS):
        draw = Random(seed)  # noqa: S311 -- the same day for all, and every time
        questions = trace(draw, per_s=per_s, routine=routine)
        outages = outages_of(draw)
        asked += len(questions)
        for name, policy in policies.items():
            whole[name].add(Day(questions, outages, policy()).run())
    base = whole["cloud first"]
    return Table(
        title=f"Scheduler, simulated: {title}, {asked} questions",
        columns=(
            "policy",
            "at home",
            "quality",
            "of cloud first",
            "cost cut",
            "late",
            "p95 s",
            "degraded",
            "failed tries",
            "left though restricted",
        ),
        rows=tuple(
            (
                name,
                each.local / asked,
                f"{each.quality / asked:.3f}",
                f"{each.quality / base.quality:.1%}",
                f"{1 - each.cost / base.cost:.0%}",
                f"{each.missed / asked:.3f}",
                quantile(each.took_s, 0.95),
                str(each.degraded),
                str(each.refused),
                str(each.outside),
            )
            for name, each in whole.items()
        ),
    )


def outages_of(draw: Random) -> list[tuple[float, float]]:
    """Draw the enclave's outages."""
    outages: list[tuple[float, float]] = []
    begin = draw.expovariate(1 / OUTAGE_EVERY_S)
    while begin < HOURS * 3600:
        outages.append((begin, begin + OUTAGE_S))
        begin += OUTAGE_S + draw.expovariate(1 / OUTAGE_EVERY_S)
    return outages


def measure_time() -> Table:
    """Measure the time of a choice between two tiers."""
    draw = Random(0)  # noqa: S311 -- the same questions every time
    questions = trace(draw, per_s=0.05, routine=0.7)
    policy = Utility()
    Day(questions, [], policy).run()  # fills the statistics
    now = questions[-1].at_s
    views: list[float] = []
    choices: list[float] = []
    for question in questions:
        permitted, estimate = question.permitted, question.estimate
        began = time.thread_time()
        seen = policy.views(now)
        viewed = time.thread_time()
        choose(
            permitted,
            seen,
            estimate,
            RoutingOptions(),
            UtilitySettings(),
            last=None,
        )
        choices.append(1e6 * (time.thread_time() - viewed))
        views.append(1e6 * (viewed - began))
    return Table(
        title=f"A choice, {len(questions)} questions, µs",
        columns=("part", "p50", "p99"),
        rows=tuple(
            (name, quantile(took, 0.5), quantile(took, 0.99))
            for name, took in (("both views", views), ("choose", choices))
        ),
    )
