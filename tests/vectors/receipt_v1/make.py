"""Make the vectors of receipt version 1 from the formula, not from our code.

Writes ``vectors.json`` next to itself. Uses only the standard library, so that it
is a second implementation of the text in ``curtilage.attest.receipt``; the
signature is RFC 8032, section 5.1, in its slow and plain form.
"""

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
BASE_Y = 4 * pow(5, P - 2, P) % P

Point = tuple[int, int]


def x_of(y: int) -> int:
    """Return the even x of a point on the curve."""
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P)
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    return P - x if x & 1 else x


def add(one: Point, other: Point) -> Point:
    """Add two points (RFC 8032, section 5.1.4, without projective form)."""
    (x1, y1), (x2, y2) = one, other
    cross = D * x1 * x2 * y1 * y2
    x = (x1 * y2 + x2 * y1) * pow(1 + cross, P - 2, P) % P
    y = (y1 * y2 + x1 * x2) * pow(1 - cross, P - 2, P) % P
    return x, y


def times(scalar: int) -> Point:
    """Multiply the base point."""
    result, doubled = (0, 1), (x_of(BASE_Y), BASE_Y)
    while scalar:
        if scalar & 1:
            result = add(result, doubled)
        doubled = add(doubled, doubled)
        scalar >>= 1
    return result


def packed(point: Point) -> bytes:
    """Encode a point."""
    x, y = point
    return (y | (x & 1) << 255).to_bytes(32, "little")


def number(data: bytes) -> int:
    """Read the SHA-512 of ``data`` as a number."""
    return int.from_bytes(hashlib.sha512(data).digest(), "little")


def public_of(seed: bytes) -> tuple[int, bytes, bytes]:
    """Return the scalar, the prefix and the public key of a seed."""
    digest = hashlib.sha512(seed).digest()
    scalar = int.from_bytes(digest[:32], "little")
    scalar = scalar & ((1 << 254) - 8) | 1 << 254
    return scalar, digest[32:], packed(times(scalar))


def sign(seed: bytes, message: bytes) -> bytes:
    """Sign (RFC 8032, section 5.1.6)."""
    scalar, prefix, public = public_of(seed)
    r = number(prefix + message) % ORDER
    commitment = packed(times(r))
    challenge = number(commitment + public + message) % ORDER
    return commitment + ((r + challenge * scalar) % ORDER).to_bytes(32, "little")


def mac(secret: bytes, label: bytes, content: bytes) -> bytes:
    """Return one of the two values that only the client can check."""
    return hmac.new(secret, label + content, hashlib.sha256).digest()


SEED = bytes(range(32))
SECRET = bytes(range(64, 96))
CASES: list[dict[str, Any]] = [
    {
        "name": "an answer",
        "status": 200,
        "served_at": 1790000123,
        "key_configs": bytes.fromhex("0029010020" + "09" * 32 + "000400010001"),
        "manifest": b'{"name":"example"}',
        "model": hashlib.sha256(b"model file").digest(),
        "request": b'{"messages":[]}',
        "answer": b"data: [DONE]\n\n:        \n\n",
    },
    {
        "name": "a refusal, no model ran",
        "status": 503,
        "served_at": 1790043199,
        "key_configs": b"other list",
        "manifest": b"{}",
        "model": bytes(32),
        "request": b"",
        "answer": b"   ",
    },
]


def vector(case: dict[str, Any]) -> dict[str, Any]:
    """Compute one vector."""
    signed = (
        b"\x01"
        + case["status"].to_bytes(2, "big")
        + case["served_at"].to_bytes(8, "big")
        + hashlib.sha256(case["key_configs"]).digest()
        + hashlib.sha256(case["manifest"]).digest()
        + case["model"]
        + mac(SECRET, b"request\0", case["request"])
        + mac(SECRET, b"answer\0", case["answer"])
    )
    receipt = signed + sign(SEED, b"curtilage/receipt/v1\0" + signed)
    inputs = {
        key: value.hex() if isinstance(value, bytes) else value
        for key, value in case.items()
    }
    return {
        **inputs,
        "seed": SEED.hex(),
        "public_key": public_of(SEED)[2].hex(),
        "secret": SECRET.hex(),
        "receipt": receipt.hex(),
    }


def make() -> list[dict[str, Any]]:
    """Compute all vectors."""
    return [vector(case) for case in CASES]


if __name__ == "__main__":
    path = Path(__file__).with_name("vectors.json")
    path.write_text(json.dumps(make(), indent=1) + "\n", encoding="utf-8")
