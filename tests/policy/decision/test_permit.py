"""Each test shows one thing that a permit does not open."""

import copy
import pickle  # it must be refused
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import count
from typing import Any, cast, get_args

import pytest

from curtilage.policy.decision.decide import Allowed, AllowedOnPremises, decide
from curtilage.policy.decision.permit import (
    KEY_BYTES,
    LIFE_MS,
    Attempt,
    Binding,
    ChallengeBinding,
    CoverBinding,
    EgressBinding,
    EgressPermit,
    FetchBinding,
    OnPremisesPermit,
    Party,
    Permit,
    PermitDesk,
    PermitRefusal,
    PermitRefusedError,
    ServerBinding,
    WireException,
)
from curtilage.policy.decision.tiers import RoutingClass, Tier, Tiering, TierKind
from curtilage.policy.document.load import load_profile
from support.inspections import inspection_of
from support.permits import unfinished_permit

PAYLOAD, KEY, RELEASE, SERVER = (bytes([each]) * 32 for each in range(1, 5))
OTHER = b"\xff" * 32
NOW_MS = 1_000_000
ON_PREMISES = Tier(id="ward", kind=TierKind.ON_PREMISES, trusted=frozenset())
RULEBOOK = load_profile("default").rulebook
POLICY = RULEBOOK.digest
COVER = CoverBinding(key=KEY, release=RELEASE)
CHALLENGE = ChallengeBinding(key=KEY, release=RELEASE)
RELAY = FetchBinding(party=Party.RELAY)


def new_desk(key: bytes = bytes(KEY_BYTES), *, most: int = 8) -> PermitDesk:
    numbers = count()
    return PermitDesk(key, lambda size: next(numbers).to_bytes(size, "big"), most)


def permission() -> Allowed:
    inspection = inspection_of(findings=(), payload_digest=PAYLOAD, messages=1)
    allowed = decide(RULEBOOK, inspection).allowed
    assert allowed is not None
    return allowed


def permission_on_premises() -> AllowedOnPremises:
    inspection = inspection_of(findings=(), payload_digest=PAYLOAD, messages=1)
    tiering = Tiering(tiers=(*Tiering().tiers, ON_PREMISES))
    allowed = decide(replace(RULEBOOK, tiering=tiering), inspection).on_premises
    assert allowed is not None
    return allowed


def mint(
    desk: PermitDesk,
    *,
    tier: str = "enclave",
    enclave_key_digest: bytes = KEY,
    release_digest: bytes = RELEASE,
    attempt: int = 0,
    now_ms: int = NOW_MS,
    allowed: Allowed | None = None,
) -> EgressPermit:
    return desk.mint(
        permission() if allowed is None else allowed,
        tier=tier,
        enclave_key_digest=enclave_key_digest,
        release_digest=release_digest,
        attempt=attempt,
        now_ms=now_ms,
    )


def redeem(
    desk: PermitDesk,
    permit: EgressPermit,
    *,
    payload: bytes = PAYLOAD,
    key: bytes = KEY,
    release: bytes = RELEASE,
    policy: str = POLICY,
    now_ms: int = NOW_MS,
) -> None:
    presented = EgressBinding(payload=payload, key=key, release=release, policy=policy)
    desk.redeem(permit, presented, now_ms=now_ms)


def again(
    desk: PermitDesk,
    after: EgressPermit,
    exception: WireException = WireException.DATE_REFUSED,
    key: bytes = KEY,
) -> EgressPermit:
    return desk.mint_again(
        after,
        exception=exception,
        enclave_key_digest=key,
        release_digest=RELEASE,
        now_ms=NOW_MS,
    )


def edit(permit: Permit[Any], name: str, value: object) -> None:
    """Circumvent the immutability of a permit, or of a part of it."""
    parts = (permit.binding, permit.attempt, permit)
    object.__setattr__(next(each for each in parts if hasattr(each, name)), name, value)


def refused(refusal: PermitRefusal, call: Callable[[], object]) -> None:
    with pytest.raises(PermitRefusedError) as raised:
        call()
    assert raised.value.refusal is refusal


def test_a_permit_opens_the_door_for_what_it_names() -> None:
    desk = new_desk()
    permit = mint(desk)
    assert permit.attempt == Attempt(
        policy=POLICY, routing_class=RoutingClass.PUBLIC, tier="enclave", number=0
    )
    redeem(desk, permit)


def test_a_permit_is_used_once() -> None:
    desk = new_desk()
    permit = mint(desk)
    redeem(desk, permit)
    refused(PermitRefusal.USED, lambda: redeem(desk, permit))


