"""Figures as text: a table for a terminal, and Markdown tables for a page."""

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from curtilage.client.errors import ConfigError
from curtilage.lab.evaluation.figures import Evaluation, Figure, Unit

_MAX_TITLE_CHARS: Final = 60

GROUP_TITLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "structured": "Structured identifiers",
        "identifying": "Queries that identify somebody",
        "health": "Health and special categories",
        "privacy": "Privacy exemplars",
        "evasion": "Evasion",
        "leave": "Allowed to leave (relayed or pseudonymised)",
        "pupa": "Real queries with personal data (PUPA)",
        "fairness": "Fairness: is the name noticed?",
        "names": "Names, places, organisations by corpus (any overlap)",
        "clinical": "Clinical questions, about a person and about none",
        "clean": "Clean questions that may leave",
        "hard": "Hard everyday prompts that may leave",
        "named": "Texts that name somebody: stay, or leave without the name",
        "language": "By language: what must not leave, and what may",
        "redteam": "Written to get past, in six languages and in several at once",
        "told": "Somebody's health and affairs, in short sentences",
        "surname": "Bare surnames in prose",
        "shapes": "Shapes in which names and secrets were once sent (generated)",
        "national": "National numbers that do not leave",
        "latency": "Latency (CPU time of one inspection)",
        "sockets": "Network",
        "faults": "Detector faults",
        "deadline": "Long prompts in time",
        "own": "Your own texts",
        "validity": "Validity of this run",
    }
)
_HEAD: Final = (
    "",
    "value",
    "95% interval",
    "n",
    "target",
    "",
    "developed",
    "home/pseud./as is",
    "Presidio",
    "with a model",
)


def table(evaluation: Evaluation) -> str:
    """Return the run as an aligned table with a section for each group."""
    lines = [_row_of(figure) for figure in evaluation.figures]
    widths = [
        max(len(cells[at]) for cells in (_HEAD, *lines)) for at in range(len(_HEAD))
    ]
    parts = [
        f"data {evaluation.data}, part {evaluation.part}, {evaluation.date}",
        f"policy {evaluation.policy_source}, {evaluation.policy_digest}",
        "",
        _aligned(_HEAD, widths),
    ]
    group = ""
    for figure, cells in zip(evaluation.figures, lines, strict=True):
        if figure.group != group:
            group = figure.group
            parts += ["", GROUP_TITLES.get(group, group)]
        parts.append(_aligned(cells, widths))
    return "\n".join([*parts, "", *_summary(evaluation)])


def _row_of(figure: Figure) -> tuple[str, ...]:
    estimate, unit = figure.estimate, figure.unit
    if not estimate.n:
        return (_title(figure), "no rows", "", "0", _target(figure), *[""] * 5)
    return (
        _title(figure),
        shown(estimate.value, unit),
        f"{shown(estimate.low, unit)} … {shown(estimate.high, unit)}",
        str(estimate.n),
        _target(figure),
        {None: "", True: "met", False: "NOT MET"}[figure.met],
        *_context(figure),
    )


def _context(figure: Figure) -> tuple[str, str, str, str]:
    """Return the developers' part, the routes and both Presidios, if known."""
    routes = figure.routes
    known = [
        shown(each.value, figure.unit) if each is not None and each.n else ""
        for each in (figure.developed, *figure.stocks)
    ]
    developed, stock, model = [*known, "", ""][:3]
    shares = (
        () if routes is None else (routes.home, routes.pseudonyms, routes.unchanged)
    )
    return (developed, " / ".join(f"{100 * each:.0f}" for each in shares), stock, model)


def _title(figure: Figure) -> str:
    return f"  {figure.title[:_MAX_TITLE_CHARS]}"


def _target(figure: Figure) -> str:
    target = figure.target
    if target is None:
        return ""
    sign = "≥" if target.sense == ">=" else "≤"
    return f"{sign} {shown(target.value, figure.unit)}"


