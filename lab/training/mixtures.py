"""The training data of each guard: texts with marked names, and with known topics."""

import random  # training must repeat; nothing secret is drawn
from collections.abc import Iterator
from pathlib import Path

import corpora
import multilingual_corpora
from examples import Example
from language_sentences import LANGUAGES, Sentences
from multilingual_corpora import shaken
from synthetic import entity_examples
from topics import topic_examples

Mixture = tuple[list[Example], list[Example]]  # names, then topics


def english(data: Path, source: random.Random) -> Mixture:
    """Return the training data of the English guard."""
    names = list(_entity_corpora(data))
    templates = corpora.masked_templates(data / "presidio-research")
    source.shuffle(names)
    plain = [each for each in names if not each.spans]
    names = [each for each in names if each.spans] + plain[: len(names) // 2]
    names += entity_examples(source, 26000, templates)
    topics = list(corpora.health_texts(data))
    source.shuffle(topics)
    health = topics[:4500]
    harmless = list(corpora.harmless(data))
    source.shuffle(harmless)
    topics = health + harmless[:9000] + list(topic_examples(source, 12000))
    return names, topics


def _entity_corpora(data: Path) -> Iterator[Example]:
    ner = data / "ner-corpora"
    for path in sorted(ner.glob("*.conll*")) + sorted(ner.glob("*FIN5*")):
        corpus = path.name.split("__")[1].lower()
        yield from corpora.conll(path, corpus)
    for path in sorted((ner / "crossner").glob("*.txt")):
        yield from corpora.conll(path, "crossner")
    for path in sorted((data / "uner-ewt").glob("*.iob2")):
        yield from corpora.conll(path, "uner-ewt", word=1)
    for path in sorted((data / "nlu-evaluation-data").glob("*.csv")):
        yield from corpora.assistant_queries(path)
    for path in sorted((data / "snips-nlu-benchmark").glob("train_*.json")):
        yield from list(corpora.voice_queries(path))[:500]


def multilingual(data: Path, source: random.Random) -> Mixture:
    """Return that of the multilingual guard: some of the English data, and more."""
    names, topics = english(data, source)
    source.shuffle(names)
    source.shuffle(topics)
    names, topics = names[:14000], topics[:12000]
    names += multilingual_corpora.names(data)
    names += multilingual_corpora.clinical(data)
    for language in LANGUAGES:
        sentences = Sentences(language, source)
        names += sentences.entity_examples(4500)
        topics += sentences.topic_examples(2600)
    topics += multilingual_corpora.impersonal(data)
    topics += multilingual_corpora.symptoms(data)
    return (
        [shaken(source, each) for each in names],
        [shaken(source, each) for each in topics],
    )
