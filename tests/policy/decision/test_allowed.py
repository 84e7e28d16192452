import copy
import pickle  # it must be refused
from dataclasses import replace

import pytest

from curtilage.policy.decision.decide import (
    Allowed,
    Inspection,
    decide,
    require_allowed,
)
from curtilage.policy.document.load import load_profile

DIGEST = bytes(range(32))


def make_allowed() -> Allowed:
    decision = decide(
        load_profile("default").rulebook,
        Inspection(findings=(), payload_digest=DIGEST, messages=1),
    )
    assert decision.allowed is not None
    return decision.allowed


def test_allowed_names_policy_and_payload() -> None:
    allowed = make_allowed()
    assert allowed.payload_digest == DIGEST
    assert allowed.policy_digest == load_profile("default").digest
    assert require_allowed(allowed) is allowed


def test_allowed_is_compared_by_what_it_permits() -> None:
    assert make_allowed() == make_allowed()
    assert hash(make_allowed()) == hash(make_allowed())
    assert make_allowed() != "allowed"


def test_allowed_shows_no_payload_digest() -> None:
    assert DIGEST.hex() not in repr(make_allowed())
    assert str(DIGEST) not in repr(make_allowed())


@pytest.mark.parametrize("brand", [None, object(), Allowed, True])
def test_allowed_refuses_other_builders(brand: object) -> None:
    with pytest.raises(TypeError, match="only decide"):
        Allowed(brand, policy_digest="sha256:00", payload_digest=DIGEST)


def test_allowed_refuses_subclasses() -> None:
    with pytest.raises(TypeError, match="no subclasses"):
        type("Forged", (Allowed,), {})


def test_allowed_refuses_copies() -> None:
    allowed = make_allowed()
    for attempt in (
        lambda: copy.copy(allowed),
        lambda: copy.deepcopy(allowed),
        lambda: replace(allowed, payload_digest=bytes(32)),  # type: ignore[type-var]
        lambda: pickle.dumps(allowed),
        lambda: pickle.dumps(allowed, protocol=0),
    ):
        with pytest.raises(TypeError):
            attempt()


def test_allowed_refuses_changes() -> None:
    allowed = make_allowed()
    with pytest.raises(AttributeError, match="cannot be changed"):
        allowed.payload_digest = bytes(32)
    with pytest.raises(AttributeError, match="cannot be changed"):
        del allowed.policy_digest
    assert allowed.payload_digest == DIGEST


def test_require_allowed_refuses_what_is_not_one() -> None:
    class Lookalike:
        policy_digest = "sha256:00"
        payload_digest = DIGEST
        _brand = None

    unfinished = object.__new__(Allowed)
    for value in (None, True, "allowed", Lookalike(), unfinished, Allowed):
        with pytest.raises(TypeError, match="decide"):
            require_allowed(value)


def test_require_allowed_refuses_a_filled_shell() -> None:
    shell = object.__new__(Allowed)
    object.__setattr__(shell, "policy_digest", "sha256:00")
    object.__setattr__(shell, "payload_digest", DIGEST)
    object.__setattr__(shell, "_brand", object())
    with pytest.raises(TypeError, match="decide"):
        require_allowed(shell)


def test_require_allowed_refuses_a_lookalike_with_the_true_brand() -> None:
    class Lookalike:
        policy_digest = "sha256:00"
        payload_digest = DIGEST
        _brand = getattr(make_allowed(), "_brand")  # noqa: B009 - as a thief would

    with pytest.raises(TypeError, match="decide"):
        require_allowed(Lookalike())
