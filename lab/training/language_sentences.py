"""Our own sentences in other languages: some with names, some about private affairs.

They are data (``languages/*.toml``), one per line or between bars. ``entities`` have
slots. For each topic, ``_tell`` discloses a person's own affairs, and ``_ask`` asks
about the same without concerning a person; ``have_tell`` and ``have_ask`` are put
around ``things_health``; ``plain`` is neither. ``talk`` is impersonal small talk, as
typed; ``talk_health`` and ``talk_special`` are personal. The keys are part of the split
into training and held-out lines, so they keep their names.
"""

import random  # training must repeat; nothing secret is drawn
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from examples import Example
from faker import Faker
from labels import TOPICS
from people import People
from splits import held_out
from synthetic import EVERYTHING, filled, joined, without_names

LANGUAGES: Final = ("de", "fr", "es", "it", "nl", "pt")
_OTHER_TOPICS: Final = TOPICS[1:]
# Some of these sentences name a firm, a party or a belief, but none is marked.
_KNOWN_IN_DISCLOSED: Final = frozenset({"PERSON", "AGE", "ADDRESS"})
_NOTHING: Final = dict.fromkeys(TOPICS, 0.0)
_TRIES = 5
# Stems of six languages for private affairs in a sentence with a name.
_AFFAIRS = re.compile(
    r"pati|pazien|pacien|schmerz|diab|dolor|doul|dor\b|pijn|miet|loyer|alquil|affitt|"
    r"huur|alug|renda|chef|jef[ea]|capo\b|baas|bazin|patron|arzt|ärzt|m[ée]d[ei]c|dokt|"
    r"dott|doct|dout|klin|cl[ií]n|ospedal|h[ôo]spit|ziekenh|kläg|plaign|demand|attor|"
    r"eiser|autor|zeug|témo|testi|test[ei]mu|getuig|geküns?d|kündig|beförd|promo|licenc|"
    r"despe?d|ontsl|konto|compte|cuenta|conto\b|rekening|conta\b|zahl|pay|pag|betaal|"
    r"schuld|dett|deud|debit|nrp|kaution|caution|fianza|cauzion|cauç|borg|versich|assur|"
    r"segur|assic|verzek|tribun|gericht|juzg|rechter|\{age|\{org|beschwer|plaint|queja|"
    r"reclam|klacht|queix|kollege|collèg|colleg|colega|tod\b|mort|muert|dood",
    re.IGNORECASE,
)


def _data(language: str) -> dict[str, str | list[str]]:
    path = Path(__file__).parent / "languages" / f"{language}.toml"
    return tomllib.loads(path.read_text("utf-8"))


def _split(text: str) -> list[str]:
    parts = text.split("\n" if "\n" in text else "|")
    return [part.strip() for part in parts if part.strip()]


def lines_of(language: str) -> list[str]:
    """Return every line in a language's file, without names filled in."""
    values = _data(language).values()
    return [
        line
        for each in values
        for line in (_split(each) if isinstance(each, str) else each)
    ]