@pytest.mark.parametrize(
    ("shown", "refusal"),
    [
        ({"payload": OTHER}, PermitRefusal.PAYLOAD),
        ({"payload": b""}, PermitRefusal.PAYLOAD),
        ({"key": OTHER}, PermitRefusal.KEY),
        ({"release": OTHER}, PermitRefusal.RELEASE),
        ({"policy": "sha256:00"}, PermitRefusal.POLICY),
        ({"now_ms": NOW_MS + LIFE_MS}, PermitRefusal.EXPIRED),
        ({"now_ms": NOW_MS - 1}, None),
    ],
)
def test_a_permit_holds_for_nothing_else(
    shown: dict[str, Any], refusal: PermitRefusal | None
) -> None:
    desk = new_desk()
    permit = mint(desk)
    if refusal is None:
        redeem(desk, permit, **shown)
    else:
        refused(refusal, lambda: redeem(desk, permit, **shown))


def test_a_permit_that_was_shown_with_other_bytes_is_spent() -> None:
    desk = new_desk()
    permit = mint(desk)
    refused(PermitRefusal.PAYLOAD, lambda: redeem(desk, permit, payload=OTHER))
    refused(PermitRefusal.USED, lambda: redeem(desk, permit))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("payload", OTHER),
        ("routing_class", RoutingClass.INTERNAL),
        ("tier", "enclave2"),
        ("key", OTHER),
        ("release", OTHER),
        ("policy", "sha256:00"),
        ("number", 1),
        ("exceptions", (WireException.DATE_REFUSED,)),
        ("id", b"\1" * 16),
        ("not_after_ms", NOW_MS + LIFE_MS - 1),
        ("mac", bytes(32)),
        ("mac", b""),
    ],
)
def test_an_edited_permit_is_refused(name: str, value: object) -> None:
    desk = new_desk()
    permit = mint(desk)
    edit(permit, name, value)
    shown: dict[str, Any] = {name: value} if hasattr(permit.binding, name) else {}
    refused(PermitRefusal.FORGED, lambda: redeem(desk, permit, **shown))


def test_a_permit_with_another_s_parts_is_refused() -> None:
    desk = new_desk()
    query, other = mint(desk), mint(desk, enclave_key_digest=OTHER, attempt=1)
    for name, key in (("binding", OTHER), ("attempt", KEY)):
        kept = getattr(query, name)
        for part in (getattr(other, name), None):
            object.__setattr__(query, name, part)
            with pytest.raises((PermitRefusedError, TypeError)):
                redeem(desk, query, key=key)
        object.__setattr__(query, name, kept)
    redeem(desk, query)


def test_every_part_of_a_permit_is_in_its_mac() -> None:
    """A desk that draws the same id twice: only what is bound differs."""
    desk = PermitDesk(bytes(KEY_BYTES), bytes)
    macs = {
        mint(desk).mac,
        mint(desk, attempt=1).mac,
        mint(desk, enclave_key_digest=OTHER).mac,
        mint(desk, release_digest=OTHER).mac,
        mint(desk, now_ms=NOW_MS + 1).mac,
        mint_on_premises(desk).mac,
        desk.mint_without_query(COVER, now_ms=NOW_MS).mac,
        desk.mint_without_query(CHALLENGE, now_ms=NOW_MS).mac,
        desk.mint_without_query(RELAY, now_ms=NOW_MS).mac,
    }
    assert len(macs) == 9


def test_another_process_s_permit_is_refused() -> None:
    permit = mint(new_desk(b"\1" * KEY_BYTES))
    refused(PermitRefusal.FORGED, lambda: redeem(new_desk(), permit))


def test_what_no_desk_built_is_no_permit() -> None:
    desk = new_desk()
    shell = unfinished_permit()
    object.__setattr__(shell, "_brand", object())
    for forged in (None, True, permission(), unfinished_permit(), shell):
        with pytest.raises(TypeError, match="EgressBinding expected"):
            redeem(desk, cast("EgressPermit", forged))


def test_a_lookalike_with_the_true_brand_is_no_permit() -> None:
    desk = new_desk()
    true = mint(desk)

    class Lookalike(Permit[EgressBinding]):  # type: ignore[misc]
        pass

    fake = object.__new__(Lookalike)
    for name in ("_brand", "mac", "id", "not_after_ms", "binding", "attempt"):
        object.__setattr__(fake, name, getattr(true, name))
    with pytest.raises(TypeError, match="EgressBinding expected"):
        redeem(desk, fake)


