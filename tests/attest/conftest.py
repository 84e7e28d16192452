"""An emulated deployment, made once: RSA-4096 keys take seconds."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "dev"))

from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import EvidenceBundle
from curtilage.attest.evidence_json import encode_bundle
from curtilage.attest.expectations import Expectations
from curtilage.attest.verify import verify
from curtilage_dev.deployment import Deployment, make_deployment
from curtilage_dev.emulated.snp_pki import (
    EmulatedPlatform,
    RootKeys,
    generate_root_keys,
    make_platform,
)

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)

Refused = Callable[..., RefusedError]


@pytest.fixture(scope="session")
def now() -> datetime:
    return NOW


@pytest.fixture(scope="session")
def root_keys() -> RootKeys:
    return generate_root_keys()


@pytest.fixture(scope="session")
def other_root_keys(root_keys: RootKeys) -> RootKeys:
    """Another authority's keys: the same two, in each other's place."""
    return RootKeys(ark=root_keys.ask, ask=root_keys.ark)


@pytest.fixture(scope="session")
def platform(root_keys: RootKeys) -> EmulatedPlatform:
    return make_platform(root_keys, now=NOW)


@pytest.fixture(scope="session")
def deployment(platform: EmulatedPlatform) -> Deployment:
    return make_deployment(platform, now=NOW)


@pytest.fixture(scope="session")
def expectations(deployment: Deployment) -> Expectations:
    return deployment.expectations()


@pytest.fixture(scope="session")
def bundle(deployment: Deployment) -> EvidenceBundle:
    return deployment.bundle()


@pytest.fixture(scope="session")
def refused(expectations: Expectations) -> Refused:
    """Verify something that must be refused, and return why it was."""

    def refuse(
        bundle: EvidenceBundle | bytes,
        expected: Expectations = expectations,
        *,
        now: datetime = NOW,
    ) -> RefusedError:
        data = bundle if isinstance(bundle, bytes) else encode_bundle(bundle)
        with pytest.raises(RefusedError) as caught:
            verify(data, expected, now=now)
        steps = caught.value.steps
        assert [step.passed for step in steps] == [True] * (len(steps) - 1) + [False]
        assert steps[-1].name == caught.value.step
        return caught.value

    return refuse