class Sentences:
    """One language's sentences except those held out; a seed determines the draws.

    Args:
        language: one of ``LANGUAGES``.
        source: the random source.
    """

    def __init__(self, language: str, source: random.Random) -> None:
        self._language, self._source = language, source
        self._data = _data(language)
        self._fakers = [Faker(locale) for locale in self._data["locales"]]
        for faker in self._fakers:
            faker.seed_instance(source.randrange(1 << 30))
        self._people = People(source)
        self._disclosed = {
            name: self._lines(f"{name}_tell") for name in (*TOPICS, "have")
        }
        self._asked = {
            name: self._lines(f"{name}_ask") for name in (*_OTHER_TOPICS, "have")
        }
        self._plain = self._lines("plain")
        self._things = self._lines("things_health")

    def _lines(self, name: str) -> list[str]:
        return [
            line
            for line in _split(str(self._data[name]))
            if not held_out(f"pack:{self._language}:{name}:{line}")
        ]

    def entity_examples(self, count: int) -> Iterator[Example]:
        """Yield ``count`` sentences: most with names, some joined, some without."""
        source, sentences = self._source, self._lines("entities")
        disclosed = [line for name in TOPICS for line in self._disclosed[name]]
        nameless = [
            *self._plain,
            *(line for name in _OTHER_TOPICS for line in self._asked[name]),
        ]
        for _ in range(count):
            draw = source.random()
            if draw < 0.13:
                yield Example(source.choice(nameless), (), EVERYTHING)
            elif draw < 0.2:
                yield Example(source.choice(disclosed), (), _KNOWN_IN_DISCLOSED)
            elif draw < 0.4:
                first = self._filled(source.choice(sentences))
                second = self._filled(source.choice(sentences + nameless * 2))
                yield joined(first, second, source.choice((" ", "\n", ". ", "\n\n")))
            else:
                yield self._filled(source.choice(sentences))

    def topic_examples(self, count: int) -> Iterator[Example]:
        """Yield ``count`` sentences, slightly more than half of them about a person.

        A sentence about one topic may concern another one too, so only the certain
        topics are labelled.
        """
        source, topics = self._source, _NOTHING
        # Among the held-out lines, some topics have none.
        topics_disclosed = [
            name for name in ("special", *_OTHER_TOPICS) if self._disclosed[name]
        ]
        asking = [name for name in _OTHER_TOPICS if self._asked[name]]
        for _ in range(count):
            draw = source.random()
            if draw < 0.28:
                if source.random() < 0.65:
                    line = source.choice(self._disclosed["have"])
                    text = line.format(source.choice(self._things))
                else:
                    text = line = source.choice(self._disclosed["health"])
                topics = {"health": 1.0, "special": 0.0, "finance": 0.0}
            elif draw < 0.56:
                topic = source.choice(topics_disclosed)
                text = line = source.choice(self._disclosed[topic])
                topics = {topic: 1.0} | ({} if topic == "special" else {"health": 0.0})
            elif draw < 0.72:
                line = source.choice(self._asked["have"])
                text, topics = line.format(source.choice(self._things)), _NOTHING
            elif draw < 0.84:
                text = line = source.choice(self._asked[source.choice(asking)])
                topics = _NOTHING
            else:
                text = line = source.choice(self._plain)
                topics = _NOTHING
            before = source.choice(self._data["openings"])
            text = before + text + source.choice(self._data["endings"])
            yield Example(text, topics=topics, key=f"own-{self._language}:{line}")

    def named_examples(self, count: int, *, again: float) -> Iterator[Example]:
        """Yield ``count`` sentences that name a person and disclose nothing more.

        In a share of them, given by ``again``, the names are replaced.
        """
        lines = [line for line in self._lines("entities") if not _AFFAIRS.search(line)]
        for _ in range(count):
            line = self._source.choice(lines)
            key = f"named-{self._language}:{line}"
            named = self._filled(line)
            if self._source.random() < again:
                named = without_names(named)
            yield Example(named.text, topics=_NOTHING, key=key)

    def talk_examples(self, count: int) -> Iterator[Example]:
        """Yield ``count`` texts as people type them; slightly more are impersonal.

        For texts about health or a special category, no other topic is known.
        """
        kinds = ("talk", "talk", "talk_health", "talk_special")
        topics = {"talk": _NOTHING, "talk_health": {"health": 1.0, "finance": 0.0}}
        topics["talk_special"] = {"special": 1.0}
        for _ in range(count):
            name = self._source.choice(kinds)
            line = self._source.choice(self._lines(name))
            key = f"{name}-{self._language}:{line}"
            yield Example(line, topics=dict(topics[name]), key=key)

    def _filled(self, sentence: str) -> Example:
        return filled(sentence, self._value)

    def _value(self, slot: str) -> str:
        source, data = self._source, self._data
        fake = source.choice(self._fakers)
        ways: dict[str, Callable[[], str]] = {
            "anyone": self._anyone,
            "given_lower": lambda: self._name("given").lower(),
            "family_lower": lambda: self._name("family").lower(),
            "city": fake.city,
            "org": lambda: self._organization(fake),
            "address": lambda: self._address(fake),
            "title": lambda: source.choice(str(data["titles"]).split()),
            "nrp": lambda: source.choice(str(data["nrp"]).split()),
            "num": lambda: str(source.randrange(1, 100)),
            "age": lambda: source.choice(data["ages"]).format(
                n=source.randrange(1, 103)
            ),
            "date": lambda: source.choice(data["dates"]).format(
                d=source.randrange(1, 29),
                m=source.randrange(1, 13),
                y=source.randrange(1925, 2026),
                month=source.choice(str(data["months"]).split()),
            ),
        }
        return ways.get(slot, partial(self._name, slot))()

    def _name(self, which: str) -> str:
        """Return a given, family or full name, of any tradition or of the language."""
        if self._source.random() < 0.3:
            name: str = getattr(self._people, which)()
            return name
        fake = self._source.choice(self._fakers)
        for _ in range(_TRIES):
            parts = []
            if which != "family":
                parts.append(fake.first_name())
            if which != "given":
                parts.append(fake.last_name())
            name = " ".join(parts)
            if not held_out("name:" + name.split()[-1].lower()):
                break
        return name

    def _anyone(self) -> str:
        name = self._name(self._source.choice(("full", "given", "full")))
        return name.lower() if self._source.random() < 0.2 else name

    def _organization(self, fake: Faker) -> str:
        if self._source.random() < 0.7:
            return fake.company()
        return self._people.organization()

    def _address(self, fake: Faker) -> str:
        address = fake.street_address().replace("\n", ", ")
        if self._source.random() < 0.6:
            between = self._source.choice((", ", " ", "\n"))
            address += f"{between}{fake.postcode()} {fake.city()}"
        return address