def test_a_kind_does_not_pass_for_another() -> None:
    desk = new_desk()
    others = (
        desk.mint_without_query(COVER, now_ms=NOW_MS),
        desk.mint_without_query(CHALLENGE, now_ms=NOW_MS),
        desk.mint_without_query(RELAY, now_ms=NOW_MS),
    )
    for other in others:
        with pytest.raises(TypeError):
            redeem(desk, cast("EgressPermit", other))
    for permit in (mint(desk), mint_on_premises(desk), *others):
        for presented in (COVER, CHALLENGE, RELAY):
            if type(presented) is not type(permit.binding):
                with pytest.raises(TypeError):
                    desk.redeem(cast("Any", permit), presented, now_ms=NOW_MS)


def test_a_permit_for_a_query_needs_a_decision() -> None:
    egress = EgressBinding(payload=PAYLOAD, key=KEY, release=RELEASE, policy=POLICY)
    for binding in (egress, ServerBinding(payload=PAYLOAD, server=SERVER), None):
        with pytest.raises(TypeError, match="decision"):
            new_desk().mint_without_query(cast("CoverBinding", binding), now_ms=NOW_MS)


def test_only_a_desk_builds_a_permit() -> None:
    with pytest.raises(TypeError, match="PermitDesk"):
        Permit(object(), bytes(16), NOW_MS, RELAY, None)


def test_a_permit_cannot_be_copied_or_changed() -> None:
    permit = mint(new_desk())
    for attempt in (
        lambda: copy.copy(permit),
        lambda: copy.deepcopy(permit),
        lambda: pickle.dumps(permit),
    ):
        with pytest.raises(TypeError):
            attempt()
    with pytest.raises((TypeError, ValueError)):
        replace(permit, not_after_ms=NOW_MS)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        permit.attempt = None  # type: ignore[misc]
    with pytest.raises(AttributeError):
        permit.binding.payload = OTHER  # type: ignore[misc]


def test_a_permit_shows_no_digest_of_what_was_asked() -> None:
    shown = repr(mint(new_desk()))
    assert "enclave" in shown
    assert str(PAYLOAD) not in shown
    assert str(KEY) not in shown


def test_a_desk_cannot_be_copied() -> None:
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="copied"):
            copied(new_desk())


@pytest.mark.parametrize("size", [0, KEY_BYTES - 1, KEY_BYTES + 1])
def test_a_desk_needs_a_whole_key(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        new_desk(bytes(size))


def test_randomness_that_is_too_short_mints_nothing() -> None:
    desk = PermitDesk(bytes(KEY_BYTES), lambda size: bytes(size - 1))
    with pytest.raises(ValueError, match="16 bytes"):
        mint(desk)


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"tier": "local"}, PermitRefusal.TIER),
        ({"tier": ""}, PermitRefusal.TIER),
        ({"attempt": -1}, PermitRefusal.ATTEMPT),
        ({"attempt": 256}, PermitRefusal.ATTEMPT),
    ],
)
def test_nothing_is_minted_for(given: dict[str, Any], refusal: PermitRefusal) -> None:
    refused(refusal, lambda: mint(new_desk(), **given))


@pytest.mark.parametrize("name", ["enclave_key_digest", "release_digest"])
@pytest.mark.parametrize("size", [0, 31, 33])
def test_nothing_is_minted_for_a_digest_of_another_size(name: str, size: int) -> None:
    given: dict[str, Any] = {name: bytes(size)}
    with pytest.raises(ValueError, match="32 bytes"):
        mint(new_desk(), **given)


def test_nothing_is_minted_without_a_decision() -> None:
    for forged in (True, object.__new__(Allowed), permission_on_premises()):
        with pytest.raises(TypeError):
            mint(new_desk(), allowed=cast("Allowed", forged))


def test_nothing_is_minted_for_what_must_stay() -> None:
    """There is no such ``Allowed``; were there one, it would get no further."""
    allowed = permission()
    object.__setattr__(allowed, "routing_class", RoutingClass.RESTRICTED)
    refused(PermitRefusal.ROUTING_CLASS, lambda: mint(new_desk(), allowed=allowed))


def test_a_full_desk_redeems_nothing_until_something_has_expired() -> None:
    desk = new_desk(most=2)
    for later in (0, 1):
        redeem(desk, mint(desk, now_ms=NOW_MS + later), now_ms=NOW_MS + later)
    refused(PermitRefusal.FULL, lambda: redeem(desk, mint(desk)))
    first_expires = NOW_MS + LIFE_MS
    permit = mint(desk, now_ms=first_expires)
    redeem(desk, permit, now_ms=first_expires)
    refused(
        PermitRefusal.FULL,
        lambda: redeem(desk, mint(desk, now_ms=first_expires), now_ms=first_expires),
    )


