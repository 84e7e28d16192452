"""docs/routing-in-one-day.md: its policy loads, its outputs are the command's."""

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from curtilage.cli import examine
from curtilage.cli import main as cli
from curtilage.client.detection.checked import CheckedInspector
from curtilage.policy.document.load import load_policy
from curtilage.policy.document.model import Policy
from curtilage.policy.signing import Currency

PAGE = Path(__file__).resolve().parents[3] / "docs/routing-in-one-day.md"
TEXT = PAGE.read_text("utf-8")
POLICY = TEXT.partition("```yaml\n")[2].partition("```")[0]
SHOWN = re.findall(r"^> ([^\n]+)\n\n```\n(.*?)```$", TEXT, re.MULTILINE | re.DOTALL)
# On a busy machine, a question must not fail for its deadline.
PATIENT = "limits: {deadline_ms: 60000, deadline_wall_ms: 600000}\n"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "ward.yaml"
    path.write_text(POLICY + PATIENT, "utf-8")
    return path


@pytest.fixture
def _detectors(policy: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start the detectors once for all questions."""
    started = examine.start_detectors(load_policy(policy.read_text("utf-8")))

    def start(_policy: Policy, _currency: Currency | None = None) -> CheckedInspector:
        return started

    def keep(_inspector: CheckedInspector) -> None:
        """Leave the detectors running for the next question."""

    with monkeypatch.context() as patched:
        patched.setattr(examine, "start_detectors", start)
        patched.setattr(CheckedInspector, "close", keep)
        yield
    started.close()


def test_the_page_has_a_policy_and_three_questions() -> None:
    routing = load_policy(POLICY).routing
    assert routing is not None
    assert [tier.kind for tier in routing.tiers] == [
        "in_process",
        "on_premises",
        "attested",
    ]
    assert len(SHOWN) == 3


def test_the_policy_has_no_problem(
    policy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["policy", "check", str(policy)]) == 0
    assert "no problem found" in capsys.readouterr().out


@pytest.mark.usefixtures("_detectors")
def test_the_page_shows_what_the_command_prints(
    policy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for question, printed in SHOWN:
        typed = io.TextIOWrapper(io.BytesIO(question.encode()))
        monkeypatch.setattr("sys.stdin", typed)
        capsys.readouterr()
        assert cli.main(["route", "explain", "--policy", str(policy), "-"]) == 0
        assert capsys.readouterr().out == printed
