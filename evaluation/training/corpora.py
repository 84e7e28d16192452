"""Readers of the provided corpora; each leaves out what is held out.

Nothing of them is committed: the folder is named on the command line, and the
model card tells the digest of every file that was read.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from examples import Example, Span
from labels import IGNORED, TOPICS
from splits import held_out

NAMES = frozenset({"PERSON", "LOCATION", "ORGANIZATION"})
_CSV_FIELD = 10_000_000
_PIECE = 420  # characters of a long text that one example holds

_CONLL_TYPES = {
    "PER": "PERSON",
    "PERSON": "PERSON",
    "LOC": "LOCATION",
    "LOCATION": "LOCATION",
    "GEO-LOC": "LOCATION",
    "COUNTRY": "LOCATION",
    "ORG": "ORGANIZATION",
    "CORPORATION": "ORGANIZATION",
    "GROUP": "ORGANIZATION",
    "ORGANISATION": "ORGANIZATION",
    "BAND": "ORGANIZATION",
    "UNIVERSITY": "ORGANIZATION",
    "POLITICALPARTY": "ORGANIZATION",
    "POLITICIAN": "PERSON",
    "SCIENTIST": "PERSON",
    "WRITER": "PERSON",
    "MUSICALARTIST": "PERSON",
    "RESEARCHER": "PERSON",
}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# SEC filings mark the parties' roles as people and organisations.
_ROLES = _words("""
agent bank borrower borrowers company lender lenders
""")


def conll(path: Path, corpus: str, *, word: int = 0) -> Iterator[Example]:
    """Read token-per-line files: the label stands last, or third in iob2.

    Args:
        path: the file.
        corpus: its name in split keys.
        word: the column of the token; 1 means iob2, whose label is column 2.
    """
    label = 2 if word else -1
    rows: list[tuple[str, str]] = []
    for line in (*path.read_text("utf-8", "replace").split("\n"), ""):
        if line.startswith("#"):
            continue
        if line.strip() and "-DOCSTART-" not in line:
            fields = line.split("\t") if "\t" in line else line.split()
            if len(fields) >= 2:
                rows.append((fields[word], fields[label]))
        elif rows:
            text, spans = _joined(rows)
            rows = []
            if not held_out(f"{corpus}:{text}"):
                real = (
                    span
                    for span in spans
                    if text[span.start : span.end].lower() not in _ROLES
                )
                yield Example(text, tuple(real), NAMES)


def _joined(rows: Iterable[tuple[str, str]]) -> tuple[str, tuple[Span, ...]]:
    """Join tokens by spaces; a label without B begins a span after another type."""
    text, spans, previous = "", [], "O"
    for token, label in rows:
        if text:
            text += " "
        kind = _CONLL_TYPES.get(label.partition("-")[2].upper())
        start, text = len(text), text + token
        if kind is not None:
            inside = label[0] == "I" and previous == kind
            if inside and spans:
                spans[-1] = Span(spans[-1].start, len(text), kind)
            else:
                spans.append(Span(start, len(text), kind))
        previous = kind or "O"
    return text, tuple(spans)


_SLOT = re.compile(r"\[(\w+) : ([^\]]*)\]")
_NLU_TYPES = {
    "person": "PERSON",
    "place_name": "LOCATION",
    "business_name": "ORGANIZATION",
}
_NLU_IGNORED = _words("""
app_name artist_name audiobook_author audiobook_name definition_word
    email_address event_name game_name list_name movie_name music_album
    news_topic personal_info playlist_name podcast_name radio_name song_name
    time_zone transport_agency
""")


def assistant_queries(path: Path) -> Iterator[Example]:
    """Read nlu-evaluation-data: lower-case requests with marked slots."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        for row in csv.DictReader(file, delimiter=";"):
            text, spans, at = "", [], 0
            marked = row["answer_annotation"]
            for match in _SLOT.finditer(marked):
                text += marked[at : match.start()]
                start, at = len(text), match.end()
                text += match[2].strip()
                kind = _NLU_TYPES.get(match[1])
                if match[1] in _NLU_IGNORED:
                    kind = IGNORED
                if kind is not None:
                    spans.append(Span(start, len(text), kind))
            text += marked[at:]
            if text and not held_out(f"nlu:{text}"):
                yield Example(text, tuple(spans), NAMES, _none_of(TOPICS))


_SNIPS_TYPES = {
    "artist": "PERSON",
    "city": "LOCATION",
    "country": "LOCATION",
    "state": "LOCATION",
    "geographic_poi": "LOCATION",
    "location_name": "LOCATION",
    "restaurant_name": "ORGANIZATION",
}
_SNIPS_IGNORED = _words("""
album current_location entity_name movie_name object_name playlist
    playlist_owner poi served_dish track
""")