def test_a_clock_that_is_set_back_makes_no_used_permit_good_again() -> None:
    desk = new_desk()
    used, unused = mint(desk), mint(desk)
    redeem(desk, used)
    redeem(desk, mint(desk, now_ms=NOW_MS + 2 * LIFE_MS), now_ms=NOW_MS + 2 * LIFE_MS)
    refused(PermitRefusal.FORGED, lambda: redeem(desk, used))
    refused(PermitRefusal.FORGED, lambda: redeem(desk, unused))
    redeem(desk, mint(desk))


def test_a_clock_that_is_set_back_a_little_goes_on_where_it_was() -> None:
    desk = new_desk()
    early = mint(desk)
    mint(desk, now_ms=NOW_MS + LIFE_MS)
    refused(PermitRefusal.EXPIRED, lambda: redeem(desk, early))


@pytest.mark.parametrize(
    ("exception", "key"),
    [
        (WireException.KEY_UNKNOWN, OTHER),
        (WireException.NODE_FAILED, OTHER),
        (WireException.DATE_REFUSED, KEY),
    ],
)
def test_the_wire_may_ask_for_one_more_attempt(
    exception: WireException, key: bytes
) -> None:
    desk = new_desk()
    first = mint(desk)
    redeem(desk, first)
    second = again(desk, first, exception, key)
    assert first.attempt is not None
    assert second.attempt == replace(first.attempt, number=1, exceptions=(exception,))
    assert second.binding == replace(first.binding, key=key)
    redeem(desk, second, key=key)


def test_another_attempt_needs_the_first_to_be_redeemed() -> None:
    desk = new_desk()
    refused(PermitRefusal.NOT_REDEEMED, lambda: again(desk, mint(desk)))
    shown = mint(desk)
    refused(PermitRefusal.PAYLOAD, lambda: redeem(desk, shown, payload=OTHER))
    refused(PermitRefusal.NOT_REDEEMED, lambda: again(desk, shown))


def test_after_an_attempt_there_is_one_more_and_no_second() -> None:
    desk = new_desk()
    first = mint(desk)
    redeem(desk, first)
    again(desk, first)
    refused(PermitRefusal.NOT_REDEEMED, lambda: again(desk, first))
    unknown = WireException.KEY_UNKNOWN
    refused(PermitRefusal.NOT_REDEEMED, lambda: again(desk, first, unknown, OTHER))


def test_each_exception_holds_once_for_a_query() -> None:
    desk = new_desk()
    first = mint(desk)
    redeem(desk, first)
    second = again(desk, first)
    redeem(desk, second)
    refused(PermitRefusal.ATTEMPT, lambda: again(desk, second))
    third = again(desk, second, WireException.KEY_UNKNOWN, OTHER)
    assert third.attempt is not None
    assert third.attempt.number == 2
    redeem(desk, third, key=OTHER)
    date, unknown = WireException.DATE_REFUSED, WireException.KEY_UNKNOWN
    refused(PermitRefusal.ATTEMPT, lambda: again(desk, third, date, OTHER))
    refused(PermitRefusal.ATTEMPT, lambda: again(desk, third, unknown, KEY))
    fourth = again(desk, third, WireException.NODE_FAILED, KEY)
    redeem(desk, fourth)
    refused(
        PermitRefusal.ATTEMPT,
        lambda: again(desk, fourth, WireException.NODE_FAILED, OTHER),
    )


@pytest.mark.parametrize(
    ("exception", "key"),
    [
        (WireException.KEY_UNKNOWN, KEY),
        (WireException.NODE_FAILED, KEY),
        (WireException.DATE_REFUSED, OTHER),
    ],
)
def test_an_exception_holds_for_its_own_key(
    exception: WireException, key: bytes
) -> None:
    desk = new_desk()
    first = mint(desk)
    redeem(desk, first)
    refused(PermitRefusal.KEY, lambda: again(desk, first, exception, key))


def test_an_edited_permit_is_followed_by_none() -> None:
    desk = new_desk()
    first = mint(desk)
    redeem(desk, first)
    edit(first, "payload", OTHER)
    refused(PermitRefusal.FORGED, lambda: again(desk, first))


def test_the_last_attempt_is_followed_by_none() -> None:
    desk = new_desk()
    last = mint(desk, attempt=255)
    redeem(desk, last)
    refused(PermitRefusal.ATTEMPT, lambda: again(desk, last))


