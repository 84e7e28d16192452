# pyright: reportPrivateUsage=false
"""The self-test goes red when our HPKE, or the other one, computes something else."""

from collections.abc import Callable, Iterator
from typing import Final

import pyhpke
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyhpke import recipient_context as pyhpke_recipient

from curtilage.wire.errors import OpenError, SelfTestError
from curtilage.wire.hpke import dhkem, hkdf, key_schedule, suite, xwing
from curtilage.wire.hpke.aead import AEAD, AEAD_CHACHA20_POLY1305, AEADS
from curtilage.wire.hpke.key_schedule import RecipientContext, SenderContext
from curtilage.wire.hpke.self_test import self_test
from curtilage.wire.hpke.suite import KEM_X25519, KEM_XWING, SUITES, Suite

Break = Callable[[pytest.MonkeyPatch], None]

X25519: Final = [one for one in SUITES if one.kem_id == KEM_X25519]
XWING: Final = [one for one in SUITES if one.kem_id == KEM_XWING]
CHACHA: Final = [one for one in SUITES if one.aead_id == AEAD_CHACHA20_POLY1305]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Let nothing that was derived, whole or broken, be used in another test."""
    caches = (suite._key_schedule, key_schedule._expand_inputs)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def kem_label(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dhkem, "_EAE_PRK", b"HPKE-v1KEM\x00\x20eae_prx")


def kem_context(patch: pytest.MonkeyPatch) -> None:
    real = dhkem._extract_and_expand

    def without_context(dh: bytes, _: bytes) -> bytes:
        return real(dh, b"")

    patch.setattr(dhkem, "_extract_and_expand", without_context)


def combiner_label(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(xwing, "_LABEL", b"\\.//^/")


def version_label(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(hkdf, "_VERSION", b"HPKE-v2")


def mode(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(key_schedule, "_MODE_BASE", b"\x01")


def nonces(patch: pytest.MonkeyPatch) -> None:
    def always_the_first(_: SenderContext) -> int:
        return 0

    patch.setattr(SenderContext, "_next_sequence", always_the_first)


def opening(patch: pytest.MonkeyPatch) -> None:
    def nothing(_: RecipientContext, __: bytes, ___: bytes) -> bytes:
        return b""

    patch.setattr(RecipientContext, "open", nothing)


def exporter(patch: pytest.MonkeyPatch) -> None:
    real = hkdf.labeled_info

    def without_label(
        suite_id: bytes, label: bytes, length: int, info: bytes = b""
    ) -> bytes:
        return real(suite_id, b"" if label == b"sec" else label, length, info)

    patch.setattr(key_schedule, "labeled_info", without_label)


def cipher(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(AEADS, AEAD_CHACHA20_POLY1305, AEAD(cipher=AESGCM, nk=32))


BROKEN: Final[list[tuple[Break, list[Suite]]]] = [
    (kem_label, X25519),
    (kem_context, X25519),
    (combiner_label, XWING),
    (version_label, [*XWING, *X25519]),
    (mode, [*XWING, *X25519]),
    (nonces, X25519),
    (opening, [*XWING, *X25519]),
    (exporter, X25519),
    (cipher, CHACHA),
]


def test_every_suite_agrees() -> None:
    self_test()


@pytest.mark.parametrize(
    ("broken", "suites"), BROKEN, ids=lambda one: getattr(one, "__name__", "")
)
def test_a_broken_path_is_noticed_in_every_suite_that_runs_it(
    broken: Break, suites: list[Suite], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    for one in suites:
        with pytest.raises(SelfTestError) as caught:
            self_test([one])
        assert f"KEM {one.kem_id:#06x}, AEAD {one.aead_id:#06x}" in str(caught.value)
        assert caught.value.__cause__ is None


def test_one_suite_that_differs_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    cipher(monkeypatch)
    with pytest.raises(SelfTestError):
        self_test()


def test_without_the_other_implementation_nothing_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(pyhpke, "CipherSuite")
    with pytest.raises(SelfTestError, match="ImportError"):
        self_test()


def test_whatever_the_other_implementation_raises_is_a_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def changed(*_: object, **__: object) -> None:
        raise TypeError

    monkeypatch.setattr(pyhpke.CipherSuite, "create_sender_context", changed)
    with pytest.raises(SelfTestError, match="TypeError"):
        self_test()


@pytest.mark.parametrize("role", ["open", "export"])
def test_another_result_is_a_difference(
    role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without an error of its own: what comes out is compared, too.
    def other(*_: object) -> bytes:
        return b"something else"

    monkeypatch.setattr(pyhpke_recipient.RecipientContext, role, other)
    with pytest.raises(SelfTestError, match="another result"):
        self_test(X25519)


def test_keys_and_message_come_from_the_argument() -> None:
    drawn: list[int] = []

    def random(count: int) -> bytes:
        drawn.append(count)
        return bytes([len(drawn)]) * count

    self_test(SUITES, random=random)
    assert drawn == [32] * (2 * len(XWING) + 4 * len(X25519))


def test_no_suite_in_use_needs_no_randomness() -> None:
    def refuse(_: int) -> bytes:
        raise OpenError

    self_test([], random=refuse)
