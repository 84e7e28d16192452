"""What the measurements conclude from their numbers."""

import sys
from pathlib import Path

import pytest
from benchmarks import __main__ as bench
from benchmarks.report import Table, area_above
from benchmarks.shapes import token_bytes_read

from support.byte_model import HEADS, KV_HEADS, LAYERS, WIDTH, make_byte_model


@pytest.mark.parametrize(
    ("these", "those", "said"),
    [
        (range(100, 200), range(100), "1.000 (1.000 to 1.000) DIFFERS"),
        (range(100), range(100, 200), "0.000 (0.000 to 0.000) DIFFERS"),
        ([1, 2] * 100, [2, 1] * 100, "0.500 (0.451 to 0.549) chance"),
        ([3, 4, 5], [1, 2, 5], "0.722 (0.167 to 1.000) unclear"),
    ],
    ids=["above", "below", "alike", "few"],
)
def test_an_area_has_an_interval(
    these: list[float], those: list[float], said: str
) -> None:
    """The intervals were computed by hand, by DeLong's formula."""
    assert str(area_above(these, those)) == said


def test_an_interval_shrinks_with_the_square_root() -> None:
    few, many = (area_above([1, 2, 3, 5] * n, [1, 2, 3, 4] * n) for n in (10, 1000))
    assert few.share == pytest.approx(many.share)
    width = (few.high - few.low) / (many.high - many.low)
    assert width == pytest.approx(10, rel=0.05)


def test_a_token_reads_the_weights_once_and_its_context(tmp_path: Path) -> None:
    path = make_byte_model(tmp_path / "model.gguf")
    cell = LAYERS * KV_HEADS * (WIDTH // HEADS) * 2 * 2
    nothing, some = (token_bytes_read(path, tokens) for tokens in (0, 10))
    assert some - nothing == 10 * cell
    # Of the embedding only a row; all other tensors are 32-bit numbers.
    assert nothing < path.stat().st_size - 288 * WIDTH * 4
    assert nothing > path.stat().st_size / 2


@pytest.mark.parametrize(("kept", "status"), [(True, 0), (False, 1)])
def test_what_must_hold_and_does_not_is_an_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, kept: bool, status: int
) -> None:
    tables = [
        Table(title="one", columns=("a",), rows=()),
        Table(title="two", columns=("a",), rows=(), kept=kept),
    ]

    def measure(*_: object) -> list[Table]:
        return tables

    monkeypatch.setattr(bench, "PARTS", {"starve": measure})
    monkeypatch.setattr(bench, "OUT", tmp_path / "out")
    monkeypatch.setattr(sys, "argv", ["make bench", "starve"])
    assert bench.main() == status
