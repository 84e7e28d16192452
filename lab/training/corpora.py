"""Readers of the provided corpora; each omits what is held out.

No corpus is committed: the folder is named on the command line, and the model card has
the digest of every file that was read.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from examples import Example, Span
from labels import IGNORED, TOPICS
from splits import held_out

NAMES = frozenset({"PERSON", "LOCATION", "ORGANIZATION"})
_CSV_FIELD = 10_000_000
_PIECE = 420  # characters of a long text per example

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


# SEC filings mark roles of the parties as people and organisations.
_ROLES = _words("""
agent bank borrower borrowers company lender lenders
""")


def conll(path: Path, corpus: str, *, word: int = 0) -> Iterator[Example]:
    """Read token-per-line files: the label is the last column, or the third in iob2.

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
                yield Example(
                    text, tuple(spans), NAMES, _none_of(TOPICS), f"nlu:{text}"
                )


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
                yield Example(
                    text, tuple(spans), NAMES, _none_of(TOPICS), f"snips:{text}"
                )


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
    """Read texts by patients and their doctors, about a person's health."""
    csv.field_size_limit(_CSV_FIELD)
    labels = {"health": 1.0, "finance": 0.0, "legal": 0.0, "hr": 0.0}
    for path in sorted((folder / "counsel-chat").glob("*.csv")):
        yield from _counsel(path)
    for path in sorted((folder / "mts-dialog").glob("*.csv")):
        for row in _rows(path):
            key = f"mts:{path.name}:{row['ID']}"
            if not held_out(key):
                yield from _cut(row["dialogue"], labels, key)
                yield from _cut(row["section_text"], labels, key)
    yield from _encounters(folder / "aci-bench", labels)
    for row in _english(folder, "xlinghealth"):
        key = f"xlinghealth:{row['text']}"
        if not held_out(key) and _OWN_COMPLAINT.search(row["text"]):
            yield from _cut(row["text"], {"health": 1.0}, key)


def _encounters(folder: Path, labels: dict[str, float]) -> Iterator[Example]:
    for path in sorted(folder.glob("*.csv")):
        for row in _rows(path):
            key = f"aci:{row['encounter_id']}"
            if not held_out(key):
                yield from _cut(row["dialogue"], labels, key)
                yield from _cut(row["note"], labels, key)


# Some of the consumers' questions describe a complaint, others are general. Those with
# a personal word and neither of the two are omitted ("can i take vitamins with ...").
_PERSONAL = re.compile(
    r"(?<!\w)(?:i|i'm|ive|my|me|we|our|he|she|his|her)(?!\w)", re.IGNORECASE
)
_OWN_COMPLAINT = re.compile(
    r"(?<!\w)(?:my (?!question|name|report|thesis)|"
    r"i (?:have|had|am (?!looking|someone|writing|from|a student|composing)|was|get|"
    r"feel|take|cannot|burnt|noticed?)|i&apos;(?:ve|m (?!writing))|she|he|her|his)"
    r"(?!\w)",
    re.IGNORECASE,
)


def _counsel(path: Path) -> Iterator[Example]:
    """Yield each question once, although there are several answers."""
    seen = set()
    for row in _rows(path):
        key = f"counsel:{row['questionID']}"
        if key in seen or held_out(key):
            continue
        seen.add(key)
        topics = {"health": 1.0, "finance": 0.0}
        if not re.search(r"Legal|Ethics|Violence|Dissolution", row["topics"]):
            topics["legal"] = 0.0
        if not re.search(r"Work|Career|Ethics", row["topics"]):
            topics["hr"] = 0.0
        if re.search(r"LGBTQ|Spiritual|Sexual|Intimacy", row["topics"]):
            topics["special"] = 1.0
        text = f"{row['questionTitle']} {row['questionText']}".strip()
        yield from _cut(text, topics, key)
        yield from _cut(row["questionText"].strip(), topics, key)


def _cut(text: str, topics: dict[str, float], key: str) -> Iterator[Example]:
    """Yield pieces that are long enough to show their subject."""
    for start in range(0, max(len(text) - 60, 1), _PIECE):
        piece = text[start : start + _PIECE].strip()
        if len(piece) > 15:
            yield Example(piece, topics=topics, key=key)


