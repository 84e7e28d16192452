"""What ``ask`` says while nothing of an answer can be shown."""

import pytest

from curtilage.cli.ask import WAITING
from curtilage.client.answer import Phase


@pytest.mark.parametrize("phase", Phase)
def test_whatever_is_waited_for_has_words(phase: Phase) -> None:
    """Else an answer that is only late would end the program."""
    assert WAITING[phase]
