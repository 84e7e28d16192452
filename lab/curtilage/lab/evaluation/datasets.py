"""Readers of the data sets behind the figures; each takes the set's folder.

The formats are those of the sets' authors (see ``SOURCE.md`` in each folder). A reader
takes any file of the right type, whatever its name, since another half of a set has
other files. Invalid rows are skipped. ``corpora`` reads texts with marked tokens.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Final, cast

from curtilage.lab.evaluation.corpora import (
    kind_of,
    read_assistant_queries,
    read_columns,
    read_iob2,
)
from curtilage.lab.evaluation.data_files import (
    MissingSetError,
    items,
    matching,
    objects,
    read_csv,
    read_json,
    read_json_lines,
    read_text,
    text_at,
    whole_at,
)
from curtilage.lab.evaluation.rows import Gold, Row

NAME_SLOT: Final = "{{Name}}"
DIALOGUE: Final = "dialogue"
NOTE: Final = "note"
FIRST_NAME: Final = "first-name"
_CASE_TEXTS: Final = ("text", "content", "question", "query", "input", "prompt")
# Labels of the privacy set; texts with any other label may be sent.
PRIVATE_LABELS: Final = frozenset(
    {
        "business_strategy",
        "customer_data",
        "internal_document",
        "locality_directive",
        "operational_infrastructure",
        "pii",
        "proprietary_code",
        "trade_secret_ip",
    }
)


def read_presidio_research(folder: Path) -> Iterator[Row]:
    """Read synthetic sentences with marked spans (``full_text``, ``spans``)."""
    for path in matching(folder, "*.json"):
        for number, fields in enumerate(objects(read_json(path))):
            text = text_at(fields, "full_text")
            template = whole_at(fields, "template_id")
            # All rows of one template are in the same part of the split: from some
            # of them, a model would learn the sentences of the others.
            key = f"presidio:{template}"
            if template is None:
                key = f"presidio-masked:{text_at(fields, 'masked') or text}"
            if text:
                yield Row(
                    id=_id(folder, path, number),
                    key=key,
                    text=text,
                    gold=tuple(_spans(fields, text)),
                    tags=(path.stem,),
                )


def _spans(fields: Mapping[str, object], text: str) -> Iterator[Gold]:
    marked = sorted(
        objects(fields.get("spans")),
        key=lambda span: whole_at(span, "start_position") or 0,
    )
    for span in marked:
        kind = text_at(span, "entity_type")
        start, end = (whole_at(span, f"{at}_position") for at in ("start", "end"))
        if start is None or end is None or not kind:
            continue
        if 0 <= start < end <= len(text):
            yield Gold(kind=kind, start=start, end=end)


def read_clinc(folder: Path) -> Iterator[Row]:
    """Read short assistant queries (``{"val": [[text, intent], …], …}``)."""
    for path in matching(folder, "data*.json"):
        value = read_json(path)
        splits = cast("dict[str, object]", value) if isinstance(value, dict) else {}
        pairs = chain.from_iterable(items(split) for split in splits.values())
        for number, pair in enumerate(pairs):
            text = next(iter(items(pair)), None)
            if isinstance(text, str) and text:
                yield Row(id=_id(folder, path, number), key=f"clinc:{text}", text=text)


def read_arena_hard(folder: Path) -> Iterator[Row]:
    """Read hard prompts by real users; tagged with the version in the name."""
    for path in matching(folder, "*.jsonl"):
        tag = "v2.0" if "v2" in path.name else "v0.1"
        for number, fields in enumerate(read_json_lines(path)):
            turns = [text_at(turn, "content") for turn in objects(fields.get("turns"))]
            text = text_at(fields, "prompt") or next(filter(None, turns), "")
            uid = text_at(fields, "uid", "question_id")
            if text:
                yield Row(
                    id=_id(folder, path, number),
                    key=f"arena:{uid}",
                    text=text,
                    tags=(tag,),
                )


def read_mt_bench(folder: Path) -> Iterator[Row]:
    """Read the first turn of each prompt (``turns``); tagged by bench."""
    for path in matching(folder, "*.jsonl"):
        tag = "vicuna" if "vicuna" in path.name else "mt-bench"
        for number, fields in enumerate(read_json_lines(path)):
            text = next(iter(items(fields.get("turns"))), None)
            if isinstance(text, str) and text:
                yield Row(
                    id=_id(folder, path, number),
                    key=f"mt:{fields.get('question_id')}",
                    text=text,
                    tags=(tag,),
                )


def read_counsel_chat(folder: Path) -> Iterator[Row]:
    """Read questions to counsellors, without the repetitions for further answers."""
    seen: set[str] = set()
    for path, number, fields in _table(folder):
        question = text_at(fields, "questionID")
        parts = [text_at(fields, name) for name in ("questionTitle", "questionText")]
        text = "\n".join(part.strip() for part in parts if part)
        if text and question not in seen:
            seen.add(question)
            yield Row(
                id=_id(folder, path, number), key=f"counsel:{question}", text=text
            )


def _visits(key: str, number: str, note: str) -> Callable[[Path], Iterator[Row]]:
    """Return a reader of conversations between doctor and patient, and their notes.

    Args:
        key: of the split, with places for the file's name and the visit.
        number: the column that identifies the visit.
        note: the column with the note, or with a section of it.
    """

    def read(folder: Path) -> Iterator[Row]:
        for path, at, fields in _table(folder):
            own = key.format(path.name, text_at(fields, number))
            for tag, column in ((DIALOGUE, "dialogue"), (NOTE, note)):
                if text := text_at(fields, column):
                    name = f"{_id(folder, path, at)}:{tag}"
                    yield Row(id=name, key=own, text=text, tags=(tag,))

    return read


def read_privacy_exemplars(folder: Path) -> Iterator[Row]:
    """Read exemplar requests; tagged with their privacy label.

    Files of single cases are read too; all of those are tagged ``pii``.
    """
    for path in matching(folder, "*.json"):
        for number, (label, text) in enumerate(_labelled(read_json(path))):
            yield Row(id=_id(folder, path, number), key="", text=text, tags=(label,))


def _labelled(value: object) -> Iterator[tuple[str, str]]:
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    labels = fields.get("labels")
    if isinstance(labels, dict):
        for label, entry in cast("dict[str, object]", labels).items():
            known = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
            for text in items(known.get("exemplars")):
                if isinstance(text, str) and text:
                    yield label, text
        return
    lists: list[object] = [*fields.values()] if fields else [value]
    for case in chain.from_iterable(objects(each) for each in lists):
        if text := text_at(case, *_CASE_TEXTS):
            yield "pii", text


def read_pupa(folder: Path) -> Iterator[Row]:
    """Read real users' queries; ``pii_units`` are lower case, separated by ``||``."""
    for path, number, fields in _table(folder):
        units = text_at(fields, "pii_units").split("||")
        if text := text_at(fields, "user_query"):
            yield Row(
                id=_id(folder, path, number),
                key="",
                text=text,
                units=tuple(unit.strip() for unit in units if unit.strip()),
                tags=(path.stem,),
            )


