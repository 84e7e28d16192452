"""``curtilage evaluate``: measures the detectors and a policy on data sets."""

import json
import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from curtilage.cli.declared import Arguments
from curtilage.cli.report.evaluation_json import CurvePoint
from curtilage.cli.report.figures import curve_chart
from curtilage.cli.terminal import COULD_NOT, DONE, err, err_again, out, progress
from curtilage.client.config import read_usable_policy
from curtilage.client.detection.inspection import Inspector
from curtilage.client.errors import ConfigError, UsageError
from curtilage.lab.evaluation.bench import Bench
from curtilage.lab.evaluation.figures import Evaluation, with_other_part
from curtilage.lab.evaluation.labelled import LABELS, read_labelled, write_sheet
from curtilage.lab.evaluation.rows import Part, Row
from curtilage.lab.evaluation.run import (
    GROUPS,
    Choice,
    Doors,
    curve_of,
    figures_of,
    profiles_of,
    sections_of,
)
from curtilage.lab.evaluation.stock_presidio import StockPresidio, spacy_model
from curtilage.lab.evaluation.tables import in_markdown, markdown, table
from curtilage.lab.evaluation.timing import in_process
from curtilage.policy.document.load import load_profile
from curtilage.policy.document.model import Policy, full_scan
from curtilage.policy.errors import PolicyError

MAX_WORKERS: Final = 4
APART: Final = "apart"  # as in ``parser``


def run(arguments: Arguments) -> int:
    """Write a sheet to label, or measure; exit 3 if a set was missing."""
    texts = None if arguments.texts is None else Path(arguments.texts)
    if arguments.sheet is None:
        return _measure(arguments, texts)
    if texts is None:
        raise UsageError("--sheet needs --texts FILE, the texts to be labelled")
    count = write_sheet(texts, Path(arguments.sheet))
    out(f"{arguments.sheet}: {count} texts; under must: {', '.join(LABELS)}")
    return DONE


def _measure(arguments: Arguments, texts: Path | None) -> int:
    if arguments.data is None and texts is None:
        raise UsageError("--data DIR or --texts FILE says what is measured")
    folder = Path(arguments.data) if arguments.data is not None else None
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"{folder}: not a folder")
    if arguments.limit < 1:
        raise UsageError("--limit is at least 1")
    choice = _choice(arguments.only if folder is not None else "own")
    policy, source = _policy(arguments.policy)
    labelled = () if texts is None else _labelled(texts)
    apart = arguments.part == APART
    part = Part.HELD_OUT if apart else Part(arguments.part)
    with _inspectors(full_scan(policy)) as inspectors:
        bench = Bench(
            data=folder or Path(),
            own=labelled,
            part=part,
            limit=arguments.limit,
            policy=policy,
            inspectors=inspectors,
            stocks=_stocks(arguments.stock),
            notify=_progress_printer(),
        )
        doors = Doors(start=inspector_for, detectors=in_process)
        figures = tuple(figures_of(bench, choice, doors))
        if apart:
            other = bench.of_part(Part.DEVELOPED)
            figures = with_other_part(figures, tuple(sections_of(other, choice)))
        evaluation = Evaluation(
            date=datetime.now(UTC).date().isoformat(),
            data=(folder or texts or bench.data).resolve().name,
            part=bench.part.value,
            policy_source=source,
            policy_digest=bench.policy.digest,
            figures=figures,
            curve=tuple(curve_of(bench, choice, inspector_for)),
            profiles=tuple(profiles_of(bench, choice, inspector_for)),
            # Known only now: the measurement discovers missing sets.
            missing=tuple(dict.fromkeys(bench.missing)),
        )
    bench.notify("")
    _write(arguments, bench, evaluation)
    out(table(evaluation))
    return COULD_NOT if evaluation.missing else DONE


def _labelled(texts: Path) -> Sequence[Row]:
    """Read the user's own texts; report how many have no label yet."""
    rows, waiting = read_labelled(texts)
    if waiting:
        err(f"{waiting} texts have nothing under must: not measured")
    return rows


def _stocks(wanted: str | None) -> Sequence[StockPresidio]:
    """Return plain Presidio, and Presidio with a model, if they are wanted."""
    if wanted is None:
        return ()
    plain = StockPresidio()
    return (plain,) if wanted == "bare" else (plain, StockPresidio(spacy_model()))


def _choice(only: str | None) -> Choice:
    """Read ``--only``.

    Raises:
        UsageError: a name begins with no known group.
    """
    ids = tuple(each.strip() for each in (only or "").split(",") if each.strip())
    for each in ids:
        if each.split(".")[0] not in GROUPS:
            raise UsageError(f"--only: {each!r} is none of {', '.join(GROUPS)}")
    return Choice(ids=ids)


def _policy(wanted: str | None) -> tuple[Policy, str]:
    """Load a policy file, or a shipped profile by name."""
    wanted = wanted or os.environ.get("CURTILAGE_POLICY")
    if wanted is not None and not Path(wanted).exists() and wanted.isidentifier():
        with suppress(PolicyError, OSError):
            return load_profile(wanted), f"profile {wanted!r}"
    return read_usable_policy(wanted)


def inspector_for(policy: Policy) -> Inspector:
    """Start the detectors without a standby worker, since many texts are inspected."""
    return Inspector.start(policy, spare=False)


@contextmanager
def _inspectors(policy: Policy) -> Generator[Sequence[Inspector]]:
    """Start one worker per core, up to a limit, and stop them at the end."""
    count = min(os.cpu_count() or 1, MAX_WORKERS)
    started: list[Inspector] = []
    try:
        with progress("starting detectors"):
            started += [inspector_for(policy) for _ in range(count)]
        if started[0].advice is not None:
            err(started[0].advice)
        yield started
    finally:
        for inspector in started:
            inspector.close()


def _progress_printer() -> Callable[[str], None]:
    """Return a function that shows progress: one moving line, or a line per step."""
    moving = sys.stderr.isatty()
    shown: set[str] = set()

    def notify(line: str) -> None:
        step = line.strip("\r").partition(":")[0]
        if moving and "MISSING" not in line:
            err_again(line.strip("\r"))
        elif step and (step not in shown or "MISSING" in line):
            shown.add(step)
            err(line.strip("\r") if "MISSING" in line else f"{step} \u2026")

    return notify


def _write(arguments: Arguments, bench: Bench, evaluation: Evaluation) -> None:
    """Write the requested output files."""
    if arguments.json:
        _write_file(arguments.json, json.dumps(evaluation.fields(), indent=1) + "\n")
    if arguments.plot:
        title = "Recall against what may leave, by profile, as thresholds move"
        points = [
            CurvePoint(
                knob=each.knob,
                setting=each.setting,
                recall=each.recall,
                leave=each.leave,
            )
            for each in evaluation.profiles
        ]
        _write_file(arguments.plot, curve_chart(points, file_title=title))
    if arguments.markdown:
        page = Path(arguments.markdown)
        try:
            before = page.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise ConfigError(f"{page}: cannot be read as text") from None
        _write_file(arguments.markdown, in_markdown(before, markdown(evaluation)))
    if arguments.misses:
        lines = [f"{figure}\t{row}\n" for figure, row in bench.misses]
        _write_file(arguments.misses, "".join(lines))


def _write_file(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as failure:
        raise ConfigError(f"{path}: {failure.strerror}") from None
