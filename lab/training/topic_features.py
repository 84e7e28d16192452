"""The shipped encoder's states for texts: its last layers, computed as in the client.

    python lab/training/topic_features.py --model WEIGHTS --data ../shared/data \
        --out DIR

The topic head is learned on an encoder that does not change, bit for bit, so the states
are computed only once. ``DIR`` gets ``texts.jsonl`` (keys and topics) and
``pooled.f16``: for the layers in ``LAYERS``, the mean of all pieces' states, then the
maximum. With ``--multilingual``, the texts are those of the English head and further
ones in the other languages.
"""

import argparse
import json
import os
import random  # training must repeat; nothing secret is drawn
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import corpora
import multilingual_corpora
import numpy as np
import onnx
from batches import tokenizer_of
from examples import Example
from labels import TOPICS
from language_sentences import LANGUAGES, Sentences
from sentences import ENTITY_SENTENCES
from synthetic import Filler, translated, without_names
from topics import topic_examples

LAYERS = (3, 5)  # of six, counted from 0
WIDTH = 384
POOLED = 2 * len(LAYERS) * WIDTH
_HEALTH, _HARMLESS, _GENERAL, _REQUESTS = 7000, 9000, 16000, 1500
_NAMED, _OWN = 3500, 16000
_AGAIN = 0.3  # share of texts with names that are also read with the names replaced
_OWN_OF_A_LANGUAGE = 4500
_NAMED_OF_A_LANGUAGE = 800
_TALK_OF_A_LANGUAGE = 2400


def state_names(model: onnx.ModelProto) -> list[str]:
    """Return the names of the outputs of the blocks in ``LAYERS``."""
    ends = {
        node.input[1]: node.output[0]
        for node in model.graph.node
        if node.op_type == "LayerNormalization"
    }
    return [ends[f"layers.{layer}.outer_norm.w"] for layer in LAYERS]


class Encoder:
    """The encoder of ``guard.onnx``, with its layers' states as outputs."""

    def __init__(self, folder: Path) -> None:
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read as the next line runs
        import onnxruntime  # noqa: PLC0415

        model = onnx.load(folder / "guard.onnx")
        self._names = state_names(model)
        for name in self._names:
            model.graph.output.append(
                onnx.helper.make_tensor_value_info(
                    name, onnx.TensorProto.FLOAT, ["b", "s", WIDTH]
                )
            )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # short texts: a second thread mostly waits
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._tokenizer = tokenizer_of(folder / "tokenizer.json")

    def pooled(self, text: str) -> np.ndarray:
        """Return the means, then the maxima of the states: ``POOLED`` numbers."""
        ids = np.array([self._tokenizer.encode(text).ids], dtype=np.int64)
        found = self._session.run(self._names, {"ids": ids, "mask": np.ones_like(ids)})
        states = np.concatenate([each[0] for each in found], axis=-1)
        return np.concatenate([states.mean(0), states.max(0)]).astype(np.float16)


def examples(data: Path, source: random.Random) -> Iterator[Example]:
    """Yield the examples for training and tuning the head."""
    yield from _some(source, corpora.health_texts(data), _HEALTH)
    yield from _some(source, corpora.harmless(data), _HARMLESS)
    yield from _some(source, corpora.general(data), _GENERAL)
    requests = [
        *(
            each
            for path in sorted((data / "nlu-evaluation-data").glob("*.csv"))
            for each in corpora.assistant_queries(path)
        ),
        *(
            each
            for path in sorted((data / "snips-nlu-benchmark").glob("train_*.json"))
            for each in corpora.voice_queries(path)
        ),
    ]
    yield from _some(source, requests, _REQUESTS)
    yield from _named(data, source)
    yield from topic_examples(source, _OWN)


def other_languages(data: Path, source: random.Random) -> Iterator[Example]:
    """Yield further examples for training and tuning the multilingual head."""
    for language in LANGUAGES:
        sentences = Sentences(language, source)
        found = [
            *sentences.topic_examples(_OWN_OF_A_LANGUAGE),
            *sentences.named_examples(_NAMED_OF_A_LANGUAGE, again=_AGAIN),
        ]
        shaken = [multilingual_corpora.shaken(source, each) for each in found]
        yield from {each.text: each for each in shaken}.values()
        # There are few, so each counts more than once.
        for each in sentences.talk_examples(_TALK_OF_A_LANGUAGE):
            yield multilingual_corpora.shaken(source, each)
    yield from multilingual_corpora.impersonal(data, english=False)
    yield from multilingual_corpora.symptoms(data)


# Words for private affairs in a sentence with a name.
_AFFAIRS = re.compile(
    r"pain|complain|pregnan|fired|allerg|patient|admitt|custom|diagnos|landlord|boss|"
    r"salary|plaintiff|witness|attorney|owes|religio|nrp|nationality|lonely|interview|"
    r"review|promoted|die[sd]|discharge|deadline|prescri|clinic|hospital|nurse|doctor|"
    r"lawyer|deposit|bank|tenant|kid|will\b|muslim|saudi",
    re.IGNORECASE,
)


def _named(data: Path, source: random.Random) -> Iterator[Example]:
    """Yield sentences that name a person and disclose nothing more."""
    others = map(translated, corpora.masked_templates(data / "presidio-research"))
    lines = [line for line in (*others, *ENTITY_SENTENCES) if not _AFFAIRS.search(line)]
    filler, nothing = Filler(source), dict.fromkeys(TOPICS, 0.0)
    for _ in range(_NAMED):
        line = source.choice(lines)
        named = filler.fill(line)
        if source.random() < _AGAIN:
            named = without_names(named)
        yield Example(named.text, topics=nothing, key=f"named:{line}")


def _some(
    source: random.Random, found: Iterator[Example] | list[Example], most: int
) -> list[Example]:
    """Return at most so many, without duplicates, a fair share of every corpus."""
    by_corpus: dict[str, list[Example]] = {}
    for each in {each.text: each for each in found if each.text.strip()}.values():
        by_corpus.setdefault(each.key.partition(":")[0], []).append(each)
    chosen: list[Example] = []
    for left, name in zip(
        range(len(by_corpus), 0, -1),
        sorted(by_corpus, key=lambda name: len(by_corpus[name])),
        strict=True,
    ):
        rows = by_corpus[name]
        source.shuffle(rows)
        chosen += rows[: (most - len(chosen)) // left]
    return chosen


def main() -> int:
    """Write the texts' annotations and states; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--multilingual", action="store_true")
    arguments = parser.parse_args()
    encoder, out = Encoder(arguments.model), arguments.out
    out.mkdir(parents=True, exist_ok=True)
    source = random.Random(arguments.seed)
    rows = list(examples(arguments.data, source))
    if arguments.multilingual:
        rows += other_languages(arguments.data, source)
    with (
        (out / "pooled.f16").open("wb") as pooled,
        (out / "texts.jsonl").open("w") as texts,
    ):
        for at, each in enumerate(rows):
            pooled.write(encoder.pooled(each.text).tobytes())
            topics = [each.topics.get(name, -1.0) for name in TOPICS]
            texts.write(json.dumps({"key": each.key, "topics": topics}) + "\n")
            if at % 5000 == 0:
                print(f"{at} of {len(rows)}", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
