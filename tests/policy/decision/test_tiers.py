from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.policy.decision.classes import CLASSES
from curtilage.policy.decision.conversation import pins
from curtilage.policy.decision.decide import (
    Decision,
    decide,
    require_allowed,
    require_allowed_on_premises,
)
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import TIERS, Rulebook
from curtilage.policy.decision.tiers import (
    Demand,
    Denial,
    Permitted,
    RoutingClass,
    Tier,
    Tiering,
    TierKind,
)
from curtilage.policy.document.load import load_policy
from support.inspections import inspection_of

RULES = load_policy("""\
version: 1
default: {decision: enclave}
rules:
- {id: any-uncertain, when: "uncertain.*", then: local}
- {id: keys, when: "secret.*", then: block}
- {id: health, when: "health.*", then: local}
- {id: names, when: "identifier.direct.*", then: deidentify}
""").rulebook
AT_HOME = replace(RULES, default=Route.LOCAL)
CITY, NAME = "identifier.quasi.city", "identifier.direct.person"
ILLNESS, KEY, ERROR = "health.condition", "secret.api_key", "uncertain.error"
FOUND = (CITY, NAME, ILLNESS, KEY, ERROR)

DEVICE = Tier(id="device", kind=TierKind.IN_PROCESS)
ENCLAVE = Tier(id="enclave", kind=TierKind.ATTESTED)
UNTRUSTED = Tier(id="ward", kind=TierKind.ON_PREMISES)
TRUSTED = replace(UNTRUSTED, trusted=CLASSES)


