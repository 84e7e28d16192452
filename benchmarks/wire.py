"""The processor time of OHTTP, compared with a one-shot HPKE of the library.

A client seals a request and opens its response; a gateway opens a request and seals its
response. ``cryptography``'s own one-shot HPKE encrypts or decrypts once and exports
nothing, so it cannot serve OHTTP; it is the lower bound. Everything runs in this
thread, in turns, so that other work of the machine affects all of them alike.
"""

import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from benchmarks.report import Table
from curtilage.wire.encapsulation import GatewayKey
from curtilage.wire.hpke.suite import (
    AEAD_AES_128_GCM,
    KDF_HKDF_SHA256,
    KEM_X25519,
    KEM_XWING,
    Suite,
    generate_private_key,
)
from curtilage.wire.keyconfig import KeyConfig, SymmetricAlgorithms
from curtilage.wire.ohttp import open_request, seal_request

SIZES: Final = (1024, 32 * 1024)
BATCH: Final = 25  # operations between two readings of the clock
INFO: Final = b"message/bhttp request\x00" + bytes(7)

# What the issue allows: ours to the one-shot.
BOUNDS: Final = {"client": 1.25, "gateway": 1.4}

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """Microseconds of one operation on either side."""

    client: float
    gateway: float


_Way = Callable[[bytes], _Cost]


def measure_wire(rounds: int) -> Table:
    """Measure both KEMs at both sizes."""
    rows = [
        row
        for name, kem_id in (("X25519", KEM_X25519), ("X-Wing", KEM_XWING))
        for size in SIZES
        for row in _rows(f"{name}, {size // 1024} KiB", kem_id, size, rounds)
    ]
    return Table(
        title=f"OHTTP: µs of processor time, medians of {rounds} rounds in turns",
        columns=(
            "exchange",
            "one-shot HPKE",
            "ours",
            "times one-shot",
            "aim",
        ),
        rows=tuple(rows),
        note="client: seals a request, opens its response; gateway: the reverse; "
        "one-shot: encrypts or decrypts once, exports nothing; AES-128-GCM",
    )


def _rows(
    name: str, kem_id: int, size: int, rounds: int
) -> list[tuple[str | float, ...]]:
    ways = {
        "one-shot": _one_shot(kem_id),
        "ours": _ohttp(kem_id),
    }
    costs = _in_turns(ways, secrets.token_bytes(size), rounds)
    rows: list[tuple[str | float, ...]] = []
    for side, aim in BOUNDS.items():
        floor, ours = (
            statistics.median(getattr(cost, side) for cost in costs[way])
            for way in ("one-shot", "ours")
        )
        rows.append((f"{name}, {side}", floor, ours, ours / floor, aim))
    return rows


def _in_turns(
    ways: dict[str, _Way], bhttp: bytes, rounds: int
) -> dict[str, list[_Cost]]:
    costs: dict[str, list[_Cost]] = {name: [] for name in ways}
    for number in range(-max(1, rounds // 10), rounds):
        for name, way in ways.items():
            cost = way(bhttp)
            if number >= 0:  # the first ones fill caches
                costs[name].append(cost)
    return costs


def _ohttp(kem_id: int) -> _Way:
    private_key = generate_private_key(kem_id)
    pair = SymmetricAlgorithms(kdf_id=KDF_HKDF_SHA256, aead_id=AEAD_AES_128_GCM)
    config = KeyConfig(
        key_id=1,
        kem_id=kem_id,
        public_key=private_key.public_key,
        algorithms=(pair,),
    )
    keys = {1: GatewayKey(config=config, private_key=private_key)}
    suite = Suite(kem_id=kem_id, kdf_id=KDF_HKDF_SHA256, aead_id=AEAD_AES_128_GCM)

    def exchange(bhttp: bytes) -> _Cost:
        sealed, sealing = _timed(
            lambda _: seal_request(config, bhttp, suite=suite), range(BATCH)
        )
        answers, gateway = _timed(
            lambda one: open_request(keys, one.message).sealer.seal(bhttp), sealed
        )
        pairs = list(zip(sealed, answers, strict=True))
        _, opening = _timed(lambda both: both[0].opener.open(both[1]), pairs)
        return _Cost(client=sealing + opening, gateway=gateway)

    return exchange


def _one_shot(kem_id: int) -> _Way:
    kem = hpke.KEM.X25519 if kem_id == KEM_X25519 else hpke.KEM.MLKEM768_X25519
    suite = hpke.Suite(kem, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_128_GCM)
    classical = X25519PrivateKey.generate()
    key: X25519PrivateKey | hpke.MLKEM768X25519PrivateKey = classical
    if kem_id == KEM_XWING:
        ml_kem = MLKEM768PrivateKey.generate()
        key = hpke.MLKEM768X25519PrivateKey(ml_kem, classical)
    public_key = key.public_key()

    def both(bhttp: bytes) -> _Cost:
        sealed, client = _timed(
            lambda _: suite.encrypt(bhttp, public_key, INFO), range(BATCH)
        )
        _, gateway = _timed(lambda one: suite.decrypt(one, key, INFO), sealed)
        return _Cost(client=client, gateway=gateway)

    return both


def _timed(
    operation: Callable[[S], T], arguments: Sequence[S]
) -> tuple[list[T], float]:
    started = time.thread_time_ns()
    results = [operation(one) for one in arguments]
    return results, (time.thread_time_ns() - started) / len(arguments) / 1000
