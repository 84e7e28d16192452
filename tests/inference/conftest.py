from pathlib import Path

import pytest

from curtilage.inference.default_model import find_default_model
from curtilage.inference.errors import ModelFileError
from support.byte_model import make_byte_model

pytest.importorskip("llama_cpp", reason="SKIPPED LOUDLY: the extra 'llm' is absent")


@pytest.fixture(scope="session")
def byte_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_byte_model(tmp_path_factory.mktemp("models") / "byte.gguf")


@pytest.fixture(scope="session")
def default_model() -> Path:
    try:
        return find_default_model()
    except ModelFileError as problem:
        pytest.skip(f"SKIPPED LOUDLY: {problem}")
