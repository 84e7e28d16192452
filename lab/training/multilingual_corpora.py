"""Readers of the provided sets in other languages; each omits what is held out.

Every set is a ``data.jsonl`` of rows with ``lang`` and ``text``, and ``spans`` if names
are marked.
"""

import random  # training must repeat; nothing secret is drawn
import re
import unicodedata
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from corpora import NAMES, json_lines
from examples import Example, Span
from labels import IGNORED, TOPICS
from splits import held_out

_TYPES: Final = {
    "PER": "PERSON",
    "PERSON": "PERSON",
    "LOC": "LOCATION",
    "ORG": "ORGANIZATION",
}
# Derivations and compounds of names, which sets mark inconsistently; buildings are both
# a place and an organisation.
_UNSURE: Final = {"FACILITY"} | {
    kind + form for kind in ("PER", "LOC", "ORG", "OTH") for form in ("PART", "DERIV")
}
_CLINICAL_TYPES: Final = {
    "NOMBRE_SUJETO_ASISTENCIA": "PERSON",
    "NOMBRE_PERSONAL_SANITARIO": "PERSON",
    "TERRITORIO": "LOCATION",
    "PAIS": "LOCATION",
    "HOSPITAL": "ORGANIZATION",
    "INSTITUCION": "ORGANIZATION",
    "CENTRO_SALUD": "ORGANIZATION",
    "CALLE": "ADDRESS",
    "FECHAS": "DATE",
    "EDAD_SUJETO_ASISTENCIA": "AGE",
}
_KNOWN_OF_CLINICAL: Final = frozenset({"PERSON", "LOCATION", "ADDRESS", "AGE", "DATE"})
_PIECE, _LEAST_PIECE, _TOPICAL_PIECE = 300, 20, 200  # characters
CLINICAL: Final = "meddocan"


class Marked(NamedTuple):
    """A set with marked names, and how much of it is used."""

    name: str
    languages: str
    most: int | None = None


MARKED: Final = (
    Marked("germeval2014", "de"),
    Marked("smartdata-de", "de"),
    Marked("german-ler", "de", 500),
    Marked("europeana-ner", "fr nl", 1800),
    Marked("lener-br", "pt", 800),
    Marked("uner-portuguese-bosque", "pt"),
    Marked("uner-pud", "pt sv"),
    Marked("swedish-ner-corpus", "sv", 1500),
    Marked("uner-danish-ddt", "da", 2500),
    Marked("uner-norwegian-ndt", "nb", 800),
    Marked("turku-ner", "fi", 1200),
)
# Scanned newspapers with many unmarked names: only sentences with a mark are used.
_NOISY: Final = "europeana-ner"


def names(folder: Path) -> Iterator[Example]:
    """Read sentences in which people, places and organisations are marked."""
    for each in MARKED:
        found = marked(folder, each.name, each.languages.split())
        if each.name == _NOISY:
            found = (example for example in found if example.spans)
        yield from list(found)[: each.most]


def marked(folder: Path, name: str, languages: Collection[str]) -> Iterator[Example]:
    """Read one set's sentences in some languages."""
    for row in _rows(folder, name, languages):
        if held_out(f"{name}:{row.get('sid') or row['text']}"):
            continue
        spans = [
            Span(start, end, _TYPES.get(kind, IGNORED))
            for start, end, kind in row["spans"]
            if kind in _TYPES or kind in _UNSURE
        ]
        yield Example(row["text"], tuple(spans), NAMES)


def clinical(folder: Path) -> Iterator[Example]:
    """Read meddocan's Spanish notes, cut at ends of lines and sentences.

    A piece that is long enough to show it is labelled as a person's health, too.
    """
    for row in _rows(folder, CLINICAL, {"es"}):
        text = row["text"]
        if held_out(f"{CLINICAL}:{text}"):
            continue
        cuts = [0]
        for match in re.finditer(r"\n|(?<=\.) ", text):
            if match.end() - cuts[-1] > _PIECE:
                cuts.append(match.end())
        for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True):
            spans = tuple(
                Span(first - start, last - start, _CLINICAL_TYPES.get(kind, IGNORED))
                for first, last, kind in row["spans"]
                if first >= start and last <= end
            )
            if end - start > _LEAST_PIECE:
                topics = {"health": 1.0} if end - start > _TOPICAL_PIECE else {}
                yield Example(text[start:end], spans, _KNOWN_OF_CLINICAL, topics)


class _General(NamedTuple):
    """An impersonal set, how much of it is used, and the topics that it surely lacks.

    Texts are cut to a number of characters that fits the model's window.
    """

    name: str
    languages: str
    most: int | None = None
    topics: tuple[str, ...] = TOPICS
    field: str = "text"
    cut: int = 500
    omitted: tuple[str, ...] = ()  # parts of subjects that are omitted
    # Small talk: no health topic if it has no word of ``_UNWELL``.
    talk: bool = False


