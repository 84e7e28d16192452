"""The custody list: its form, its signature, and what it shows of a machine."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.claims import Claim
from curtilage.attest.custody import (
    MAX_MACHINES,
    MAX_UNTIL,
    custody_body,
    parse_custody,
)
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import Tee
from curtilage.attest.evidence_json import encode_bundle
from curtilage.attest.expectations import (
    CustodyExpectations,
    PlatformExpectations,
    SnpExpectations,
)
from curtilage.attest.log.signers import LogSigner
from curtilage.attest.verify import VerifiedKey, verify
from curtilage_dev.deployment import (
    MEASUREMENT,
    AnyDeployment,
    Deployment,
    make_any_deployment,
)
from curtilage_dev.emulated.machines import SnpMachine, make_machine
from curtilage_dev.emulated.snp_pki import EmulatedPlatform

SIGNER = LogSigner(name="custodian.example", key=Ed25519PrivateKey.generate())
CHIP, PPID, INSTANCE = "0a" * 64, "0b" * 16, "i-0123456789abcdef0"
MACHINES = [CHIP, PPID, INSTANCE, f"{INSTANCE}-enc019a"]
UNTIL = 1900000000


def test_a_list_survives() -> None:
    text = SIGNER.note(custody_body(reversed(MACHINES), UNTIL))
    assert parse_custody(text, SIGNER.public) == CustodyExpectations(
        machines=frozenset(MACHINES), until=UNTIL
    )
    empty = SIGNER.note(custody_body([], UNTIL))
    assert parse_custody(empty, SIGNER.public).machines == frozenset()


BODY = custody_body(MACHINES, UNTIL)
BAD: dict[str, str] = {
    "another header": BODY.replace("custody/v1", "custody/v2"),
    "no end": BODY.replace(f"until {UNTIL}\n", ""),
    "an end that is no number": BODY.replace(str(UNTIL), "1e9"),
    "an end beyond the calendar": BODY.replace(str(UNTIL), str(MAX_UNTIL + 1)),
    "header alone": "curtilage/custody/v1\n",
    "another order": BODY.replace(f"{CHIP}\n{PPID}\n", f"{PPID}\n{CHIP}\n"),
    "a machine twice": BODY.replace(CHIP, f"{CHIP}\n{CHIP}"),
    "capitals": BODY.replace(CHIP, CHIP.upper()),
    "a name that is none": BODY + "machine\n",
    "an empty line": BODY.replace(f"{PPID}\n", f"{PPID}\n\n"),
    "a hidden id": BODY.replace(CHIP, "00" * 64),
}


@pytest.mark.parametrize("name", BAD)
def test_another_form_is_refused(name: str) -> None:
    assert BAD[name] != BODY
    with pytest.raises(RefusedError) as caught:
        parse_custody(SIGNER.note(BAD[name]), SIGNER.public)
    assert caught.value.code is RefusalCode.MALFORMED


def test_a_long_list_is_refused() -> None:
    many = [f"{number:032x}" for number in range(1, MAX_MACHINES + 2)]
    with pytest.raises(RefusedError) as caught:
        parse_custody(SIGNER.note(custody_body(many, UNTIL)), SIGNER.public)
    assert caught.value.code is RefusalCode.TOO_LARGE


OTHER = LogSigner(name=SIGNER.name, key=Ed25519PrivateKey.generate())
NOTE = SIGNER.note(BODY)
FORGED: dict[str, tuple[Callable[[], str], RefusalCode]] = {
    "another key": (lambda: OTHER.note(BODY), RefusalCode.UNSIGNED),
    "another name": (
        lambda: replace(SIGNER, name="somebody.example").note(BODY),
        RefusalCode.UNSIGNED,
    ),
    "a machine more": (
        lambda: NOTE.replace(PPID, f"{PPID}\n{'0c' * 16}"),
        RefusalCode.BAD_SIGNATURE,
    ),
    "a later end": (
        lambda: NOTE.replace(str(UNTIL), str(UNTIL + 1)),
        RefusalCode.BAD_SIGNATURE,
    ),
    "no signature": (lambda: BODY, RefusalCode.MALFORMED),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_list_that_the_custodian_did_not_sign_is_refused(name: str) -> None:
    forged, code = FORGED[name]
    with pytest.raises(RefusedError) as caught:
        parse_custody(forged(), SIGNER.public)
    assert caught.value.code is code


@given(text=st.text(max_size=200))
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(RefusedError):
        parse_custody(text, SIGNER.public)


# --- what it shows ----------------------------------------------------------------


@pytest.fixture(scope="module", params=[Tee.EMULATED_SEV_SNP, Tee.EMULATED_NITRO])
def made(
    request: pytest.FixtureRequest, platform: EmulatedPlatform, now: datetime
) -> AnyDeployment:
    if request.param is Tee.EMULATED_SEV_SNP:
        snp = SnpMachine(platform=platform, image=MEASUREMENT)
        return make_any_deployment(snp, now=now)
    machine = make_machine(request.param, MEASUREMENT, now=now)
    return make_any_deployment(machine, now=now)


def shown(
    made: AnyDeployment, now: datetime, custody: CustodyExpectations | None
) -> VerifiedKey:
    rules = replace(made.expectations(), custody=custody)
    return verify(encode_bundle(made.bundle()), rules, now=now)


def listing(now: datetime, *machines: str, **by: int) -> CustodyExpectations:
    ends = now + timedelta(**(by or {"hours": 1}))
    return CustodyExpectations(
        machines=frozenset(machines), until=int(ends.timestamp())
    )


def test_a_machine_on_the_list_is_in_custody(
    made: AnyDeployment, now: datetime
) -> None:
    machine = shown(made, now, None).claims.platform
    assert machine
    key = shown(made, now, listing(now, CHIP, machine))
    assert Claim.CUSTODY in key.shows
    # The claim ends with the list, and the key with its first claim.
    assert dict(key.expiries)["custody list"] == now + timedelta(hours=1)
    assert key.expires_at <= now + timedelta(hours=1)
    instance = machine.partition("-enc")[0]
    assert Claim.CUSTODY in shown(made, now, listing(now, instance)).shows


def test_a_machine_that_is_not_is_accepted_without_the_claim(
    made: AnyDeployment, now: datetime
) -> None:
    machine = shown(made, now, None).claims.platform
    for custody in (
        None,
        listing(now),
        listing(now, CHIP, machine[:-1]),
        listing(now, machine, seconds=0),
        listing(now, machine, hours=-1),
    ):
        key = shown(made, now, custody)
        assert Claim.CUSTODY not in key.shows
        assert "custody list" not in dict(key.expiries)


def test_a_machine_that_names_itself_nowhere_is_refused(
    deployment: Deployment, now: datetime
) -> None:
    """As with ``platforms``: an empty name is on no list, and must not pass for one."""
    product = deployment.platform.product.value
    rules = replace(
        deployment.expectations(),
        snp=SnpExpectations(
            min_tcb={product: deployment.platform.tcb}, allow_masked_chip=True
        ),
    )
    hidden = deployment.bundle(lambda fields: replace(fields, chip_id=bytes(64)))
    bundle = encode_bundle(hidden)
    assert verify(bundle, rules, now=now).claims.platform == ""
    for listed in (
        replace(rules, custody=listing(now, CHIP)),
        replace(rules, custody=listing(now, "")),
        replace(rules, platforms=PlatformExpectations(deny=frozenset({CHIP}))),
    ):
        with pytest.raises(RefusedError) as caught:
            verify(bundle, listed, now=now)
        assert caught.value.code is RefusalCode.PLATFORM_DENIED
