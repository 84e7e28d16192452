import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Load = Callable[[str], Any]


@pytest.fixture(scope="session")
def load_vectors(shared_dir: Path) -> Load:
    def load(name: str) -> Any:  # noqa: ANN401 - JSON of somebody else's shape
        path = shared_dir / "vectors" / name
        if not path.is_file():
            pytest.skip(f"SKIPPED LOUDLY: {path} is not here")
        return json.loads(path.read_text())

    return load