def shown(value: float, unit: Unit) -> str:
    """Format a value for people."""
    if unit == "share":
        return f"{100 * value:.1f}%"
    if unit == "points":
        return f"{100 * value:.1f} pt"
    if unit == "ms":
        return f"{value:.2f} ms"
    return f"{value:.1f} x" if unit == "ratio" else f"{value:.0f}"


def _aligned(cells: Sequence[str], widths: Iterable[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    line = [first[0].ljust(first[1]), *(text.rjust(width) for text, width in rest)]
    return "  ".join(line).rstrip()


def _summary(evaluation: Evaluation) -> list[str]:
    judged = [each for each in evaluation.figures if each.met is not None]
    met = sum(bool(each.met) for each in judged)
    lines = [f"{met} of {len(judged)} targets met"]
    notes = {each.note: None for each in evaluation.figures if each.note}
    lines += [f"  {note}" for note in notes]
    if evaluation.missing:
        lines.append(f"MISSING, not measured: {', '.join(evaluation.missing)}")
    return lines


# --- the tables of a page ------------------------------------------------------------

_MARKS: Final = (
    "<!-- figures: written by curtilage evaluate --markdown -->",
    "<!-- end -->",
)
_LANGUAGE: Final = "language"
_EVERY_KIND: Final = r"clean\.\w+|redteam\.[\w.]+"


def in_markdown(page: str, tables: str) -> str:
    """Return a page with the tables between its marks replaced.

    Raises:
        ConfigError: it does not have exactly one pair of marks.
    """
    first, last = map(re.escape, _MARKS)
    made, count = re.subn(
        f"{first}.*?{last}",
        lambda _: "\n".join((_MARKS[0], tables, _MARKS[1])),
        page,
        flags=re.DOTALL,
    )
    if count != 1:
        raise ConfigError(f"the page needs the lines {_MARKS[0]} and {_MARKS[1]} once")
    return made


def markdown(evaluation: Evaluation) -> str:
    """Return every figure with a target, and a separate table for the languages.

    All kinds of clean questions and of the red team are listed, since one figure has
    the target for all of them.
    """
    shown_ones = [
        each
        for each in evaluation.figures
        if (each.target is not None or re.fullmatch(_EVERY_KIND, each.id))
        and each.group != _LANGUAGE
        and each.estimate.n
    ]
    head = (
        f"measured on {evaluation.date}, part {evaluation.part}",
        *("", "95 % interval", "n", "aim", "developers' part"),
        *("stay / pseudonyms / as it is", "Presidio", "with spaCy"),
    )
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    group = ""
    for each in shown_ones:
        if each.group != group:
            group = each.group
            lines.append(f"| *{GROUP_TITLES.get(group, group)}* {'|' * len(head)}")
        value = shown(each.estimate.value, each.unit)
        cells = (
            each.title.strip(),
            f"**{value}**" if each.met is False else value,
            " to ".join(
                shown(end, each.unit) for end in (each.estimate.low, each.estimate.high)
            ),
            str(each.estimate.n),
            _target(each),
            *_context(each),
        )
        lines.append(f"| {' | '.join(cells)} |")
    by_language: dict[str, dict[str, Figure]] = {}
    for each in evaluation.figures:
        if each.group == _LANGUAGE:
            _, lang, kind = each.id.split(".")
            by_language.setdefault(lang, {})[kind] = each
    if by_language:
        kinds = tuple(next(iter(by_language.values())))
        aims = (_target(next(iter(by_language.values()))[kind]) for kind in kinds)
        columns = (f"{kind} ({aim})" for kind, aim in zip(kinds, aims, strict=True))
        titles = ("language", *columns)
        lines += ["", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for lang, found in by_language.items():
        shares = map(_of_language, found.values())
        lines.append(f"| {lang} | {' | '.join(shares)} |")
    if evaluation.missing:
        lines += ["", f"**Missing, not measured: {', '.join(evaluation.missing)}**"]
    return "\n".join(["", *lines, ""])


def _of_language(figure: Figure) -> str:
    if not figure.estimate.n:
        return "no rows"
    value = shown(figure.estimate.value, figure.unit)
    return f"{value if figure.met else f'**{value}**'} of {figure.estimate.n}"