def read_masking_bias(folder: Path) -> Iterator[Row]:
    """Read every name in every template, in full and as a first name alone.

    Tags: the group, the gender, and ``first-name`` for a first name alone.
    """
    templates = [
        line
        for path in matching(folder, "template*.csv")
        for line in read_text(path).split("\n")
        if NAME_SLOT in line
    ]
    names = [path for path in matching(folder, "*.csv") if "template" not in path.name]
    if not names:
        raise MissingSetError(f"{folder.name}: no list of names")
    for path in names:
        for number, fields in enumerate(read_csv(path)):
            for at, template in enumerate(templates):
                name = f"{_id(folder, path, number)}:{at}"
                yield from _named(name, template.strip("\r"), fields)


def _named(name: str, template: str, fields: Mapping[str, str]) -> Iterator[Row]:
    tags = (text_at(fields, "race_ethnic_group"), text_at(fields, "gender"))
    for column, more in (("full_name", ()), ("first_name", (FIRST_NAME,))):
        value = text_at(fields, column)
        if not value:
            continue
        start = template.index(NAME_SLOT)
        yield Row(
            id=":".join((name, *more)),
            key="",
            text=template.replace(NAME_SLOT, value),
            gold=(Gold(kind="PERSON", start=start, end=start + len(value)),),
            tags=(*tags, *more),
        )


def read_ner_corpora(folder: Path) -> Iterator[Row]:
    """Read the corpora with one token per line; tagged by corpus."""
    files = matching(folder, "*.conll", "*.txt", "*.annotated")
    for path in files:
        if (corpus := corpus_of(path.name)) is not None:
            yield from read_columns(path, corpus)


def corpus_of(name: str) -> str | None:
    """Return the corpus that a file belongs to, by its name."""
    for mark in _CORPORA:
        if mark.casefold() in name.casefold():
            return _CORPORA[mark]
    return None


_CORPORA: Final[Mapping[str, str]] = MappingProxyType(
    {"WNUT17": "wnut17", "BTC": "btc", "SEC-filings": "sec", "wikigold": "wikigold"}
)


def _iob2(corpus: str) -> Callable[[Path], Iterator[Row]]:
    def read(folder: Path) -> Iterator[Row]:
        for path in matching(folder, "*.iob2"):
            yield from read_iob2(path, corpus)

    return read


