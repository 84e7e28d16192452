"""A session under a policy with a ``routing:`` section, of in-memory parts."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from typing_extensions import override

from curtilage.client.chat.answer import Answerer
from curtilage.client.chat.openai_chat import query_from
from curtilage.client.chat.options import Mode, Require
from curtilage.client.chat.query import Query
from curtilage.client.consent import Outbound
from curtilage.client.endpoint.openai_answers import (
    error_object,
)
from curtilage.client.errors import (
    ConsentRequiredError,
    EnclaveError,
    FailureReason,
    LocalUnavailableError,
    NotRoutedError,
    TooLongError,
    UsageError,
)
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.local.model import LocalContextTooLongError
from curtilage.client.local.reasons import LocalFailure
from curtilage.client.parts import ClientParts
from curtilage.client.pseudonyms.vault import ConversationKeys
from curtilage.client.remote.fetch_order import FetchOrder
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.routing.estimate import (
    Estimate,
    Estimator,
    Intent,
    RulesEstimator,
)
from curtilage.client.routing.router import WHY_NOT, Device, Router
from curtilage.client.routing.trace import TraceLine
from curtilage.client.session import Session
from curtilage.policy.decision.classes import CLASSES, STALE_POLICY
from curtilage.policy.decision.tiers import Denial, Permitted, RoutingClass
from curtilage.policy.document.load import load_policy
from curtilage.policy.document.routing_settings import Intents, Preference
from support.client_parts import (
    EASY,
    HARD,
    MODEL_MISSING,
    PLAIN,
    MemoryTrail,
    ScriptedInspector,
    ScriptedLocal,
    SmallLocal,
    WordInspector,
    finding,
    query,
)
from support.memory_enclave import Clock, MemoryEnclave, Reply, key_store

SECTION = """
routing:
  aim: {quality_loss_permille: 35}
  tiers:
  - {id: device, kind: in_process}
  - {id: enclave, kind: attested}
"""


class Bench:
    def __init__(
        self,
        *found: str,
        section: str = SECTION,
        plain: str = PLAIN,
        local: ScriptedLocal | None = None,
        enclave: MemoryEnclave | None = None,
        trace: Callable[[TraceLine], object] | None = None,
        home_model: Callable[[], str] = str,
        estimator: Estimator | None = None,
        home_tokens: int | None = None,
    ) -> None:
        policy = load_policy(f"{plain}\n{section}")
        self.now = 0.0
        self.router = None
        if policy.routing is not None:
            self.router = Router(
                policy.routing,
                estimator or RulesEstimator(),
                clock=lambda: self.now,
                home_tokens=lambda: home_tokens,
            )
        self.local = local or ScriptedLocal()
        self.enclave = enclave or MemoryEnclave()
        self.trail = MemoryTrail()
        self.inspector = ScriptedInspector(*found)
        self.parts = ClientParts(
            policy=policy,
            inspector=self.inspector,
            local=self.local,
            transport=self.enclave,
            keys=key_store(policy=policy),
            audit=self.trail,
            clock=Clock(),
            router=self.router,
            trace=trace,
            home_model=home_model,
        )
        self.session = Session(self.parts)


async def test_what_is_easy_is_answered_at_home() -> None:
    bench = Bench()
    answer = await bench.session.ask(query(EASY))
    assert answer.route is Answerer.LOCAL
    assert (answer.provenance.tier, answer.provenance.why) == ("device", "easy")
    assert answer.provenance.fallback is None
    assert bench.enclave.sealed == []


async def test_the_trace_names_the_rolled_out_model_that_answered() -> None:
    lines: list[TraceLine] = []
    bench = Bench(trace=lines.append, home_model=lambda: "m-0123456789abcdef")
    answer = await bench.session.ask(query(EASY))
    assert answer.provenance.home_model == "m-0123456789abcdef"
    await bench.session.ask(query(HARD))
    await bench.session.close()
    assert [line.model for line in lines] == ["m-0123456789abcdef", None]


async def test_what_is_hard_is_answered_by_the_enclave() -> None:
    bench = Bench()
    answer = await bench.session.ask(query(HARD))
    assert answer.route is Answerer.ENCLAVE
    assert (answer.provenance.tier, answer.provenance.why) == ("enclave", "hard")
    assert bench.local.asked == []


async def test_what_must_stay_stays_however_hard_it_is() -> None:
    bench = Bench("financial.pan")
    answer = await bench.session.ask(query(HARD, mode=Mode.ENCLAVE_IF_ALLOWED))
    assert answer.provenance.tier == "device"
    assert answer.provenance.why == "only_permitted"
    assert bench.enclave.sealed == []


class Reading(RulesEstimator):
    """Notes each text that is read for what it asks."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    @override
    def estimate(self, query_text: str, max_tokens: int) -> Estimate:
        self.read.append(query_text)
        return super().estimate(query_text, max_tokens)


