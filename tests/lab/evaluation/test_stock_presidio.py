"""Presidio as it comes and with a model: what is loaded, and only that."""

from pathlib import Path

import pytest

from curtilage.client.errors import ConfigError
from curtilage.lab.evaluation import stock_presidio
from curtilage.lab.evaluation.bench import masked
from curtilage.lab.evaluation.stock_presidio import (
    StockPresidio,
    StockSpan,
    folder_digest,
    spacy_model,
)


def test_a_model_finds_names_that_a_tokenizer_alone_does_not() -> None:
    text = "Tell Anna Keller of alice@example.com"
    kinds = [
        {span.kind for span in StockPresidio(model).spans(text)}
        for model in (None, spacy_model())
    ]
    assert "EMAIL_ADDRESS" in kinds[0] & kinds[1]
    assert kinds[1] - kinds[0] == {"PERSON"}


def test_the_digest_is_over_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("1")
    first = folder_digest(tmp_path)
    (tmp_path / "a" / "x").rename(tmp_path / "a" / "y")
    renamed = folder_digest(tmp_path)
    (tmp_path / "a" / "y").write_text("2")
    assert len({first, renamed, folder_digest(tmp_path)}) == 3


def test_a_changed_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock_presidio, "_MODEL_DIGEST", "0" * 64)
    with pytest.raises(ConfigError, match=r"version 3\.8\.0"):
        spacy_model()


def test_without_the_model_the_next_step_is_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stock_presidio, "MODEL", "curtilage-no-such-model")
    with pytest.raises(ConfigError, match="--stock bare"):
        spacy_model()


def test_masks_leave_the_rest_in_its_place() -> None:
    spans = [
        StockSpan(kind="A", start=0, end=2),
        StockSpan(kind="B", start=1, end=4),
    ]
    assert masked("abcdef", spans) == "    ef"
