import tempfile

import pytest

from curtilage.client.detection.detectors.languages.identifier import (
    LANGUAGES,
    load_identifier,
)
from curtilage.policy.document.values import COVERED_LANGUAGES

pytest.importorskip("py3langid", reason="SKIPPED LOUDLY: needs the extra pii")


def test_it_knows_its_languages_and_no_other() -> None:
    assert load_identifier().scores("hello there").keys() == LANGUAGES
    assert COVERED_LANGUAGES.keys() < LANGUAGES


def test_capitals_say_nothing() -> None:
    scores = load_identifier().scores
    assert scores("Ich Habe KREBS") == scores("ich habe krebs")


def test_no_file_is_written_to_load_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # The package's own reader does, which the detectors' process may not.
    for name in ("TemporaryFile", "NamedTemporaryFile", "mkstemp", "mkdtemp"):
        monkeypatch.delattr(tempfile, name)
    load_identifier.cache_clear()
    assert load_identifier().scores("hello there")