def read_nlu_evaluation(folder: Path) -> Iterator[Row]:
    """Read assistant queries in lower case with marked slots."""
    for path in matching(folder, "*.csv"):
        yield from read_assistant_queries(path)


def _table(folder: Path) -> Iterator[tuple[Path, int, Mapping[str, str]]]:
    for path in matching(folder, "*.csv"):
        for number, fields in enumerate(read_csv(path)):
            yield path, number, fields


def _id(folder: Path, path: Path, number: int) -> str:
    return f"{folder.name}:{path.name}:{number}"


# --- sets with a text a line ---------------------------------------------------

# Fields with a row's kind, in order of preference.
_LABELS: Final = ("subject", "topic", "qtype", "intent", "part", "set", "cat", "task")
_PLACEHOLDER: Final = re.compile(r"\[([A-Z_]+?)_?\d*\]")


def _lines(
    key: str, files: str = "*.jsonl", fields: Sequence[str] = ("text",)
) -> Callable[[Path], Iterator[Row]]:
    """Return a reader of one row per line, from JSON Lines or from a table.

    Rows are tagged with their language and kind if the set has them. Marks are listed
    in ``spans`` (``[first, past, kind]``), or follow from the placeholders in
    ``anonymized``.

    Args:
        key: the set's name in the keys of the split.
        files: which files of the folder.
        fields: with the text; the first that is not blank counts.
    """

    def read(folder: Path) -> Iterator[Row]:
        for path in matching(folder, files):
            table = read_csv if path.suffix == ".csv" else read_json_lines
            for number, line in enumerate(table(path)):
                if not (text := text_at(line, *fields)):
                    continue
                tags = (text_at(line, "lang"), text_at(line, *_LABELS))
                yield Row(
                    id=_id(folder, path, number),
                    key=f"{key}:{text}",
                    text=text,
                    gold=(
                        *_triples(line, text),
                        *_replaced(text, text_at(line, "anonymized")),
                    ),
                    tags=tuple(filter(None, tags)),
                )

    return read


def _triples(line: Mapping[str, object], text: str) -> Iterator[Gold]:
    for span in items(line.get("spans")):
        match items(span):
            case [int(start), int(end), str(kind)] if 0 <= start < end <= len(text):
                yield Gold(kind=kind_of(kind), start=start, end=end)
            case _:
                continue


def _replaced(text: str, anonymized: str) -> Iterator[Gold]:
    """Yield the values behind placeholders such as ``[NAME_1]``, if they are clear."""
    pieces = _PLACEHOLDER.split(anonymized)
    pattern = "(.+?)".join(re.escape(piece) for piece in pieces[::2])
    found = re.fullmatch(pattern, text, re.DOTALL) if pieces[1:] else None
    for number, kind in enumerate(pieces[1::2], start=1):
        if found is not None:
            start, end = found.span(number)
            yield Gold(kind=kind_of(kind), start=start, end=end)


# The remaining sets have one text per line.
READERS: Final[Mapping[str, Callable[[Path], Iterator[Row]]]] = MappingProxyType(
    {
        "presidio-research": read_presidio_research,
        "clinc150": read_clinc,
        "banking77": _lines("banking", "*.csv"),
        "arena-hard": read_arena_hard,
        "gsm8k": _lines("gsm8k", fields=("question",)),
        "mt-bench": read_mt_bench,
        "counsel-chat": read_counsel_chat,
        "mts-dialog": _visits("mts:{0}:{1}", "ID", "section_text"),
        "aci-bench": _visits("aci:{1}", "encounter_id", "note"),
        "vllm-sr-privacy": read_privacy_exemplars,
        "pupa": read_pupa,
        "pii-masking-bias": read_masking_bias,
        "ner-corpora": read_ner_corpora,
        "uner-ewt": _iob2("ewt"),
        "uner-german-pud": _iob2("german-pud"),
        "uner-swedish-talbanken": _iob2("swedish-talbanken"),
        "nlu-evaluation-data": read_nlu_evaluation,
        "routing": _lines("routing", "*/*.jsonl", ("text", "prompt")),
    }
)


def read_set(data: Path, name: str) -> tuple[Row, ...]:
    """Read a set by its folder's name.

    Raises:
        MissingSetError: it is not there, or has no valid row.
        ConfigError: a file cannot be read.
    """
    if not (data / name).is_dir():
        raise MissingSetError(f"{name}: no such folder")
    reader = READERS.get(name) or _lines(name)
    rows = tuple(reader(data / name))
    if not rows:
        raise MissingSetError(f"{name}: no row could be read")
    return rows