_IMPERSONAL: Final = (
    _General("medquad", "en", 1500),
    _General("pubmedqa", "en"),
    _General("pubmedqa", "en", field="context", cut=420),
    _General("legalbench-part", "en"),
    _General("code-prompts", "en", 300),
    _General("tatqa-tables", "en", 200),
    _General("frenchmedmcqa", "fr", 900),
    _General("covid-faq", "de it pl sv en"),
    # Some of them are about the speaker's own mood.
    _General(
        "chatterbot-corpus", "de es fr it pt nl en", 600, ("finance", "legal", "hr"),
        talk=True,
    ),
    _General("xsid", "en de it nl da no", 700),
    _General("mgsm", "de es fr"),
    _General("xquad-questions", "de es en ro", 600),
    # Law includes cases of people, so that topic and the next one are unknown.
    _General(
        "mmlu-professional", "en", 900, ("health", "finance", "hr"),
        cut=400, omitted=("medic", "anat"),
    ),
    # "I have a headache" is a sentence of a textbook here.
    _General("tatoeba-short", "de es fr it nl pt en", topics=TOPICS[1:], talk=True),
)  # fmt: skip
# Stems in seven languages, deliberately broad: texts with one of them are not used.
_UNWELL: Final = re.compile(
    r"krank|schmerz|weh|fieb|müde|schlaf|arzt|ärzt|blut|kopf|bauch|tot|stirb|gest|leb|"
    r"trink|rauch|dick|schwanger|traurig|angst|gesund|ill\b|sick|pain|hurt|ache|tired|"
    r"sleep|doctor|blood|head|dead|die|smok|drink|fat\b|pregnan|sad|afraid|health|mal|"
    r"doul|fièvre|fatigu|dor[ms]|médec|sang|tête|ventre|mort|meurs|vie\b|fum|bois|gros|"
    r"encein|trist|peur|sant|enferm|dol|fieb|cansad|dorm|duerm|medic|sang|cabe|muer|vid|"
    r"beb|gord|embaraz|mied|salud|malat|febb|stanc|testa|sono inc|paur|salut|zie[kt]|"
    r"pijn|koorts|moe\b|slaap|dokter|bloed|hoofd|buik|dood|leven|rook|drink|dik|zwanger|verdriet|"
    r"bang|gezond|doen[tç]|dor\b|cabeç|sangu|grávid|medo|saúde|fome|hambre|faim|fame|hunger|"
    r"hungry|honger|sed\b|soif|sete\b|dorst|durst|thirst|glücklich|feliz|felic|heur|happy|"
    r"allein|alone|seul|solo|sola|sozin|alleen|wein|cry|pleur|llor|piang|huil|chor",
    re.IGNORECASE,
)
_SYMPTOMS: Final = "tico19-dialogue"
_HEALTH_ONLY: Final = dict.fromkeys(TOPICS, 0.0) | {"health": 1.0}
_LEAST_CHARS = 15  # characters

# All sets that this module reads.
SETS: Final = frozenset(
    {CLINICAL, _SYMPTOMS, *(each.name for each in (*MARKED, *_IMPERSONAL))}
)


def impersonal(folder: Path, *, english: bool = True) -> Iterator[Example]:
    """Read texts without any topic, or without some of them.

    Args:
        folder: the data sets.
        english: whether to include English ones.
    """
    for each in _IMPERSONAL:
        languages = set(each.languages.split()) - (set() if english else {"en"})
        found = [
            Example(
                row[each.field][: each.cut],
                topics=dict.fromkeys(
                    TOPICS
                    if each.talk and not _UNWELL.search(row[each.field])
                    else each.topics,
                    0.0,
                ),
                key=f"{each.name}-{row['lang']}:{row[each.field]}",
            )
            for row in _rows(folder, each.name, languages)
            if row.get(each.field)
            and not any(part in row.get("subject", "") for part in each.omitted)
            and not held_out(f"{each.name}:{row[each.field]}")
        ]
        yield from found[: each.most]


def symptoms(folder: Path) -> Iterator[Example]:
    """Read patients' descriptions of their symptoms to a doctor."""
    for row in _rows(folder, _SYMPTOMS, {"es", "fr", "pt", "en"}):
        text = row["text"]
        if len(text) > _LEAST_CHARS and not held_out(f"{_SYMPTOMS}:{text}"):
            key = f"{_SYMPTOMS}-{row['lang']}:{text}"
            yield Example(text, topics=dict(_HEALTH_ONLY), key=key)


def shaken(source: random.Random, example: Example) -> Example:
    """Return some texts in lower case, in capitals or without accents, as people type.

    No letter becomes two, so the spans remain valid.
    """
    draw, text = source.random(), example.text
    if draw < 0.18:
        made = (each.lower() if len(each.lower()) == 1 else each for each in text)
    elif draw < 0.21:
        made = (each.upper() if len(each.upper()) == 1 else each for each in text)
    elif draw < 0.27:
        made = (
            unicodedata.normalize("NFD", each)[0] if each.isalpha() else each
            for each in text
        )
    else:
        return example
    return Example(
        "".join(made), example.spans, example.known, example.topics, example.key
    )


def _rows(
    folder: Path, name: str, languages: Collection[str]
) -> Iterator[dict[str, Any]]:
    for row in json_lines(folder / name / "data.jsonl"):
        if row["lang"] in languages:
            yield row
