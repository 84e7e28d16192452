import json
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from curtilage.policy.decision.decide import decide
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.load import load_profile
from curtilage.policy.signing import (
    KEY_LIMIT_BYTES,
    MAX_TIME,
    SIGNATURE_LIMIT_BYTES,
    UNSIGNED,
    Currency,
    SigningError,
    generate_key,
    key_id,
    parse_private_key,
    parse_public_key,
    parse_signature,
    private_pem,
    public_bytes,
    public_pem,
    sign_policy,
    signature_problem,
    stale_finding,
)
from support.inspections import inspection_of

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = public_bytes(KEY)
DIGEST = "sha256:" + "ab" * 32
START = 1_700_000_000
END = START + 1000
SIGNATURE = sign_policy(DIGEST, KEY, not_before=START, not_after=END).encode()


def at(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)


SOON = at(START + 1)


def problem(
    *,
    digest: str = DIGEST,
    signature: bytes | None = SIGNATURE,
    public_key: bytes = PUBLIC,
    now: datetime = SOON,
) -> str | None:
    return signature_problem(digest, signature, public_key, now)


def changed(**fields: object) -> bytes:
    read = {**json.loads(SIGNATURE), **fields}
    return json.dumps(read, sort_keys=True, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize("second", [START, START + 500, END, END + 0.999])
def test_a_signed_policy_is_current_within_its_span(second: float) -> None:
    assert problem(now=at(second)) is None


@pytest.mark.parametrize(
    ("second", "words"),
    [(START - 0.001, "not valid yet"), (0, "not valid yet"), (END + 1, "has expired")],
)
def test_a_signed_policy_is_not_current_outside_of_it(
    second: float, words: str
) -> None:
    assert words in str(problem(now=at(second)))


def test_a_policy_without_signature_is_not_current() -> None:
    assert problem(signature=None) == UNSIGNED


def test_another_policy_is_not_current() -> None:
    assert "another policy" in str(problem(digest="sha256:" + "cd" * 32))


def test_another_signer_does_not_count() -> None:
    other = generate_key(random=lambda size: bytes([7]) * size)
    signed = sign_policy(DIGEST, other, not_before=START, not_after=END).encode()
    assert "another key" in str(problem(signature=signed))
    borrowed = json.loads(signed) | {"key_id": key_id(PUBLIC)}
    assert "forged" in str(problem(signature=changed(**borrowed)))


@pytest.mark.parametrize("name", ["not_before", "not_after"])
def test_a_longer_span_than_was_signed_is_forged(name: str) -> None:
    moved = changed(**{name: json.loads(SIGNATURE)[name] + 1})
    assert "forged" in str(problem(signature=moved, now=at(START + 5)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        SIGNATURE[:-1],
        SIGNATURE + b"\n",
        b" " + SIGNATURE,
        b" " * SIGNATURE_LIMIT_BYTES + SIGNATURE,
        changed(format="curtilage/policy-signature/v2"),
        changed(policy_digest="sha256:" + "AB" * 32),
        changed(policy_digest=""),
        changed(key_id="0" * 15),
        changed(key_id="g" * 16),
        changed(signature="AAAA"),
        changed(not_after=MAX_TIME + 1),
        changed(not_before=True),
        changed(more=1),
    ],
)
def test_parse_signature_refuses_what_is_none(data: bytes) -> None:
    with pytest.raises(SigningError, match="not a policy signature"):
        parse_signature(data)
    assert "not a policy signature" in str(problem(signature=data))


@given(st.integers(0, len(SIGNATURE) * 8 - 1))
def test_every_flipped_bit_is_a_problem(bit: int) -> None:
    flipped = bytearray(SIGNATURE)
    flipped[bit // 8] ^= 1 << bit % 8
    assert problem(signature=bytes(flipped)) is not None


@given(st.binary(max_size=400))
def test_any_bytes_give_words_or_nothing(data: bytes) -> None:
    assert isinstance(problem(signature=data), str)


def test_a_signature_reads_back() -> None:
    signed = sign_policy(DIGEST, KEY, not_before=START, not_after=END)
    assert parse_signature(signed.encode()) == signed
    assert "signature" not in repr(signed).removeprefix("PolicySignature")


@pytest.mark.parametrize(("first", "last"), [(END, START), (-1, 5), (0, MAX_TIME + 1)])
def test_sign_refuses_an_impossible_span(first: int, last: int) -> None:
    with pytest.raises(ValueError, match="never be valid"):
        sign_policy(DIGEST, KEY, not_before=first, not_after=last)


def test_sign_refuses_what_is_no_digest() -> None:
    with pytest.raises(ValueError, match="not the digest"):
        sign_policy("sha256:", KEY, not_before=START, not_after=END)


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        problem(now=datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


def test_currency_ends_while_it_is_held() -> None:
    held = Currency(policy_digest=DIGEST, signature=SIGNATURE, public_key=PUBLIC)
    assert held.problem(at(END)) is None
    assert "expired" in str(held.problem(at(END) + timedelta(seconds=2)))


def of_days(days: float) -> tuple[Currency, datetime]:
    """Return what is signed for so many days more, and the time."""
    end = int(at(START).timestamp() + days * 86_400)
    signed = sign_policy(DIGEST, KEY, not_before=START - 1, not_after=end).encode()
    held = Currency(policy_digest=DIGEST, signature=signed, public_key=PUBLIC)
    return held, at(START)


@pytest.mark.parametrize(
    ("days", "when"),
    [(13.9, "in 13 days"), (2, "in 2 days"), (1.5, "in 1 day,"), (0.1, "within a day")],
)
def test_a_signature_that_ends_soon_is_warned_of(days: float, when: str) -> None:
    held, now = of_days(days)
    assert held.problem(now) is None
    warning = str(held.warning(now))
    assert when in warning
    end = now + timedelta(days=days)
    assert end.strftime("%Y-%m-%d %H:%M UTC") in warning


@pytest.mark.parametrize("days", [14, 90])
def test_a_signature_that_ends_later_is_not(days: float) -> None:
    held, now = of_days(days)
    assert held.warning(now) is None


@pytest.mark.parametrize("signature", [None, b"none", changed(not_after=END + 1)])
def test_a_warning_is_given_for_a_policy_that_is_not_current(
    signature: bytes | None,
) -> None:
    held = Currency(policy_digest=DIGEST, signature=signature, public_key=PUBLIC)
    why = held.problem(SOON)
    assert why is not None
    assert str(held.warning(SOON)).startswith(f"{why}; ")


def test_the_span_is_what_the_file_says() -> None:
    held = Currency(policy_digest=DIGEST, signature=SIGNATURE, public_key=PUBLIC)
    assert held.span() == (at(START), at(END))
    for signature in (None, b"none"):
        none = Currency(policy_digest=DIGEST, signature=signature, public_key=PUBLIC)
        assert none.span() is None


def test_a_stale_policy_keeps_every_query_local() -> None:
    policy = load_profile("default")
    inspection = inspection_of(
        findings=(stale_finding(),), payload_digest=bytes(32), messages=1
    )
    decision = decide(policy.rulebook, inspection)
    assert decision.route is Route.LOCAL
    assert decision.uncertain == ("uncertain.stale_policy",)


def test_keys_read_back_from_pem() -> None:
    assert public_bytes(parse_private_key(private_pem(KEY))) == PUBLIC
    assert parse_public_key(public_pem(KEY)) == PUBLIC


def test_a_generated_key_is_as_random_as_its_source() -> None:
    assert public_bytes(generate_key()) != public_bytes(generate_key())


OTHER_KIND = X25519PrivateKey.generate()
LOCKED = KEY.private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"canary")
)


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"canary",
        LOCKED,
        public_pem(KEY),
        private_pem(KEY) + b"\n" * KEY_LIMIT_BYTES,
        OTHER_KIND.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    ],
)
def test_parse_private_key_refuses_other_files(pem: bytes) -> None:
    with pytest.raises(SigningError) as refused:
        parse_private_key(pem)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        private_pem(KEY),
        public_pem(KEY) + b"\n" * KEY_LIMIT_BYTES,
        OTHER_KIND.public_key().public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        ),
    ],
)
def test_parse_public_key_refuses_other_files(pem: bytes) -> None:
    with pytest.raises(SigningError):
        parse_public_key(pem)