def finding(data_class: str) -> Finding:
    return Finding(
        data_class=data_class,
        detector="test",
        start=0,
        end=1,
        score=100,
        validated=True,
        normalization=Normalization.RAW,
        where=Where(message=0, role="user", json_path="content"),
    )


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A query, as far as a decision reads it."""

    found: frozenset[str] = frozenset()
    pinned: bool = False
    floor: RoutingClass = RoutingClass.PUBLIC

    def decided(self, rulebook: Rulebook, tiering: Tiering) -> Decision:
        inspection = inspection_of(
            findings=tuple(finding(each) for each in sorted(self.found)),
            payload_digest=bytes(32),
            messages=1,
            pinned=self.pinned,
            floor=self.floor,
        )
        return decide(replace(rulebook, tiering=tiering), inspection)


def ids(permitted: Permitted) -> list[str]:
    return [each.id for each in permitted.tiers]


CLASS_SETS = st.frozensets(st.sampled_from(FOUND))
SERVERS = st.builds(
    Tier,
    id=st.sampled_from(["ward", "archive"]),
    kind=st.just(TierKind.ON_PREMISES),
    trusted=CLASS_SETS | st.just(CLASSES),
)
TIERS_OF = st.lists(
    SERVERS | st.just(DEVICE) | st.just(ENCLAVE),
    min_size=1,
    max_size=4,
    unique_by=lambda each: each.id,
)
IDS = st.frozensets(st.sampled_from(["device", "ward", "archive", "enclave"]))
DEMANDS = st.builds(Demand, classes=CLASS_SETS, only=st.none() | IDS, never=IDS)
TIERINGS = st.builds(
    Tiering,
    tiers=TIERS_OF.map(tuple),
    classes=st.dictionaries(st.sampled_from(RoutingClass), IDS),
    demands=st.lists(DEMANDS, max_size=2).map(tuple),
    claimed=CLASS_SETS,
)
QUERIES = st.builds(
    Asked, found=CLASS_SETS, pinned=st.booleans(), floor=st.sampled_from(RoutingClass)
)
RULEBOOKS = st.sampled_from([RULES, AT_HOME])


# --- the mask, whatever the policy and the query -------------------------------


@given(RULEBOOKS, TIERINGS, QUERIES, QUERIES)
def test_more_never_adds_an_enclave(
    rulebook: Rulebook, tiering: Tiering, less: Asked, more: Asked
) -> None:
    both = Asked(
        found=less.found | more.found,
        pinned=less.pinned or more.pinned,
        floor=max(less.floor, more.floor, key=lambda each: each.privacy),
    )
    before = less.decided(rulebook, tiering).permitted
    after = both.decided(rulebook, tiering).permitted
    attested = TierKind.ATTESTED
    assert after.of_kind(attested) <= before.of_kind(attested)
    assert after.routing_class.privacy >= before.routing_class.privacy
    # Only tiers that are listed by class can answer a more private query and not a
    # less private one: these are on premises, and trusted.
    unlisted = replace(tiering, classes={})
    before, after = (
        each.decided(rulebook, unlisted).permitted for each in (less, both)
    )
    assert set(ids(after)) <= set(ids(before))


@given(RULEBOOKS, TIERINGS, QUERIES)
def test_a_tier_is_permitted_or_denied(
    rulebook: Rulebook, tiering: Tiering, query: Asked
) -> None:
    permitted = query.decided(rulebook, tiering).permitted
    denied = [name for name, _ in permitted.denied]
    assert sorted([*ids(permitted), *denied]) == sorted(t.id for t in tiering.tiers)
    assert ids(permitted) == [t.id for t in tiering.tiers if t.id not in denied]


@given(RULEBOOKS, TIERINGS, QUERIES)
def test_permissions_are_for_the_permitted_and_no_others(
    rulebook: Rulebook, tiering: Tiering, query: Asked
) -> None:
    decision = query.decided(rulebook, tiering)
    permitted = decision.permitted
    enclaves = permitted.of_kind(TierKind.ATTESTED)
    servers = permitted.of_kind(TierKind.ON_PREMISES)
    assert (decision.allowed is not None) == bool(enclaves)
    assert (decision.allowed is not None) == (decision.route is Route.ENCLAVE)
    if decision.allowed is not None:
        allowed = require_allowed(decision.allowed)
        assert allowed.tiers == enclaves
        assert allowed.routing_class is permitted.routing_class
    assert (decision.on_premises is not None) == bool(servers)
    if decision.on_premises is not None:
        on_premises = require_allowed_on_premises(decision.on_premises)
        assert on_premises.tiers == servers
        assert on_premises.routing_class is permitted.routing_class
        assert on_premises.payload_digest == bytes(32)
        assert on_premises.policy_digest == rulebook.digest


def test_without_a_permitted_enclave_nothing_may_leave() -> None:
    rulebook = replace(RULES, tiering=Tiering(tiers=(DEVICE, UNTRUSTED)))
    decision = decide(rulebook, inspection_of())
    assert (decision.route, decision.rule) == (Route.LOCAL, TIERS)
    assert decision.allowed is None


@given(RULEBOOKS, TIERINGS, QUERIES)
def test_local_data_goes_only_to_trusted_servers(
    rulebook: Rulebook, tiering: Tiering, query: Asked
) -> None:
    decision = query.decided(rulebook, tiering)
    servers = [t for t in decision.permitted.tiers if t.kind is TierKind.ON_PREMISES]
    # Data that the rules permit to leave, but to no enclave, is not secret here.
    if decision.route is Route.ENCLAVE or decision.rule == TIERS:
        return
    unknown = query.pinned or query.floor is RoutingClass.RESTRICTED
    for tier in servers:
        assert tier.trusted
        assert tier.trusted >= (CLASSES if unknown else query.found)


@given(RULEBOOKS, TIERINGS, QUERIES)
def test_nobody_is_asked_of_what_is_blocked(
    rulebook: Rulebook, tiering: Tiering, query: Asked
) -> None:
    blocked = replace(query, found=query.found | {KEY}).decided(rulebook, tiering)
    assert blocked.route is Route.BLOCK
    assert not blocked.permitted.tiers
    assert {reason for _, reason in blocked.permitted.denied} == {Denial.ROUTE}
    assert (blocked.allowed, blocked.on_premises) == (None, None)


@given(RULEBOOKS, TIERINGS, QUERIES)
def test_demands_and_lists_hold(
    rulebook: Rulebook, tiering: Tiering, query: Asked
) -> None:
    permitted = query.decided(rulebook, tiering).permitted
    listed = tiering.classes.get(permitted.routing_class)
    for name in ids(permitted):
        assert listed is None or name in listed
        for demand in tiering.demands:
            if demand.classes & query.found:
                assert name not in demand.never
                assert demand.only is None or name in demand.only


@given(
    RULEBOOKS,
    TIERINGS,
    QUERIES,
    TIERS_OF.flatmap(st.sampled_from),
    st.sampled_from(Denial),
)
def test_without_only_narrows(
    rulebook: Rulebook, tiering: Tiering, query: Asked, tier: Tier, reason: Denial
) -> None:
    permitted = query.decided(rulebook, tiering).permitted
    left = permitted.without(tier, reason)
    assert left.tiers == tuple(t for t in permitted.tiers if t.id != tier.id)
    assert left.routing_class is permitted.routing_class
    gone = ((tier.id, reason),) if tier.id in ids(permitted) else ()
    assert left.denied == (*permitted.denied, *gone)


# --- each reason by itself ------------------------------------------------------


def denied_by(tiering: Tiering, query: Asked, rulebook: Rulebook = RULES) -> object:
    permitted = query.decided(rulebook, tiering).permitted
    assert not permitted.tiers
    return permitted.denied


def test_without_a_section_what_may_leave_may_go_to_both() -> None:
    decision = Asked().decided(RULES, Tiering())
    assert ids(decision.permitted) == ["local", "enclave"]
    assert decision.permitted.routing_class is RoutingClass.PUBLIC


def test_what_stays_goes_to_no_enclave() -> None:
    enclave = Tiering(tiers=(ENCLAVE,))
    for found in (ILLNESS, NAME, ERROR):
        query = Asked(found=frozenset({found}))
        assert denied_by(enclave, query) == (("enclave", Denial.ROUTE),)


def test_an_on_premises_server_gets_data_it_is_trusted_with() -> None:
    ward = replace(UNTRUSTED, trusted=frozenset({ILLNESS}))
    tiering = Tiering(tiers=(ward, ENCLAVE))
    decision = Asked(found=frozenset({ILLNESS})).decided(RULES, tiering)
    assert decision.route is Route.LOCAL
    assert ids(decision.permitted) == ["ward"]
    assert decision.on_premises is not None
    assert decision.allowed is None


@pytest.mark.parametrize("more", [NAME, ERROR])
def test_an_on_premises_server_must_be_trusted_with_all_of_it(more: str) -> None:
    ward = replace(UNTRUSTED, trusted=frozenset({ILLNESS}))
    query = Asked(found=frozenset({ILLNESS, more}))
    assert denied_by(Tiering(tiers=(ward,)), query) == (("ward", Denial.NOT_TRUSTED),)


def test_an_untrusted_server_gets_only_data_that_may_leave() -> None:
    tiering = Tiering(tiers=(UNTRUSTED, ENCLAVE))
    assert ids(Asked().decided(RULES, tiering).permitted) == ["ward", "enclave"]
    kept = denied_by(Tiering(tiers=(UNTRUSTED,)), Asked(), AT_HOME)
    assert kept == (("ward", Denial.NOT_TRUSTED),)


@pytest.mark.parametrize(
    "query", [Asked(pinned=True), Asked(floor=RoutingClass.RESTRICTED)]
)
def test_where_more_is_known_than_was_found_only_full_trust_will_do(
    query: Asked,
) -> None:
    almost = replace(TRUSTED, trusted=CLASSES - {KEY})
    assert denied_by(Tiering(tiers=(almost,)), query) == (("ward", Denial.NOT_TRUSTED),)
    assert ids(query.decided(RULES, Tiering(tiers=(TRUSTED,))).permitted) == ["ward"]
    # The classes of the policy's own detectors are among what may be in it.
    own = Tiering(tiers=(TRUSTED,), known=CLASSES | {"org.edm.customer"})
    assert denied_by(own, query) == (("ward", Denial.NOT_TRUSTED),)


def test_a_class_lists_its_tiers() -> None:
    tiering = Tiering(
        tiers=(DEVICE,), classes={RoutingClass.PUBLIC: frozenset({"enclave"})}
    )
    assert denied_by(tiering, Asked()) == (("device", Denial.CLASS),)
    internal = Asked(floor=RoutingClass.INTERNAL)
    assert ids(internal.decided(RULES, tiering).permitted) == ["device"]


def test_an_enclave_is_listed_for_what_is_less_private_too() -> None:
    tiering = Tiering(
        tiers=(DEVICE, ENCLAVE), classes={RoutingClass.PUBLIC: frozenset({"device"})}
    )
    floor = Asked(floor=RoutingClass.CONFIDENTIAL)
    assert ids(floor.decided(RULES, tiering).permitted) == ["device"]


def test_what_an_enclave_must_show_more_for_is_confidential() -> None:
    tiering = Tiering(claimed=frozenset({CITY}))
    decision = Asked(found=frozenset({CITY})).decided(RULES, tiering)
    assert decision.permitted.routing_class is RoutingClass.CONFIDENTIAL
    assert decision.route is Route.ENCLAVE


def test_a_demand_may_forbid_this_device() -> None:
    query = Asked(found=frozenset({CITY}))
    only = Demand(classes=frozenset({CITY}), only=frozenset({"enclave"}))
    never = Demand(classes=frozenset({CITY}), never=frozenset({"device"}))
    for demand in (only, never):
        tiering = Tiering(tiers=(DEVICE, ENCLAVE), demands=(demand,))
        permitted = query.decided(RULES, tiering).permitted
        assert ids(permitted) == ["enclave"]
        assert permitted.denied == (("device", Denial.DEMAND),)
        assert ids(Asked().decided(RULES, tiering).permitted) == ["device", "enclave"]


def test_what_may_leave_and_has_no_enclave_stays_and_pins() -> None:
    tiering = Tiering(
        tiers=(DEVICE, UNTRUSTED, ENCLAVE),
        demands=(Demand(classes=frozenset({CITY}), never=frozenset({"enclave"})),),
    )
    query = Asked(found=frozenset({CITY}))
    decision = query.decided(RULES, tiering)
    assert (decision.route, decision.rule) == (Route.LOCAL, TIERS)
    assert decision.allowed is None
    assert ids(decision.permitted) == ["device", "ward"]
    inspection = inspection_of(findings=(), payload_digest=bytes(32), messages=1)
    assert pins(RULES, inspection, decision)


def test_a_declared_class_raises_and_never_lowers() -> None:
    kept = Asked(found=frozenset({ILLNESS}), floor=RoutingClass.INTERNAL)
    restricted = kept.decided(RULES, Tiering()).permitted.routing_class
    assert restricted is RoutingClass.RESTRICTED
    declared = Asked(floor=RoutingClass.RESTRICTED).decided(RULES, Tiering())
    assert (declared.route, declared.rule) == (Route.LOCAL, "floor")
    assert ids(declared.permitted) == ["local"]


def test_two_tiers_of_one_id_are_no_tiering() -> None:
    with pytest.raises(ValueError, match="same id"):
        Tiering(tiers=(DEVICE, replace(ENCLAVE, id="device")))


def unknown_kind() -> TierKind:
    """Return a kind that nobody has thought of yet."""
    kind = str.__new__(TierKind, "elsewhere")
    kind._name_, kind._value_ = "ELSEWHERE", "elsewhere"
    return kind


@pytest.mark.parametrize("route", list(Route))
def test_a_tier_of_an_unknown_kind_is_denied(route: Route) -> None:
    kind = unknown_kind()
    assert kind.outside
    for trusted in (frozenset[str](), CLASSES):
        new = Tier(id="new", kind=kind, trusted=trusted)
        mask = Tiering(tiers=(DEVICE, new, ENCLAVE)).permitted(route, frozenset())
        assert new not in mask.tiers
        assert dict(mask.denied)["new"] is Denial.ROUTE


@pytest.mark.parametrize("route", [Route.LOCAL, Route.DEIDENTIFY])
def test_a_tier_of_an_unknown_kind_on_premises_is_denied_unless_it_is_trusted(
    route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TierKind, "outside", property(lambda _: False))
    mask = Tiering(tiers=(DEVICE, Tier(id="new", kind=unknown_kind()))).permitted(
        route, frozenset()
    )
    assert mask.tiers == (DEVICE,)
    assert mask.denied == (("new", Denial.NOT_TRUSTED),)
