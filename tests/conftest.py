import os
from pathlib import Path

import pytest
from hypothesis import settings

# First of all: a native library reads it once, when a test imports it.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

# A busy machine must not fail a property: none of ours is about time.
settings.register_profile("curtilage", deadline=None)
settings.load_profile("curtilage")

ROOT = Path(__file__).resolve().parents[1]


def find_shared() -> Path | None:
    """Return the folder of outside vectors and evidence, or None."""
    path = Path(os.environ.get("CURTILAGE_SHARED", str(ROOT.parent / "shared")))
    return path.resolve() if path.is_dir() else None


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    path = find_shared()
    if path is None:
        pytest.skip(
            "SKIPPED LOUDLY: outside vectors and evidence are not here; "
            "point CURTILAGE_SHARED at them"
        )
    return path