# General questions, by people who study or look something up. Exam cases resemble
# patients but are general; a share of them is used.
_GENERAL = (
    "medquad", "mmlu-professional", "covid-faq", "legalbench-part", "xquad-questions",
    "code-prompts", "tatqa-tables", "wikitablequestions", "chatterbot-corpus",
    "medqa-vignettes",
)  # fmt: skip


def general(folder: Path) -> Iterator[Example]:
    """Read texts about a subject and about no person, so without our topics."""
    for name in _GENERAL:
        for row in _english(folder, name):
            key = f"{name}:{row['text']}"
            if not held_out(key):
                yield from _pieces(row["text"], key)
    for row in _english(folder, "pubmedqa"):
        # A question and its abstract are one document, but are measured separately.
        keys = [f"pubmedqa:{row['text']}", f"pubmedqa:{row['context']}"]
        if not any(map(held_out, keys)):
            yield from _pieces(row["text"], keys[0])
            yield from _pieces(row["context"], keys[0])
    for row in _english(folder, "xlinghealth"):
        key = f"xlinghealth:{row['text']}"
        if not held_out(key) and not _PERSONAL.search(row["text"]):
            yield from _pieces(row["text"], key)


_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_SENTENCES = 4


def _pieces(text: str, key: str) -> Iterator[Example]:
    """Yield a text as the client reads it: in windows, with some sentences alone."""
    nothing = _none_of(TOPICS)
    for start in range(0, len(text), _PIECE):
        yield Example(text[start : start + _PIECE], topics=nothing, key=key)
    sentences = _SENTENCE.split(text)
    if len(sentences) > 1:
        for sentence in sentences[:_SENTENCES]:
            if sentence.strip():
                yield Example(sentence, topics=nothing, key=key)


def _english(folder: Path, name: str) -> Iterator[dict[str, str]]:
    for row in json_lines(folder / name / "data.jsonl"):
        if row["lang"] == "en":
            yield {key: str(value) for key, value in row.items()}


def harmless(folder: Path) -> Iterator[Example]:
    """Read questions that disclose nothing about a person."""
    csv.field_size_limit(_CSV_FIELD)
    for path in sorted((folder / "clinc150").glob("data_*.json")):
        yield from _intents(path)
    for path in sorted((folder / "banking77").glob("*.csv")):
        yield from _bank_questions(path)
    for path in sorted((folder / "arena-hard").glob("*.jsonl")):
        yield from _prompts(path)
    for path in sorted((folder / "gsm8k").glob("*.jsonl")):
        for row in json_lines(path):
            key = f"gsm8k:{row['question']}"
            if not held_out(key):
                text = str(row["question"])[:_PIECE]
                yield Example(text, topics=_none_of(TOPICS), key=key)


# A bank customer's question ("why was I charged twice") discloses no more about the
# customer's money than that there is an account: it may be sent, and is not a topic.
def _bank_questions(path: Path) -> Iterator[Example]:
    for row in _rows(path):
        key, text = f"banking:{row['text']}", row["text"]
        if not held_out(key):
            known = frozenset({"PERSON"})
            yield Example(text, (), known, _none_of(TOPICS), key)


def _intents(path: Path) -> Iterator[Example]:
    for rows in json.loads(path.read_text("utf-8")).values():
        for text, _ in rows:
            key = f"clinc:{text}"
            if not held_out(key):
                yield Example(text, topics=_none_of(TOPICS), key=key)


def _prompts(path: Path) -> Iterator[Example]:
    for row in json_lines(path):
        key = f"arena:{row.get('uid') or row.get('question_id')}"
        if held_out(key):
            continue
        text = row.get("prompt") or row["turns"][0]["content"]
        for start in range(0, min(len(text), 3 * _PIECE), _PIECE):
            piece = text[start : start + _PIECE]
            yield Example(piece, topics=_none_of(TOPICS), key=key)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        yield from csv.DictReader(file)


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Read a file with one object per line."""
    for line in path.read_text("utf-8").split("\n"):
        if line.strip():
            yield json.loads(line)


def _none_of(topics: Iterable[str]) -> dict[str, float]:
    return dict.fromkeys(topics, 0.0)
