import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from hypothesis import given
from hypothesis import strategies as st

from curtilage.wire.errors import MalformedError, OpenError
from curtilage.wire.hpke.dhkem import (
    DHKEMPrivateKey,
    DHKEMPublicKey,
    is_low_order,
    load_point,
)

P = 2**255 - 19
OTHER_ORDER_8 = int.from_bytes(
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    "little",
)
ORDER_8 = int.from_bytes(
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    "little",
)
LOW = [0, 1, P - 1, P, P + 1, ORDER_8, OTHER_ORDER_8]
ENCODED = [(u + top).to_bytes(32, "little") for u in LOW for top in (0, 2**255)]


def u_of_double(u: int) -> tuple[int, int]:
    """Double a point of Curve25519 by its u-coordinate, as (numerator, denominator)."""
    numerator = (u * u - 1) ** 2 % P
    return numerator, 4 * u * (u * u + 486662 * u + 1) % P


def test_the_list_holds_the_points_of_order_two_four_and_eight() -> None:
    # u = 0 has order 2; a point whose double it is has order 4, and so on. The
    # curve's cofactor is 8 and its twist's is 4, so it ends there.
    for u in (1, P - 1):
        assert u_of_double(u)[0] == 0
    for u in (ORDER_8, OTHER_ORDER_8):
        numerator, denominator = u_of_double(u)
        assert numerator * pow(denominator, -1, P) % P in (1, P - 1)


@pytest.mark.parametrize("point", ENCODED, ids=lambda point: point.hex()[:8])
def test_low_order_is_what_the_library_calls_zero(point: bytes) -> None:
    assert is_low_order(point)
    with pytest.raises(ValueError, match="shared key"):
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(point))
    with pytest.raises(MalformedError):
        load_point(point)


@given(st.binary(min_size=32, max_size=32))
def test_other_points_are_exchanged_as_the_library_does(point: bytes) -> None:
    key = DHKEMPrivateKey(bytes(range(32)))
    if not is_low_order(point):
        peer = X25519PublicKey.from_public_bytes(point)
        assert key.exchange(point) == key.key.exchange(peer)


@pytest.mark.parametrize("near", [2, P - 2, P + 2, 2**255 - 1, ORDER_8 + 1])
def test_neighbours_of_low_order_points_are_usable(near: int) -> None:
    # Not canonical above p, which RFC 7748 takes all the same.
    point = near.to_bytes(32, "little")
    assert not is_low_order(point)
    public_key = DHKEMPublicKey(point)
    secret, enc = public_key.encapsulate(None)
    assert (len(secret), len(enc)) == (32, 32)


@pytest.mark.parametrize("point", ENCODED, ids=lambda point: point.hex()[:8])
def test_a_low_order_point_gives_a_secret_that_only_we_can_know(point: bytes) -> None:
    first, second = (DHKEMPrivateKey(bytes([one]) * 32) for one in (1, 2))
    # Nor is it our public key, which an exchange with the base point would give.
    assert first.exchange(point) not in {bytes(32), first.public_bytes, point}
    assert first.exchange(point) != second.exchange(point)
    assert first.decapsulate(point) != second.decapsulate(point)
    # Each spelling of zero is another message all the same.
    assert first.decapsulate(point) != first.decapsulate(b"\x09" + bytes(31))


@pytest.mark.parametrize("length", [0, 31, 33, 1120])
def test_other_lengths_are_refused(length: int) -> None:
    with pytest.raises(MalformedError):
        DHKEMPublicKey(b"\x09" * length)
    with pytest.raises(OpenError):
        DHKEMPrivateKey(bytes(32)).decapsulate(b"\x09" * length)
