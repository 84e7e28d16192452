"""Measures an exported model on the data that was held out of training.

    python lab/training/measure.py --model WEIGHTS --data ../shared/data

It reports exact spans (precision, recall, F1) and recall by any overlap for each
corpus; and for topics, the share found and the false alarms. Prints a table and writes
JSON. With ``--multilingual``, the sets are those of the other languages, each reported
separately.
"""

import argparse
import json
import os
import random  # the same sample every time
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import corpora
import language_sentences
import multilingual_corpora
import numpy as np
import splits
import topics
from batches import tokenizer_of, words_of
from examples import Example, Span
from labels import IGNORED, LABELS, TOPICS
from language_sentences import LANGUAGES, Sentences
from synthetic import entity_examples

_SAMPLE = 1500


class Model:
    """The exported files, run as in the client: batch size 1."""

    def __init__(self, folder: Path, knob: float) -> None:
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read as the next line runs
        import onnxruntime  # noqa: PLC0415

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(folder / "guard.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self._tokenizer = tokenizer_of(folder / "tokenizer.json")
        self._knob = knob
        described = json.loads((folder / "guard.json").read_text())
        shares = np.array([described["topic_thresholds"][name] for name in TOPICS])
        self._middles = np.log(shares / (1 - shares))

    def __call__(self, text: str) -> tuple[list[Span], dict[str, float]]:
        """Return the spans, and the score of each topic, over 100."""
        made = self._tokenizer.encode(text)
        ids = np.array([made.ids], dtype=np.int64)
        entities, about = self._session.run(
            None, {"ids": ids, "mask": np.ones_like(ids)}
        )
        logits = entities[0]
        logits[:, 0] -= self._knob
        best = logits.argmax(-1)
        spans = _spans(
            (start, end, LABELS[best[at]]) for at, start, end in words_of(text, made)
        )
        probabilities = 1 / (1 + np.exp(-about[0] + self._middles))
        return spans, dict(zip(TOPICS, map(float, probabilities), strict=True))


def _spans(words: Iterable[tuple[int, int, str]]) -> list[Span]:
    """Return spans from the words' labels and positions."""
    spans: list[Span] = []
    kind = ""
    for start, end, label in words:
        mark, _, new = label.partition("-")
        if mark == "I" and new == kind:
            spans[-1] = Span(spans[-1].start, end, kind)
        elif mark != "O":
            spans.append(Span(start, end, new))
        kind = new
    return spans


def _scores(model: Model, examples: Sequence[Example]) -> dict[str, object]:
    right: Counter[str] = Counter()
    said: Counter[str] = Counter()
    true: Counter[str] = Counter()
    touched: Counter[str] = Counter()
    for example in examples:
        found, _ = model(example.text)
        ignored = [s for s in example.spans if s.type == IGNORED]
        gold = {s for s in example.spans if s.type in example.known}
        for span in found:
            if span.type in example.known and not any(_meet(span, s) for s in ignored):
                said[span.type] += 1
        for span in gold:
            true[span.type] += 1
            right[span.type] += span in set(found)
            touched[span.type] += any(
                _meet(span, s) and s.type == span.type for s in found
            )
    table: dict[str, object] = {"n": len(examples)}
    for kind in true:
        precision = right[kind] / max(said[kind], 1)
        recall = right[kind] / true[kind]
        table[kind] = {
            "n": true[kind],
            "precision": round(precision, 3),
            "recall": round(recall, 3),
            "f1": round(2 * precision * recall / max(precision + recall, 1e-9), 3),
            "overlap_recall": round(touched[kind] / true[kind], 3),
        }
    return table


def _meet(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end


def main() -> int:
    """Measure; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--knob", type=float, default=1.0)
    parser.add_argument("--sample", type=int, default=_SAMPLE)
    parser.add_argument("--multilingual", action="store_true")
    arguments = parser.parse_args()
    model = Model(arguments.model, arguments.knob)
    sets, kinds = _held_out, _kinds
    if arguments.multilingual:
        sets, kinds = _held_out_by_language, _kinds_by_language
    tables: dict[str, object] = {}
    for name, examples in sets(arguments.data).items():
        chosen = _sampled(examples, arguments.sample)
        tables[name] = _scores(model, chosen)
        print(name, json.dumps(tables[name]), flush=True)
    tables["topics"] = _topics(model, kinds(arguments.data), arguments.sample)
    print("topics", json.dumps(tables["topics"]))
    if arguments.json:
        arguments.json.write_text(json.dumps(tables, indent=1) + "\n")
    return 0


def _sampled(examples: list[Example], most: int) -> list[Example]:
    random.Random(7).shuffle(examples)
    return examples[:most]


def _held_out(data: Path) -> dict[str, list[Example]]:
    """Read the corpora again, keeping only what training omitted."""
    ner = data / "ner-corpora"
    with _inverted():
        sets = {
            name: [
                each
                for path in sorted(ner.glob(pattern))
                for each in corpora.conll(path, path.name.split("__")[1].lower())
            ]
            for name, pattern in (
                ("wnut17", "*WNUT17*"),
                ("wikigold", "*wikigold*"),
                ("sec", "*FIN*"),
                ("btc", "*BTC*"),
            )
        }
        sets["uner-ewt"] = [
            each
            for path in sorted((data / "uner-ewt").glob("*.iob2"))
            for each in corpora.conll(path, "uner-ewt", word=1)
        ]
        sets["nlu"] = [
            each
            for path in sorted((data / "nlu-evaluation-data").glob("*.csv"))
            for each in corpora.assistant_queries(path)
        ]
        templates = corpora.masked_templates(data / "presidio-research")
    german = data / "uner-german-pud"
    sets["german (not trained)"] = [
        each
        for path in sorted(german.glob("*.iob2"))
        for each in corpora.conll(path, "german-all", word=1)
    ]
    if templates:
        source = random.Random(11)
        sets["presidio templates, refilled"] = [
            each for each in entity_examples(source, 6000, templates) if each.spans
        ][:1500]
    return {name: rows for name, rows in sets.items() if rows}


def _held_out_by_language(data: Path) -> dict[str, list[Example]]:
    """Read the sets in other languages again, and our own sentences."""
    with _inverted():
        sets = {
            f"{language}: {each.name}": list(
                multilingual_corpora.marked(data, each.name, {language})
            )
            for each in multilingual_corpora.MARKED
            for language in each.languages.split()
        }
        sets[f"es: {multilingual_corpora.CLINICAL}"] = list(
            multilingual_corpora.clinical(data)
        )
        for language in LANGUAGES:
            sentences = Sentences(language, random.Random(11))
            sets[f"{language}: own sentences"] = [
                each for each in sentences.entity_examples(1500) if each.spans
            ]
    return {name: rows for name, rows in sorted(sets.items()) if rows}


_READERS = (corpora, topics, multilingual_corpora, language_sentences)


class _inverted:  # noqa: N801 - used as a function
    """Inside this context, readers yield what was held out instead."""

    def __enter__(self) -> None:
        self._real: Callable[[str], bool] = splits.held_out
        for each in _READERS:
            each.held_out = lambda key: not self._real(key)

    def __exit__(self, *_: object) -> None:
        for each in _READERS:
            each.held_out = self._real


_SCORES = (20, 35, 50, 65)
_LEAST_TEXTS = 20


def _kinds(data: Path) -> dict[str, list[Example]]:
    """Read held-out texts with known topics."""
    with _inverted():
        return {
            "patients and those who care for them": list(corpora.health_texts(data)),
            "own sentences": list(topics.topic_examples(random.Random(5), 6000)),
            "requests": list(corpora.harmless(data)),
            "talk of the subject": list(corpora.general(data)),
        }


def _kinds_by_language(data: Path) -> dict[str, list[Example]]:
    """Read those in other languages: our own, patients' texts, and the data sets'."""
    kinds: dict[str, list[Example]] = {}
    with _inverted():
        for language in LANGUAGES:
            own = Sentences(language, random.Random(5)).topic_examples(3000)
            kinds[f"{language}: own sentences"] = list(own)
        for name, rows in (
            ("patients", multilingual_corpora.symptoms(data)),
            ("data sets", multilingual_corpora.impersonal(data, english=False)),
        ):
            for each in rows:
                language = each.key.partition(":")[0].rpartition("-")[2]
                kinds.setdefault(f"{language}: {name}", []).append(each)
    return dict(sorted(kinds.items()))


def _topics(
    model: Model, kinds: dict[str, list[Example]], most: int
) -> dict[str, object]:
    """Return for each kind of text and each topic the share that reaches a score.

    Scores are those of the client, with the threshold at 50.
    """
    table: dict[str, object] = {}
    for name, rows in kinds.items():
        scored = [(row, model(row.text)[1]) for row in _sampled(rows, most)]
        for value, about in ((1.0, "somebody"), (0.0, "no person")):
            shares = {
                topic: _shares(scored, topic, value)
                for topic in TOPICS
                if sum(row.topics.get(topic) == value for row, _ in scored)
                >= _LEAST_TEXTS
            }
            if shares:
                table[f"{name}, {about}"] = shares
    return table


def _shares(
    scored: Sequence[tuple[Example, dict[str, float]]], topic: str, value: float
) -> dict[str, float]:
    known = [found[topic] for row, found in scored if row.topics.get(topic) == value]
    return {
        str(score): round(sum(each * 100 >= score for each in known) / len(known), 4)
        for score in _SCORES
    }


if __name__ == "__main__":
    sys.exit(main())
