import copy
import pickle  # it must be refused
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from typing import TypeAlias

import pytest

from curtilage.policy.decision.classes import CLASSES
from curtilage.policy.decision.decide import (
    Allowed,
    AllowedOnPremises,
    Decision,
    decide,
    require_allowed,
    require_allowed_on_premises,
)
from curtilage.policy.decision.tiers import RoutingClass, Tier, Tiering, TierKind
from curtilage.policy.document.load import load_profile
from support.inspections import inspection_of

DIGEST = bytes(range(32))
POLICY = load_profile("default")
Permission: TypeAlias = Allowed | AllowedOnPremises
Require: TypeAlias = Callable[[object], Permission]


def decided() -> Decision:
    """Return a decision that permits an on-premises server, and an enclave."""
    tiering = Tiering(
        tiers=(
            Tier(id="ward", kind=TierKind.ON_PREMISES, trusted=CLASSES),
            Tier(id="enclave", kind=TierKind.ATTESTED),
        )
    )
    return decide(
        replace(POLICY.rulebook, tiering=tiering),
        inspection_of(findings=(), payload_digest=DIGEST, messages=1),
    )


def make_allowed() -> Allowed:
    allowed = decided().allowed
    assert allowed is not None
    return allowed


def make_allowed_on_premises() -> AllowedOnPremises:
    on_premises = decided().on_premises
    assert on_premises is not None
    return on_premises


BOTH = pytest.mark.parametrize(
    ("make", "require"),
    [
        (make_allowed, require_allowed),
        (make_allowed_on_premises, require_allowed_on_premises),
    ],
    ids=["Allowed", "AllowedOnPremises"],
)


@BOTH
def test_a_permission_names_policy_and_payload(
    make: Callable[[], Permission], require: Require
) -> None:
    permission = make()
    assert permission.payload_digest == DIGEST
    assert permission.policy_digest == POLICY.digest
    assert permission.routing_class is RoutingClass.PUBLIC
    assert require(permission) is permission


def test_each_permission_names_its_own_tiers() -> None:
    assert make_allowed().tiers == {"enclave"}
    assert make_allowed_on_premises().tiers == {"ward"}


@BOTH
def test_a_permission_is_compared_by_what_it_permits(
    make: Callable[[], Permission], require: Require
) -> None:
    assert make() == make()
    assert hash(make()) == hash(make())
    other: object = "allowed"
    assert make() != other
    assert require(make()) == make()


def test_one_permission_is_never_the_other() -> None:
    allowed, on_premises = make_allowed(), make_allowed_on_premises()
    one: object = allowed
    other: object = on_premises
    assert one != other
    assert other != one
    with pytest.raises(TypeError, match="has a permit minted"):
        require_allowed(on_premises)
    with pytest.raises(TypeError, match="opens this door"):
        require_allowed_on_premises(allowed)


@BOTH
def test_a_permission_shows_no_payload_digest(
    make: Callable[[], Permission], require: Require
) -> None:
    shown = repr(require(make()))
    assert DIGEST.hex() not in shown
    assert str(DIGEST) not in shown
    assert shown.startswith(type(make()).__name__)


@pytest.mark.parametrize("kind", [Allowed, AllowedOnPremises])
@pytest.mark.parametrize("brand", [None, object(), Allowed, True])
def test_a_permission_refuses_other_builders(
    kind: type[Permission], brand: object
) -> None:
    with pytest.raises(TypeError, match="only decide"):
        kind(
            brand=brand,
            policy_digest="sha256:00",
            payload_digest=DIGEST,
            routing_class=RoutingClass.PUBLIC,
            tiers=frozenset({"enclave"}),
        )


@pytest.mark.parametrize("kind", [Allowed, AllowedOnPremises])
def test_a_permission_refuses_subclasses(kind: type[Permission]) -> None:
    with pytest.raises(TypeError, match="no subclasses"):
        type("Forged", (kind,), {})


@BOTH
def test_a_permission_refuses_copies(
    make: Callable[[], Permission], require: Require
) -> None:
    permission = require(make())
    for attempt in (
        lambda: copy.copy(permission),
        lambda: copy.deepcopy(permission),
        lambda: pickle.dumps(permission),
        lambda: pickle.dumps(permission, protocol=0),
    ):
        with pytest.raises(TypeError):
            attempt()
    with pytest.raises(ValueError, match="brand"):
        replace(permission, payload_digest=bytes(32))  # type: ignore[call-arg]


@BOTH
def test_a_permission_refuses_changes(
    make: Callable[[], Permission], require: Require
) -> None:
    permission = require(make())
    with pytest.raises(FrozenInstanceError):
        permission.payload_digest = bytes(32)  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        permission.tiers = frozenset({"ward", "enclave"})  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del permission.policy_digest  # pyright: ignore[reportAttributeAccessIssue]
    assert permission.payload_digest == DIGEST


@BOTH
def test_a_door_refuses_what_is_no_permission(
    make: Callable[[], Permission], require: Require
) -> None:
    kind = type(make())

    class Lookalike:
        policy_digest = "sha256:00"
        payload_digest = DIGEST
        _brand = None

    unfinished = object.__new__(kind)
    for value in (None, True, "allowed", Lookalike(), unfinished, kind):
        with pytest.raises(TypeError, match="decide"):
            require(value)


@BOTH
def test_a_door_refuses_a_filled_shell(
    make: Callable[[], Permission], require: Require
) -> None:
    shell = object.__new__(type(make()))
    object.__setattr__(shell, "policy_digest", "sha256:00")
    object.__setattr__(shell, "payload_digest", DIGEST)
    object.__setattr__(shell, "_brand", object())
    with pytest.raises(TypeError, match="decide"):
        require(shell)


@BOTH
def test_a_door_refuses_a_lookalike_with_the_true_brand(
    make: Callable[[], Permission], require: Require
) -> None:
    class Lookalike:
        policy_digest = "sha256:00"
        payload_digest = DIGEST
        _brand = getattr(make(), "_brand")  # noqa: B009 - as a thief would

    with pytest.raises(TypeError, match="decide"):
        require(Lookalike())
