from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from curtilage.attest.claims import Claim
from curtilage.attest.evidence import EvidenceBundle
from curtilage.attest.evidence_json import encode_bundle
from curtilage.attest.expectations import Expectations
from curtilage.attest.log.manifest import Residency
from curtilage.attest.requirements import Requirement, unmet
from curtilage.attest.verify import VerifiedKey, verify
from curtilage_dev.deployment import make_deployment, make_manifest
from curtilage_dev.emulated.snp_pki import EmulatedPlatform

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)


# An emulated enclave without a sandbox shows only which weights it serves.
LACKING = ("hardware", "gpu", "no_write", "isolation", "ephemerality", "custody")


@pytest.fixture
def key(bundle: EvidenceBundle, expectations: Expectations) -> VerifiedKey:
    return verify(encode_bundle(bundle), expectations, now=NOW)


def test_nothing_is_demanded_by_default(key: VerifiedKey) -> None:
    assert unmet(key, Requirement(), now=NOW, challenged=False) == ()


@pytest.mark.parametrize(
    ("requirement", "words"),
    [
        (Requirement(claims=frozenset(Claim)), LACKING),
        (Requirement(claims=frozenset({Claim.WEIGHTS})), ()),
        (Requirement(cpu_tees=frozenset({"emulated-sev-snp", "tdx"})), ()),
        (Requirement(cpu_tees=frozenset({"sev-snp"})), ("cpu_tee",)),
        (Requirement(cpu_tees=frozenset()), ("cpu_tee",)),
        (Requirement(challenge_age_s=60), ("challenge",)),
    ],
)
def test_missing_requirements_are_named(
    key: VerifiedKey, requirement: Requirement, words: tuple[str, ...]
) -> None:
    assert unmet(key, requirement, now=NOW, challenged=False) == words


@pytest.fixture(scope="module")
def swiss(platform: EmulatedPlatform) -> VerifiedKey:
    manifest = replace(
        make_manifest(NOW),
        residency=Residency(operator="Example AG", country="CH", region="zrh-1"),
    )
    deployment = make_deployment(platform, now=NOW, manifest=manifest)
    bundle = encode_bundle(deployment.bundle())
    return verify(bundle, deployment.expectations(), now=NOW)


@pytest.mark.parametrize(
    ("requirement", "met"),
    [
        (Requirement(operators=frozenset({"Example AG", "Other AG"})), True),
        (Requirement(countries=frozenset({"CH"})), True),
        (Requirement(regions=frozenset({"zrh-1"})), True),
        (
            Requirement(countries=frozenset({"CH"}), regions=frozenset({"zrh-1"})),
            True,
        ),
        (Requirement(operators=frozenset({"example ag"})), False),
        (Requirement(countries=frozenset({"DE", "FR"})), False),
        (Requirement(regions=frozenset({"zrh"})), False),
        (Requirement(countries=frozenset()), False),
        (
            Requirement(countries=frozenset({"CH"}), regions=frozenset({"zrh-2"})),
            False,
        ),
    ],
)
def test_a_release_states_where_it_runs(
    key: VerifiedKey, swiss: VerifiedKey, requirement: Requirement, *, met: bool
) -> None:
    lacking = unmet(swiss, requirement, now=NOW, challenged=False)
    assert lacking == (() if met else ("residency",))
    # One that states nothing has no location and no operator.
    assert unmet(key, requirement, now=NOW, challenged=False) == ("residency",)


def test_a_key_says_what_its_release_states(
    key: VerifiedKey, swiss: VerifiedKey
) -> None:
    assert swiss.residency.country == "CH"
    assert key.residency == Residency()


def test_a_challenge_that_was_answered_is_met(key: VerifiedKey) -> None:
    assert unmet(key, Requirement(challenge_age_s=60), now=NOW, challenged=True) == ()


@pytest.mark.parametrize(
    ("age_s", "words"), [(59, ()), (60, ("evidence_age",)), (61, ("evidence_age",))]
)
def test_evidence_grows_old(
    key: VerifiedKey, age_s: int, words: tuple[str, ...]
) -> None:
    later = NOW + timedelta(seconds=age_s)
    demand = Requirement(max_evidence_age_s=60)
    assert unmet(key, demand, now=later, challenged=False) == words


def test_all_that_is_lacking_is_named_at_once(key: VerifiedKey) -> None:
    everything = Requirement(
        claims=frozenset(Claim),
        cpu_tees=frozenset({"tdx"}),
        max_evidence_age_s=0,
        challenge_age_s=60,
    )
    assert unmet(key, everything, now=NOW, challenged=False) == (
        *LACKING,
        "cpu_tee",
        "evidence_age",
        "challenge",
    )
    assert unmet(
        key, replace(everything, claims=frozenset()), now=NOW, challenged=True
    ) == ("cpu_tee", "evidence_age")
