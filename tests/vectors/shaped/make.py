"""Make the vectors of a padded request and of a framed answer, not by our code.

Writes ``vectors.json`` next to itself. A second implementation of
``docs/protocol.md`` for X25519 and AES-128-GCM: HPKE's formulas of RFC 9180 on
bare primitives. Every key and nonce is fixed, and is for this file alone.
"""

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_ID, KEM, KDF, AEAD = 1, 0x0020, 0x0001, 0x0001
NK, NN = 16, 12
PRIVATE_KEY, EPHEMERAL = b"\x11" * 32, b"\x22" * 32
RESPONSE_NONCE = bytes(range(16))
CLASS = 4096
FRAME, FIRST_BUCKET, BUCKETS = 128, 6, 3

KEM_SUITE = b"KEM" + KEM.to_bytes(2, "big")
HPKE_SUITE = b"HPKE" + b"".join(n.to_bytes(2, "big") for n in (KEM, KDF, AEAD))


def extract(salt: bytes, ikm: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), ikm, "sha256")


def expand(prk: bytes, info: bytes, length: int) -> bytes:
    blocks, last = b"", b""
    for number in range(1, -(-length // 32) + 1):
        last = hmac.digest(prk, last + info + bytes([number]), "sha256")
        blocks += last
    return blocks[:length]


def labeled_extract(suite: bytes, salt: bytes, label: bytes, ikm: bytes) -> bytes:
    return extract(salt, b"HPKE-v1" + suite + label + ikm)


def labeled_expand(
    suite: bytes, prk: bytes, label: bytes, info: bytes, length: int
) -> bytes:
    head = length.to_bytes(2, "big") + b"HPKE-v1" + suite
    return expand(prk, head + label + info, length)


def public(private_key: bytes) -> bytes:
    key = X25519PrivateKey.from_private_bytes(private_key)
    return key.public_key().public_bytes_raw()


def key_schedule(info: bytes) -> tuple[bytes, bytes, bytes]:
    """Return key, base nonce and exporter secret of SetupBaseS."""
    recipient, enc = public(PRIVATE_KEY), public(EPHEMERAL)
    ephemeral = X25519PrivateKey.from_private_bytes(EPHEMERAL)
    dh = ephemeral.exchange(X25519PublicKey.from_public_bytes(recipient))
    eae = labeled_extract(KEM_SUITE, b"", b"eae_prk", dh)
    shared = labeled_expand(KEM_SUITE, eae, b"shared_secret", enc + recipient, 32)
    psk_id = labeled_extract(HPKE_SUITE, b"", b"psk_id_hash", b"")
    info_hash = labeled_extract(HPKE_SUITE, b"", b"info_hash", info)
    context = b"\0" + psk_id + info_hash
    secret = labeled_extract(HPKE_SUITE, shared, b"secret", b"")
    return (
        labeled_expand(HPKE_SUITE, secret, b"key", context, NK),
        labeled_expand(HPKE_SUITE, secret, b"base_nonce", context, NN),
        labeled_expand(HPKE_SUITE, secret, b"exp", context, 32),
    )


def seal(key: bytes, base: bytes, number: int, plaintext: bytes, aad: bytes) -> bytes:
    nonce = int.from_bytes(base, "big") ^ number
    return AESGCM(key).encrypt(nonce.to_bytes(NN, "big"), plaintext, aad)


def varint(value: int) -> bytes:
    width = 1 if value < 64 else 2
    return (value | (width - 1) << (8 * width - 2)).to_bytes(width, "big")


def vec(data: bytes) -> bytes:
    return varint(len(data)) + data


def request() -> bytes:
    """Return the inner request, without padding."""
    fields = (
        (b"content-type", b"application/json"),
        (b"date", b"Sat, 21 Nov 2026 12:00:00 GMT"),
    )
    target = (b"POST", b"https", b"curtilage.invalid", b"/v1/chat/completions")
    content = b'{"messages":[{"role":"user","content":"hi"}],"stream":true}'
    section = b"".join(vec(name) + vec(value) for name, value in fields)
    return b"\0" + b"".join(map(vec, target)) + vec(section) + vec(content) + varint(0)


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


CONTENT = (
    event(b'{"choices":[{"index":0,"delta":{"content":"one "}}]}'),
    event(b'{"choices":[{"index":0,"delta":{"content":"two"}}]}'),
    event(b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}')
    + event(b"[DONE]"),
)


TRAILER = (b"x-example", b"signed")


def comment(count: int) -> bytes:
    """Return filler of an event stream."""
    return b"\n" * count if count < 3 else b":" + b" " * (count - 3) + b"\n\n"


def frames() -> list[bytes]:
    """Return the frames of an answer whose second event comes a tick late."""
    field = vec(b"content-type") + vec(b"text/event-stream")
    head = b"\3" + varint(200) + field + b"\0"
    first, second, *rest = CONTENT
    count = FRAME - len(head) - 2
    made = [head + varint(count) + first + comment(count - len(first))]
    content = second + b"".join(rest)
    while content:
        part, content = content[: FRAME - 2], content[FRAME - 2 :]
        part += comment(FRAME - 2 - len(part))
        made.append(varint(FRAME - 2) + part)
    # The end follows the content; padding follows the end.
    made.append(b"\0" + vec(TRAILER[0]) + vec(TRAILER[1]) + b"\0")
    total = FIRST_BUCKET
    while total < len(made):
        total *= 2
    made += [b""] * (total - len(made))
    return [frame.ljust(FRAME, b"\0") for frame in made]


def made() -> dict[str, Any]:
    numbers = b"".join(n.to_bytes(2, "big") for n in (KEM, KDF, AEAD))
    header = bytes([KEY_ID]) + numbers
    enc = public(EPHEMERAL)
    label = b"message/bhttp chunked"
    key, base, exporter = key_schedule(label + b" request\0" + header)
    room = CLASS - len(header) - len(enc) - 1 - 16
    padded = request().ljust(room, b"\0")
    message = header + enc + b"\0" + seal(key, base, 0, padded, b"final")
    secret = labeled_expand(HPKE_SUITE, exporter, b"sec", label + b" response", 16)
    prk = extract(enc + RESPONSE_NONCE, secret)
    key, base = expand(prk, b"key", NK), expand(prk, b"nonce", NN)
    *parts, last = frames()
    answer = RESPONSE_NONCE
    for number, part in enumerate(parts):
        answer += vec(seal(key, base, number, part, b""))
    answer += b"\0" + seal(key, base, len(parts), last, b"final")
    algorithms = b"\0\4" + numbers[2:]
    return {
        "key_config": (header[:3] + public(PRIVATE_KEY) + algorithms).hex(),
        "private_key": PRIVATE_KEY.hex(),
        "ephemeral_private_key": EPHEMERAL.hex(),
        "request": {
            "bhttp": request().hex(),
            "class": CLASS,
            "padding": room - len(request()),
            "message": message.hex(),
            "sha256": hashlib.sha256(message).hexdigest(),
        },
        "answer": {
            "frame_bytes": FRAME,
            "first_bucket": FIRST_BUCKET,
            "buckets": BUCKETS,
            "content": [content.decode() for content in CONTENT],
            "trailer": [part.decode() for part in TRAILER],
            "nonce": RESPONSE_NONCE.hex(),
            "frames": [frame.hex() for frame in (*parts, last)],
            "message": answer.hex(),
        },
    }


if __name__ == "__main__":
    path = Path(__file__).resolve().parent / "vectors.json"
    path.write_text(json.dumps(made(), indent=1) + "\n", encoding="utf-8")