def voice_queries(path: Path) -> Iterator[Example]:
    """Read snips-nlu-benchmark: requests as pieces with entities."""
    data = json.loads(path.read_bytes().decode("utf-8", "replace"))
    for rows in data.values():
        for row in rows:
            text, spans = "", []
            for piece in row["data"]:
                start, text = len(text), text + piece["text"]
                entity = piece.get("entity", "")
                kind = _SNIPS_TYPES.get(entity)
                if entity in _SNIPS_IGNORED:
                    kind = IGNORED
                if kind is not None:
                    spans.append(Span(start, len(text), kind))
            if text and not held_out(f"snips:{text}"):
                yield Example(text, tuple(spans), NAMES, _none_of(TOPICS))


def masked_templates(folder: Path) -> list[str]:
    """Return presidio-research's sentences with slots, each once: ``{{name}}``."""
    found: dict[str, None] = {}
    for path in sorted(folder.glob("*.json")):
        for row in json.loads(path.read_text("utf-8")):
            template = row.get("template_id")
            key = (
                f"presidio:{template}"
                if template is not None
                else f"presidio-masked:{row.get('masked') or row['full_text']}"
            )
            if row.get("masked") and not held_out(key):
                found[row["masked"]] = None
    return list(found)


def health_texts(folder: Path) -> Iterator[Example]:
    """Read what patients and their doctors say: health, told about somebody."""
    csv.field_size_limit(_CSV_FIELD)
    for path in sorted((folder / "counsel-chat").glob("*.csv")):
        yield from _counsel(path)
    for path in sorted((folder / "mts-dialog").glob("*.csv")):
        for row in _rows(path):
            if not held_out(f"mts:{path.name}:{row['ID']}"):
                yield from _cut(row["dialogue"], {"health": 1.0})
                yield from _cut(row["section_text"], {"health": 1.0})
    for path in sorted((folder / "aci-bench").glob("*.csv")):
        for row in _rows(path):
            if not held_out(f"aci:{row['encounter_id']}"):
                yield from _cut(row["dialogue"], {"health": 1.0})
                yield from _cut(row["note"], {"health": 1.0})


def _counsel(path: Path) -> Iterator[Example]:
    """Yield each question once; several answers repeat it."""
    seen = set()
    for row in _rows(path):
        key = row["questionID"]
        if key in seen or held_out(f"counsel:{key}"):
            continue
        seen.add(key)
        topics = {"health": 1.0}
        if re.search(r"LGBTQ|Spiritual|Sexual|Intimacy", row["topics"]):
            topics["special"] = 1.0
        yield from _cut(f"{row['questionTitle']} {row['questionText']}".strip(), topics)
        yield from _cut(row["questionText"].strip(), topics)


def _cut(text: str, topics: dict[str, float]) -> Iterator[Example]:
    """Yield pieces long enough to show what they are about."""
    for start in range(0, max(len(text) - 60, 1), _PIECE):
        piece = text[start : start + _PIECE].strip()
        if len(piece) > 15:
            yield Example(piece, topics=topics)


_WORK_OR_MONEY = re.compile(
    r"bank|account|card|pay|balance|bill|transfer|credit|income|insur|tax|pto|direct",
    re.IGNORECASE,
)


def harmless(folder: Path) -> Iterator[Example]:
    """Read what people ask that tells nothing of anybody."""
    csv.field_size_limit(_CSV_FIELD)
    for path in sorted((folder / "clinc150").glob("data_*.json")):
        yield from _intents(path)
    for path in sorted((folder / "banking77").glob("*.csv")):
        yield from _bank_questions(path)
    for path in sorted((folder / "arena-hard").glob("*.jsonl")):
        yield from _prompts(path)
    for path in sorted((folder / "gsm8k").glob("*.jsonl")):
        for row in _lines(path):
            if not held_out(f"gsm8k:{row['question']}"):
                yield Example(row["question"][:_PIECE], topics=_none_of(TOPICS))


def _bank_questions(path: Path) -> Iterator[Example]:
    known = _none_of(("health", "special", "legal", "hr"))
    for row in _rows(path):
        if not held_out(f"banking:{row['text']}"):
            yield Example(row["text"], (), frozenset({"PERSON"}), known)


def _intents(path: Path) -> Iterator[Example]:
    for rows in json.loads(path.read_text("utf-8")).values():
        for text, _ in rows:
            if held_out(f"clinc:{text}"):
                continue
            money = _WORK_OR_MONEY.search(text) is not None
            known = ("health", "special", "legal") if money else TOPICS
            yield Example(text, topics=_none_of(known))


def _prompts(path: Path) -> Iterator[Example]:
    for row in _lines(path):
        if held_out(f"arena:{row.get('uid') or row.get('question_id')}"):
            continue
        text = row.get("prompt") or row["turns"][0]["content"]
        for start in range(0, min(len(text), 3 * _PIECE), _PIECE):
            yield Example(text[start : start + _PIECE], topics=_none_of(TOPICS))


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        yield from csv.DictReader(file)


def _lines(path: Path) -> Iterator[dict[str, object]]:
    for line in path.read_text("utf-8").splitlines():
        if line.strip():
            yield json.loads(line)


def _none_of(topics: Iterable[str]) -> dict[str, float]:
    return dict.fromkeys(topics, 0.0)