@pytest.mark.parametrize("binding", [COVER, CHALLENGE], ids=["cover", "challenge"])
@pytest.mark.parametrize(
    ("shown", "refusal"),
    [
        ({}, None),
        ({"key": OTHER}, PermitRefusal.KEY),
        ({"release": OTHER}, PermitRefusal.RELEASE),
        ({"now_ms": NOW_MS + LIFE_MS}, PermitRefusal.EXPIRED),
    ],
)
def test_requests_without_a_query_have_their_own_permits(
    binding: CoverBinding, shown: dict[str, Any], refusal: PermitRefusal | None
) -> None:
    desk = new_desk()
    permit = desk.mint_without_query(binding, now_ms=NOW_MS)
    assert permit.attempt is None
    if refusal is None:
        desk.redeem(permit, binding, now_ms=NOW_MS)
        refusal = PermitRefusal.USED
    now_ms = shown.get("now_ms", NOW_MS)
    changed = {name: value for name, value in shown.items() if name != "now_ms"}
    presented = replace(binding, **changed)
    refused(refusal, lambda: desk.redeem(permit, presented, now_ms=now_ms))


def test_only_bindings_of_queries_have_a_field_for_a_payload() -> None:
    with_one = {
        kind
        for kind in get_args(Binding)
        if "payload" in {each.name for each in fields(kind)}
    }
    assert with_one == {EgressBinding, ServerBinding}


def test_a_fetch_is_from_one_party_and_once() -> None:
    desk = new_desk()
    permit = desk.mint_without_query(RELAY, now_ms=NOW_MS)
    desk.redeem(permit, RELAY, now_ms=NOW_MS)
    refused(PermitRefusal.USED, lambda: desk.redeem(permit, RELAY, now_ms=NOW_MS))
    other = desk.mint_without_query(RELAY, now_ms=NOW_MS)
    mirror = FetchBinding(party=Party.MIRROR)
    refused(PermitRefusal.PARTY, lambda: desk.redeem(other, mirror, now_ms=NOW_MS))


def mint_on_premises(
    desk: PermitDesk, *, tier: str = "ward", attempt: int = 0
) -> OnPremisesPermit:
    return desk.mint_on_premises(
        permission_on_premises(),
        tier=tier,
        server_digest=SERVER,
        attempt=attempt,
        now_ms=NOW_MS,
    )


def redeem_on_premises(
    desk: PermitDesk,
    permit: OnPremisesPermit,
    *,
    payload: bytes = PAYLOAD,
    server: bytes = SERVER,
    now_ms: int = NOW_MS,
) -> None:
    presented = ServerBinding(payload=payload, server=server)
    desk.redeem(permit, presented, now_ms=now_ms)


@pytest.mark.parametrize(
    ("shown", "refusal"),
    [
        ({"payload": OTHER}, PermitRefusal.PAYLOAD),
        ({"server": OTHER}, PermitRefusal.SERVER),
        ({"now_ms": NOW_MS + LIFE_MS}, PermitRefusal.EXPIRED),
        ({}, PermitRefusal.USED),
    ],
)
def test_an_on_premises_permit_holds_once(
    shown: dict[str, Any], refusal: PermitRefusal
) -> None:
    desk = new_desk()
    permit = mint_on_premises(desk)
    if refusal is PermitRefusal.USED:
        redeem_on_premises(desk, permit)
    refused(refusal, lambda: redeem_on_premises(desk, permit, **shown))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("payload", OTHER),
        ("routing_class", RoutingClass.INTERNAL),
        ("tier", "ward2"),
        ("server", OTHER),
        ("policy", "sha256:00"),
        ("number", 1),
    ],
)
def test_an_edited_on_premises_permit_is_refused(name: str, value: object) -> None:
    desk = new_desk()
    permit = mint_on_premises(desk)
    edit(permit, name, value)
    refused(PermitRefusal.FORGED, lambda: redeem_on_premises(desk, permit))


def test_on_premises_permits_are_a_separate_kind() -> None:
    desk = new_desk()
    with pytest.raises(TypeError):
        redeem(desk, cast("EgressPermit", mint_on_premises(desk)))
    with pytest.raises(TypeError):
        redeem_on_premises(desk, cast("OnPremisesPermit", mint(desk)))
    with pytest.raises(TypeError):
        desk.mint_on_premises(
            cast("AllowedOnPremises", permission()),
            tier="enclave",
            server_digest=SERVER,
            attempt=0,
            now_ms=NOW_MS,
        )
    refused(PermitRefusal.TIER, lambda: mint_on_premises(desk, tier="enclave"))
    refused(PermitRefusal.ATTEMPT, lambda: mint_on_premises(desk, attempt=256))
