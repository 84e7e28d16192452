"""The development tools are not installed; they are found by their folder."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "dev"))

from curtilage_dev.emulated.snp_pki import (
    EmulatedPlatform,
    generate_root_keys,
    make_platform,
)


@pytest.fixture(scope="session")
def platform() -> EmulatedPlatform:
    return make_platform(generate_root_keys(), now=datetime.now(UTC))
