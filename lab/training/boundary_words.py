"""Makes the list of words that may be sent in a conversation that was kept local.

    python lab/training/boundary_words.py --data ../shared/data --out FOLDER

Writes ``words.txt`` (sorted, one per line) and prints the sources for the card. A word
is listed if ``K`` public English texts have it in lower case, if no more of them have
it capitalised inside a sentence, and if it is not a name that the detectors know. So a
name is listed only if ten unrelated texts have it in lower case.

Omitted are clinc150, nlu-evaluation-data, xsid and snips (people and places in lower
case), aci-bench (spoken, names in lower case), tweets, forums and users' prompts
(counsel-chat, arena-hard, pupa), and everything without an open licence.
"""

import argparse
import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from curtilage.client.detection import wordlists

K: Final = 10
_CSV_FIELD: Final = 10_000_000
_JSONL: Final = (  # the English rows' "text" in each ``data.jsonl``
    *("chatterbot-corpus", "code-prompts", "covid-faq", "legalbench-part"),
    *("medqa-vignettes", "medquad", "mmlu-professional", "pubmedqa", "tatoeba-short"),
    *("tatqa-tables", "tico19-dialogue", "wikitablequestions", "xquad-questions"),
)
_TEXT_KEYS: Final = {
    "gsm8k/dev.jsonl": ("question", "answer"),
    "routing/niv2_intents/niv2_intents.jsonl": ("text",),
    "routing/zeroeval/labels_derived.jsonl": ("prompt",),
}
_TABLES: Final = {
    "banking77/train.csv": ("text",),
    "mts-dialog/MTS-Dialog-TrainingSet.csv": ("section_text", "dialogue"),
    "mts-dialog/MTS-Dialog-ValidationSet.csv": ("section_text", "dialogue"),
    "routing/routellm/gsm8k_responses.csv": (
        "prompt",
        "mistralai/Mixtral-8x7B-Instruct-v0.1_response",
        "gpt-4-1106-preview_response",
    ),
}
# Sentences as labelled tokens; marked names are ignored.
_CONLL: Final = (
    "crossner/*.txt",
    "data__wikigold__CONLL-format__data__wikigold.conll.txt",
    "data__SEC-filings__CONLL-format__data__train__FIN5.txt",
)
_SMALL: Final = re.compile(r"(?<![^\s(\"'\[/-])[a-z]+(?:'[a-z]+)?(?![\w@])")
_CAPITAL: Final = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+(?:'[a-z]+)?(?![\w@])")
_NAMES: Final = (
    wordlists.GIVEN
    | wordlists.PLACES
    | wordlists.REGIONS
    | wordlists.ORGANISATIONS
    | wordlists.NOT_IN_LOWER_CASE
) - wordlists.COMMON


def texts(data: Path) -> Iterator[tuple[str, str]]:
    """Yield each text with the name of its set."""
    yield from _of_json(data)
    yield from _of_tables(data)
    for pattern in _CONLL:
        for path in sorted((data / "ner-corpora").glob(pattern)):
            for sentence in path.read_text("utf-8").split("\n\n"):
                fields = [line.split() for line in sentence.split("\n")]
                words = (each[0] for each in fields if each[1:] and each[-1] == "O")
                yield "ner-corpora", " ".join(words)


def _of_json(data: Path) -> Iterator[tuple[str, str]]:
    for name in _JSONL:
        for row in _rows(data / name / "data.jsonl"):
            if str(row["lang"]) == "en":
                yield name, str(row["text"])
    for name, keys in _TEXT_KEYS.items():
        for row in _rows(data / name):
            yield name, " ".join(str(row[key]) for key in keys)


def _of_tables(data: Path) -> Iterator[tuple[str, str]]:
    for name, columns in _TABLES.items():
        for row in _table(data / name):
            yield name, " ".join(row[column] or "" for column in columns)
    for path in sorted((data / "routing/routellm/mmlu").glob("*.csv")):
        for row in _table(path):
            yield "routing/routellm/mmlu", row["prompt"] or ""


def listed(data: Path) -> tuple[list[str], Counter[str]]:
    """Return the words, sorted, and the number of different texts in each set."""
    small, capital, read = Counter[str](), Counter[str](), Counter[str]()
    for name, text in sorted(set(texts(data))):
        read[name] += 1
        plain = text.translate({0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"'})
        small.update(set(_SMALL.findall(plain)))
        capital.update({each.lower() for each in _CAPITAL.findall(plain)})
    words = sorted(
        word
        for word, count in small.items()
        if count >= max(K, capital[word])
        and word not in _NAMES
        and (len(word) > 1 or word in {"a", "i"})
    )
    return words, read


def _rows(path: Path) -> Iterator[dict[str, object]]:
    with path.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines if line.strip())


def _table(path: Path) -> Iterator[dict[str, str | None]]:
    with path.open(encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines)


def main() -> int:
    """Write the list; print the sources."""
    csv.field_size_limit(_CSV_FIELD)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    said = parser.parse_args()
    words, read = listed(said.data)
    (said.out / "words.txt").write_text("\n".join(words) + "\n", "ascii")
    print(f"{len(words)} words of {read.total()} texts")
    for name, count in sorted(read.items()):
        print(f"| {name} | {count} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
