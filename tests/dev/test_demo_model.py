"""Which model the demonstration runs, and what it says that this does not show."""

import hashlib
from pathlib import Path

import pytest

from curtilage_dev.demo_model import Model, model_of


@pytest.mark.parametrize("given", [None, ""])
def test_without_a_model_it_is_the_embedded_one(given: str | None) -> None:
    model = model_of(given)
    assert model == Model()
    assert model.embedded
    assert "both sides" in model.stand_in
    assert "no advice" in model.caveat


def test_a_file_runs_on_both_sides_and_that_is_said(tmp_path: Path) -> None:
    file = tmp_path / "useful.gguf"
    file.write_bytes(b"GGUF")
    model = model_of(str(file))
    assert model.file == file
    assert model.sha256 == hashlib.sha256(b"GGUF").hexdigest()
    assert not model.embedded
    assert model.stand_in.endswith(f" {file.name}.")
    assert "same model" in model.caveat
    assert "no advice" not in model.caveat


def test_a_server_is_named_and_the_enclave_s_model_is_said_to_be_weaker(
    tmp_path: Path,
) -> None:
    ca = tmp_path / "ca.pem"
    model = model_of("https://llm.example/v1", name="a-7b", ca=ca)
    assert (model.address, model.name, model.ca) == (
        "https://llm.example/v1",
        "a-7b",
        ca,
    )
    assert not model.embedded
    assert "weaker" in model.stand_in
    assert "right less often" in model.caveat


@pytest.mark.parametrize(
    ("given", "name", "ca", "said"),
    [
        ("https://llm.example/v1", "", Path("ca.pem"), "--model-name"),
        ("https://llm.example/v1", "a-7b", None, "--model-ca"),
        ("/nowhere/model.gguf", "", None, "cannot be read"),
        (None, "a-7b", None, "go with the address"),
        ("model.gguf", "", Path("ca.pem"), "go with the address"),
    ],
)
def test_what_is_missing_is_said(
    given: str | None, name: str, ca: Path | None, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        model_of(given, name=name, ca=ca)