class Keys:
    """Notes each query of which a conversation's key is made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Query] = []
        own = ConversationKeys.of

        def of(keys: ConversationKeys, query: Query, whose: bytes = b"") -> bytes:
            self.made.append(query)
            return own(keys, query, whose)

        monkeypatch.setattr(ConversationKeys, "of", of)


@pytest.mark.parametrize("observe", [False, True])
@pytest.mark.parametrize(
    ("found", "keys", "read"),
    [
        ("financial.pan", 0, 0),  # one tier: nothing to choose
        (None, 1, 1),
        ("identifier.direct.person", 1, 1),  # replaced, and then chosen
    ],
)
async def test_what_is_kept_local_is_not_read_for_what_it_asks(
    monkeypatch: pytest.MonkeyPatch,
    found: str | None,
    keys: int,
    read: int,
    *,
    observe: bool,
) -> None:
    """Neither is a key made of its conversation; of all else one, and once."""
    estimator, made = Reading(), Keys(monkeypatch)
    section = SECTION.replace("routing:\n", f"routing:\n  observe: {observe}\n".lower())
    lines: list[TraceLine] = []
    bench = Bench(section=section, estimator=estimator, trace=lines.append)
    words = {} if found is None else {"Zoe": found}
    bench.session = Session(replace(bench.parts, inspector=WordInspector(words)))
    answer = await bench.session.ask(query(f"{EASY} Ask Zoe."))
    await bench.session.close()
    assert len(made.made) == keys
    assert len(estimator.read) == read
    (line,) = lines
    assert (line.intent == Intent.UNKNOWN) is (read == 0)
    assert line.prompt_tokens
    if found == "financial.pan":
        assert answer.provenance.tier == "device"


async def test_a_limit_holds_also_where_nothing_is_chosen() -> None:
    bench = Bench("financial.pan")
    with pytest.raises(NotRoutedError) as refused:
        await bench.session.ask(query(HARD, require=Require.ENCLAVE))
    assert refused.value.code == "required_unmet"


def test_there_is_a_choice_where_two_may_answer_or_an_intent_forbids_it() -> None:
    policy = load_policy(f"{PLAIN}\n{SECTION}")
    device, enclave = policy.tiering.tiers
    plan = policy.routing
    assert plan is not None
    free = Router(plan, RulesEstimator(), clock=lambda: 0.0)
    intents = Intents(overrides={"code": Preference.ONLY_HOME})
    strict = Router(
        plan.model_copy(update={"intents": intents}),
        RulesEstimator(),
        clock=lambda: 0.0,
    )
    for tiers, chosen, kept in (
        ((), False, False),
        ((device,), False, False),
        ((enclave,), False, True),
        ((device, enclave), True, True),
    ):
        mask = Permitted(routing_class=RoutingClass.PUBLIC, tiers=tiers, denied=())
        assert (free.chooses(mask), strict.chooses(mask)) == (chosen, kept)


async def test_a_missing_model_is_no_reason_to_refuse_what_may_leave() -> None:
    bench = Bench(local=ScriptedLocal(broken=True))
    answer = await bench.session.ask(query(EASY))
    assert answer.provenance.tier == "enclave"
    assert answer.provenance.fallback is LocalFailure.UNAVAILABLE


async def test_a_missing_model_never_sends_out_what_must_stay() -> None:
    bench = Bench("financial.pan", local=ScriptedLocal(broken=True))
    for _ in range(2):  # also when the breaker of the model is open
        with pytest.raises(LocalUnavailableError, match=MODEL_MISSING):
            await bench.session.ask(query(EASY))
    assert bench.enclave.sealed == []


async def test_a_dead_network_is_asked_once_and_then_left_alone() -> None:
    bench = Bench()
    bench.enclave.fetch_fails = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
    for _ in range(5):
        answer = await bench.session.ask(query(HARD))
        assert answer.provenance.tier == "device"
        assert answer.provenance.fallback is EnclaveFailure.RELAY_UNREACHABLE
    assert bench.enclave.fetched == 1
    bench.enclave.fetch_fails = None
    bench.now = 31
    # No question waits for what may be dead: a background probe finds out.
    answer = await bench.session.ask(query(HARD))
    assert answer.provenance.tier == "device"
    await bench.session.settle()
    answer = await bench.session.ask(query(HARD))
    assert answer.provenance.tier == "enclave"


@pytest.mark.parametrize("reason", [EnclaveFailure.TIMEOUT, EnclaveFailure.ANSWER_LATE])
async def test_a_way_that_swallows_everything_is_asked_once(
    reason: FailureReason,
) -> None:
    # Nothing comes back, so each question waits as long as one may: longer than all
    # failures together may be apart, which open the breaker.
    bench = Bench()
    bench.enclave.fetch_fails = EnclaveError(reason)
    for _ in range(5):
        bench.now += 16
        answer = await bench.session.ask(query(HARD))
        assert answer.provenance.tier == "device"
        if bench.now == 16:
            assert bench.enclave.fetched == 1
    await bench.session.settle()
    # Else in the background, and once in ``open_s``.
    assert bench.enclave.fetched == 3


@pytest.mark.parametrize(
    ("require", "tier"), [(Require.LOCAL, "device"), (Require.ENCLAVE, "enclave")]
)
async def test_what_is_required_is_done(require: Require, tier: str) -> None:
    answer = await Bench().session.ask(query(EASY, require=require))
    assert (answer.provenance.tier, answer.provenance.why) == (tier, "required")


async def test_what_is_required_is_refused_rather_than_replaced() -> None:
    """By the policy, by there being none, by the network."""
    kept = Bench("financial.pan")
    with pytest.raises(NotRoutedError, match=WHY_NOT[Denial.ROUTE]) as refused:
        await kept.session.ask(query(HARD, require=Require.ENCLAVE))
    assert refused.value.code == "required_unmet"
    with pytest.raises(NotRoutedError, match=repr(Require.ON_PREMISES.value)):
        await kept.session.ask(query(HARD, require=Require.ON_PREMISES))
    cut = Bench()
    cut.enclave.fetch_fails = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
    for _ in range(4):  # tried, at last left alone: the same error
        why = f"{FAILURE_TEXTS['relay_unreachable']}.* required"
        with pytest.raises(NotRoutedError, match=why) as cut_off:
            await cut.session.ask(query(HARD, require=Require.ENCLAVE))
        assert (cut_off.value.code, cut_off.value.http_status) == (
            "required_unmet",
            503,
        )
    assert kept.local.asked == cut.local.asked == []


@pytest.mark.parametrize(
    "limit", [{"max_cost_microusd": 0}, {"slo_hard": True, "total_ms": 1}]
)
async def test_a_limit_holds_for_what_is_required_as_well(
    limit: dict[str, object],
) -> None:
    bench = Bench()
    with pytest.raises(NotRoutedError):
        await bench.session.ask(query(HARD, require=Require.LOCAL, **limit))
    assert bench.local.asked == []


async def test_home_is_home() -> None:
    bench = Bench()
    answer = await bench.session.ask(query(HARD, mode=Mode.HOME))
    assert answer.provenance.tier == "device"
    assert bench.enclave.sealed == []


async def test_a_floor_keeps_it_home_and_raises_what_it_may_risk() -> None:
    bench = Bench()
    answer = await bench.session.ask(query(HARD, floor=RoutingClass.RESTRICTED))
    assert (answer.provenance.tier, answer.rule) == ("device", "floor")
    assert bench.enclave.sealed == []


async def test_classes_can_demand_a_tier() -> None:
    section = SECTION + "  demands:\n  - {classes: ['topic.*'], only: [enclave]}\n"
    answer = await Bench("topic.hr", section=section).session.ask(query(EASY))
    assert answer.provenance.tier == "enclave"
    with pytest.raises(NotRoutedError) as refused:
        await Bench("topic.hr", "financial.pan", section=section).session.ask(
            query(EASY)
        )
    assert refused.value.code == "no_permitted_tier"


async def test_observing_changes_nothing() -> None:
    bench = Bench(section=SECTION + "  observe: true\n")
    answer = await bench.session.ask(query(EASY))
    assert (answer.provenance.tier, answer.provenance.why) == ("enclave", "")


@pytest.mark.parametrize("section", ["", SECTION + "  observe: true\n"])
async def test_who_asks_narrows_also_where_nothing_is_chosen(section: str) -> None:
    bench = Bench(section=section)
    home = await bench.session.ask(query(HARD, mode=Mode.HOME))
    here = await bench.session.ask(query(HARD, require=Require.LOCAL))
    assert home.route is here.route is Answerer.LOCAL
    assert bench.enclave.sealed == []
    kept = Bench("financial.pan", section=section)
    for require in (Require.ENCLAVE, Require.ON_PREMISES):
        with pytest.raises(NotRoutedError, match="required") as refused:
            await kept.session.ask(query(HARD, require=require))
        assert refused.value.code == "required_unmet"
    cut = Bench(section=section)
    cut.enclave.fetch_fails = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
    with pytest.raises(NotRoutedError, match="relay"):
        await cut.session.ask(query(HARD, require=Require.ENCLAVE))
    assert kept.local.asked == cut.local.asked == []


def test_a_battery_is_a_risk_that_is_looked_for_now_and_then() -> None:
    policy = load_policy(f"{PLAIN}\n{SECTION}")
    assert policy.routing is not None
    clock = [0.0]
    looked: list[float] = []

    def device() -> Device:
        looked.append(clock[0])
        return Device(on_battery=True, metered=None)

    router = Router(
        policy.routing, RulesEstimator(), clock=lambda: clock[0], device=device
    )
    for clock[0] in (0.0, 1.0, 31.0):
        assert router.views()["device"].strained
        assert not router.views()["enclave"].strained
    assert looked == [0.0, 31.0]


def test_a_context_that_has_become_smaller_is_that_of_the_next_choice() -> None:
    bench = Bench()
    assert bench.parts.policy.routing is not None
    tokens: list[int | None] = [4096]
    router = Router(
        bench.parts.policy.routing,
        RulesEstimator(),
        clock=lambda: 0.0,
        home_tokens=lambda: tokens[0],
    )
    for tokens[0] in (4096, 1024, None):
        views = router.views()
        assert views["device"].context_tokens == tokens[0]
        assert views["enclave"].context_tokens is None


async def test_a_tier_whose_limit_is_used_up_is_not_asked() -> None:
    enclave = "{id: enclave, kind: attested"
    limited = SECTION.replace(enclave, f"{enclave}, questions_per_min: 1")
    assert limited != SECTION
    bench = Bench(section=limited)
    abroad = query(EASY, mode=Mode.ENCLAVE_IF_ALLOWED)
    first = await bench.session.ask(abroad)
    second = await bench.session.ask(abroad)
    assert (first.route, second.route) == (Answerer.ENCLAVE, Answerer.LOCAL)
    bench.now += 60
    assert (await bench.session.ask(abroad)).route is Answerer.ENCLAVE


class Unrouted(Bench):
    """A session that chooses nothing: without a section, or observing."""

    def __init__(self, *, observe: bool, local: ScriptedLocal | None = None) -> None:
        super().__init__(section=SECTION + "  observe: true\n", local=local)
        if observe:
            return
        policy = load_policy(PLAIN)
        self.session = Session(
            ClientParts(
                policy=policy,
                inspector=ScriptedInspector(),
                local=self.local,
                transport=self.enclave,
                keys=key_store(policy=policy),
                audit=self.trail,
                clock=Clock(),
            )
        )


@pytest.mark.parametrize("observe", [False, True])
async def test_what_is_asked_of_routing_holds_where_nothing_is_chosen(
    *, observe: bool
) -> None:
    bench = Unrouted(observe=observe)
    for options in ({"mode": Mode.HOME}, {"require": Require.LOCAL}):
        answer = await bench.session.ask(query(HARD, **options))
        assert answer.route is Answerer.LOCAL
    assert bench.enclave.sealed == []
    with pytest.raises(NotRoutedError) as refused:
        await bench.session.ask(query(HARD, require=Require.ON_PREMISES))
    assert refused.value.code == "required_unmet"


@pytest.mark.parametrize("observe", [False, True])
async def test_what_is_required_is_not_replaced_where_nothing_is_chosen(
    *, observe: bool
) -> None:
    bench = Unrouted(observe=observe)
    bench.enclave.fetch_fails = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
    with pytest.raises(NotRoutedError, match="relay"):
        await bench.session.ask(query(HARD, require=Require.ENCLAVE))
    assert bench.local.asked == []
    broken = Unrouted(observe=observe, local=ScriptedLocal(broken=True))
    with pytest.raises(LocalUnavailableError):
        await broken.session.ask(query(HARD, mode=Mode.HOME))
    assert broken.enclave.sealed == []


@pytest.mark.parametrize("observe", [False, True])
@pytest.mark.parametrize(
    ("limit", "param"),
    [({"max_cost_microusd": 0}, "max_cost"), ({"slo_hard": True}, "slo_hard")],
)
async def test_a_limit_without_a_router_is_refused(
    limit: dict[str, object], param: str, *, observe: bool
) -> None:
    bench = Unrouted(observe=observe)
    with pytest.raises(UsageError) as refused:
        await bench.session.ask(query(EASY, **limit))
    assert refused.value.param == param
    assert bench.enclave.sealed == []
    assert bench.local.asked == []


class Swallowing(MemoryEnclave):
    """Nothing comes back, ever, once ``dead``."""

    dead = False

    @override
    async def fetch_bundle(self, order: FetchOrder) -> bytes:
        if self.dead:
            await asyncio.Event().wait()
        return await super().fetch_bundle(order)


async def test_closing_does_not_wait_for_a_probe_without_reply() -> None:
    enclave = Swallowing()
    bench = Bench(enclave=enclave)
    enclave.fetch_fails = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
    await bench.session.ask(query(HARD))
    enclave.dead, bench.now = True, 31
    await bench.session.ask(query(HARD))  # in the background, the way there is tried
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await bench.session.close()


async def test_a_question_of_everything_at_once_is_answered_without_a_trace() -> None:
    # More classes than a line holds: the line is lost, and no answer.
    many = sorted(name for name in CLASSES if not name.startswith("secret."))
    assert len(many) > 128
    answer = await Bench(*many).session.ask(query(EASY))
    assert answer.route is Answerer.LOCAL


# One that says 'later'.


class Waiting(Bench):
    """Sleeps without waiting, and notes for how long."""

    def __init__(self, *replies: Reply, edit: str = "") -> None:
        super().__init__(section=SECTION + edit)
        self.enclave.replies = list(replies)
        self.slept: list[float] = []
        self.session = Session(replace(self.parts, sleep=self.sleep, below=len_of))

    async def sleep(self, seconds: float) -> None:
        if seconds > 60:  # until the key is renewed
            await asyncio.Event().wait()
        self.slept.append(seconds)
        self.now += seconds


def len_of(below: int) -> int:
    return below // 2


def later(seconds: str, status: int = 503) -> Reply:
    return Reply(
        content=b"{}",
        status=status,
        media_type=b"application/json",
        fields=((b"retry-after", seconds.encode()),),
    )


@pytest.mark.parametrize("status", [429, 503])
async def test_one_that_says_later_is_asked_once_more(status: int) -> None:
    bench = Waiting(later("4", status))
    answer = await bench.session.ask(query(HARD))
    assert (answer.provenance.tier, answer.provenance.fallback) == ("enclave", None)
    assert bench.slept == [5.0]
    assert len(bench.enclave.sealed) == 2
    assert bench.enclave.sealed[0] != bench.enclave.sealed[1]
    again = Waiting(later("4"), later("4"))
    answer = await again.session.ask(query(HARD))
    assert answer.provenance.tier == "device"
    assert answer.provenance.fallback is EnclaveFailure.BUSY
    assert (len(again.slept), len(again.enclave.sealed)) == (1, 2)


@pytest.mark.parametrize(
    ("said", "edit", "options"),
    [
        ("11", "", {}),
        ("soon", "", {}),
        ("-1", "", {}),
        ("4", "  resilience: {retry_after_max_s: 3}\n", {}),
        ("0", "  resilience: {retry_after_max_s: 0}\n", {}),
        ("4", "", {"total_ms": 4000}),
    ],
)
async def test_a_wait_that_is_not_worth_it_is_not_waited(
    said: str, edit: str, options: dict[str, object]
) -> None:
    bench = Waiting(later(said), edit=edit)
    hard = query(HARD, mode=Mode.ENCLAVE_IF_ALLOWED, **options)
    answer = await bench.session.ask(hard)
    assert answer.provenance.tier == "device"
    assert (bench.slept, len(bench.enclave.sealed)) == ([], 1)


async def test_of_ten_questions_one_is_asked_twice() -> None:
    bench = Waiting()
    for _ in range(30):
        bench.now += 60
        bench.enclave.replies = [later("1")] * 2
        await bench.session.ask(query(HARD, mode=Mode.ENCLAVE_IF_ALLOWED))
    assert len(bench.slept) <= 4


async def test_what_a_person_agreed_to_once_is_not_asked_for_again() -> None:
    """A token holds once: asked for a second time, the query would have no answer."""
    shown: list[Outbound] = []

    def once(outbound: Outbound) -> bool:
        shown.append(outbound)
        if len(shown) > 1:
            raise ConsentRequiredError("another token")
        return True

    bench = Waiting(later("4"), edit="  classes: {public: {consent: required}}\n")
    parts = replace(bench.parts, sleep=bench.sleep, below=len_of, consents=once)
    answer = await Session(parts).ask(query(HARD))
    assert answer.provenance.tier == "device"
    assert answer.provenance.fallback is EnclaveFailure.BUSY
    assert (bench.slept, len(bench.enclave.sealed)) == ([], 1)


# --- what the policy forbids, and what cannot be had just now ----------------------


async def refusal_of(bench: Bench, **options: object) -> NotRoutedError:
    with pytest.raises(NotRoutedError) as refused:
        await bench.session.ask(query(EASY, **options))
    return refused.value


@pytest.mark.parametrize("section", ["", SECTION], ids=["no routing", "routing"])
async def test_what_the_policy_forbids_is_final(section: str) -> None:
    forbidden = Bench("financial.pan", section=section)
    assert (await refusal_of(forbidden, require=Require.ENCLAVE)).final
    no_server = Bench(section=section)
    assert (await refusal_of(no_server, require=Require.ON_PREMISES)).final


@pytest.mark.parametrize("section", ["", SECTION], ids=["no routing", "routing"])
async def test_what_cannot_be_had_just_now_is_not_final(section: str) -> None:
    down = MemoryEnclave()
    down.fetch_fails = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
    for _ in range(2):  # also once the breaker is open
        bench = Bench(section=section, enclave=down)
        assert not (await refusal_of(bench, require=Require.ENCLAVE)).final


@pytest.mark.parametrize("section", ["", SECTION], ids=["no routing", "routing"])
@pytest.mark.parametrize(
    "passing",
    ["uncertain.timeout", "uncertain.waited", "uncertain.error", STALE_POLICY],
)
async def test_what_could_not_be_looked_at_is_not_final(
    section: str, passing: str
) -> None:
    bench = Bench(passing, section=section)
    assert not (await refusal_of(bench, require=Require.ENCLAVE)).final
    both = Bench(passing, "financial.pan", section=section)
    assert not (await refusal_of(both, require=Require.ENCLAVE)).final


async def test_home_where_no_tier_may_answer_is_final() -> None:
    section = SECTION + "  classes: {public: {tiers: [enclave]}}\n"
    assert (await refusal_of(Bench(section=section), mode=Mode.HOME)).final


def disagrees(_shown: Outbound) -> bool:
    return False


async def test_consent_that_no_person_can_give_is_final() -> None:
    section = SECTION + "  classes: {public: {consent: required}}\n"
    bench = Bench(section=section)
    assert (await refusal_of(bench, require=Require.ENCLAVE)).final
    asked = replace(bench.parts, consents=disagrees)
    bench.session = Session(asked)
    assert not (await refusal_of(bench, require=Require.ENCLAVE)).final


# --- a text that the local model does not hold ------------------------------------

ALL_OF_IT = "What was she given against it? " + "Nothing happened on that day. " * 300
OBSERVED = SECTION + "  observe: true\n"
SECTIONS = pytest.mark.parametrize(
    "section", ["", SECTION, OBSERVED], ids=["no routing", "routing", "observed"]
)


@SECTIONS
async def test_an_answer_to_a_part_says_so_under_every_policy(section: str) -> None:
    bench = Bench("financial.pan", section=section, local=SmallLocal())
    answer = await bench.session.ask(query(ALL_OF_IT))
    size = len(ALL_OF_IT)
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.left_out > size - 3000
    read, _, rest = answer.text.partition("\n\n")
    assert re.fullmatch(rf"\[read [0-9,]+ of {size:,} tokens\]", read)
    assert rest == "At home."
    assert answer.finished.finish_reason == "length"
    pieces = [piece.text async for piece in bench.session.stream(query(ALL_OF_IT))]
    assert pieces == [f"{read}\n\n", "At ", "home."]


@SECTIONS
async def test_what_fits_is_answered_as_it_was(section: str) -> None:
    bench = Bench("financial.pan", section=section, local=SmallLocal())
    answer = await bench.session.ask(query("What was she given?"))
    assert answer.text == "At home."
    assert answer.finished.finish_reason == "stop"


@pytest.mark.parametrize("section", [SECTION, OBSERVED], ids=["routing", "observed"])
async def test_where_the_policy_refuses_long_texts_no_part_is_read(
    section: str,
) -> None:
    section += "  local: {long_text: refuse}\n"
    bench = Bench("financial.pan", section=section, local=SmallLocal())
    with pytest.raises((LocalUnavailableError, NotRoutedError), match="exceeds the"):
        await bench.session.ask(query(ALL_OF_IT))
    assert bench.local.asked == []


async def test_a_text_too_long_for_every_tier_is_a_usage_error() -> None:
    """With 503, OpenAI's clients and a balancer would take the service for ill."""
    section = SECTION + "  local: {long_text: refuse}\n"
    bench = Bench("financial.pan", section=section, home_tokens=40, local=SmallLocal())
    with pytest.raises(LocalContextTooLongError) as refused:
        await bench.session.ask(query(ALL_OF_IT))
    status, body = error_object(refused.value)
    assert status == 400
    assert "'code': 'context_length_exceeded'" in str(body)


async def test_what_an_estimate_takes_for_too_long_is_counted_by_the_model() -> None:
    section = SECTION + "  local: {long_text: refuse}\n"
    bench = Bench("financial.pan", section=section, home_tokens=40)
    answer = await bench.session.ask(query(ALL_OF_IT))
    assert answer.route is Answerer.LOCAL


async def test_a_text_too_long_for_the_tier_that_is_required_is_a_usage_error() -> None:
    section = SECTION.replace("kind: attested}", "kind: attested, context_tokens: 256}")
    bench = Bench(section=section)
    with pytest.raises(TooLongError, match="context is 256") as refused:
        await bench.session.ask(query(ALL_OF_IT, require=Require.ENCLAVE))
    assert error_object(refused.value)[0] == 400


async def test_no_part_is_read_where_another_may_be_asked() -> None:
    bench = Bench(section="", local=SmallLocal())
    answer = await bench.session.ask(query(ALL_OF_IT))
    assert answer.route is Answerer.ENCLAVE
    assert "[read" not in answer.text


@pytest.mark.parametrize(
    ("turn", "route"),
    [("At home.", Answerer.LOCAL), ("From afar.", Answerer.ENCLAVE)],
)
@pytest.mark.parametrize("line", [False, True])
async def test_an_answer_to_a_part_is_remembered_without_the_line(
    turn: str, route: Answerer, *, line: bool
) -> None:
    """What the model wrote stayed, and keeps a conversation that it turns up in."""
    plain = PLAIN.replace("sticky: conversation", "sticky: content")
    assert plain != PLAIN
    bench = Bench(local=SmallLocal(), plain=plain)
    assert (await bench.session.ask(query(HARD))).route is Answerer.ENCLAVE
    bench.inspector.findings = (finding("financial.pan"),)
    answer = await bench.session.ask(query(ALL_OF_IT))
    said, _, rest = answer.text.partition("\n\n")
    assert (said[:6], rest) == ("[read ", "At home.")
    bench.inspector.findings = ()
    turns = [
        {"role": "user", "content": HARD},
        {"role": "assistant", "content": f"{said}\n\n{turn}" if line else turn},
        {"role": "user", "content": HARD},
    ]
    later = await bench.session.ask(query_from(turns, {}, stream=False))
    assert later.route is route
