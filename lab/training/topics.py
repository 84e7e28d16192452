"""Sentences about a person's own affairs, and others about the same subjects.

A topic counts if a text discloses *a person's* health, special category, money, legal
affairs or work: the writer's, or someone else's. Talk about the subject does not count,
no matter who speaks. The sentences are data (``topic_sentences.toml``); this module
puts them into persons, shapes and frames.
"""

import random  # training must repeat; nothing secret is drawn
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from examples import Example
from labels import TOPICS
from splits import held_out

_DATA: Final = tomllib.loads(
    Path(__file__).with_name("topic_sentences.toml").read_text("utf-8")
)


def _lines(table: str, name: str) -> list[str]:
    """Return the lines of one entry, except those held out for measuring."""
    return [
        line
        for line in _DATA[table][name].strip().splitlines()
        if not held_out(f"topic-sentence:{line}")
    ]


def _things(name: str) -> list[str]:
    """Return the items between the bars."""
    return [" ".join(each.split()) for each in _DATA["things"][name].split("|")]


@dataclass(frozen=True, slots=True)
class _Person:
    """A person that a sentence can be about, with the words that agree in form."""

    subject: str
    own: str
    object: str
    number: str = "he"  # agrees like "I", "he" or "they"


_I: Final = _Person("I", "my", "me", "I")
_OTHERS: Final = (
    _Person("she", "her", "her"),
    _Person("he", "his", "him"),
    _Person("my wife", "her", "her"),
    _Person("my husband", "his", "him"),
    _Person("my mother", "her", "her"),
    _Person("my father", "his", "him"),
    _Person("my sister", "her", "her"),
    _Person("my son", "his", "him"),
    _Person("our daughter", "her", "her"),
    _Person("my ex", "his", "him"),
    _Person("my boyfriend", "his", "him"),
    _Person("a friend of mine", "her", "her"),
    _Person("my neighbour", "his", "him"),
    _Person("my boss", "his", "him"),
    _Person("a colleague", "her", "her"),
    _Person("one of my employees", "her", "her"),
    _Person("our new hire", "his", "him"),
    _Person("the applicant", "her", "her"),
    _Person("my client", "his", "him"),
    _Person("the client", "her", "her"),
    _Person("our tenant", "his", "him"),
    _Person("a student of mine", "his", "him"),
    _Person("the guy next door", "his", "him"),
    _Person("the woman from flat 3", "her", "her"),
    _Person("Aunt Rosa", "her", "her"),
    _Person("Tom", "his", "him"),
    _Person("Mrs. Lindgren", "her", "her"),
    _Person("Priya", "her", "her"),
    _Person("[name]", "his", "him"),  # a name's placeholder after it is replaced
    _Person("Mrs. [name]", "her", "her"),
    _Person("my parents", "their", "them", "they"),
    _Person("my cousins", "their", "them", "they"),
)
_PATIENTS: Final = (
    _Person("the patient", "her", "her"),
    _Person("patient", "his", "him"),
    _Person("pt", "his", "him"),
    _Person("my patient", "her", "her"),
    _Person("bed 9", "his", "him"),
    _Person("the man in room 4", "his", "him"),
    _Person("the new admission", "her", "her"),
)
# An application's notes on its users, and what it says to them.
_USERS: Final = (
    _Person("the user", "their", "them"),
    _Person("User", "their", "them"),
    _Person("customer", "their", "them"),
    _Person("the caller", "her", "her"),
    _Person("you", "your", "you", "they"),
)
_AGREE: Final = {
    "I": {"am": "am", "have": "have", "was": "was", "do": "do", "s": "", "es": ""},
    "he": {"am": "is", "have": "has", "was": "was", "do": "does", "s": "s", "es": "es"},
    "they": {
        "am": "are", "have": "have", "was": "were", "do": "do", "s": "", "es": "",
    },
}  # fmt: skip
# Words that can be omitted to shorten a sentence without changing its meaning.
_SUBJECTLESS: Final = re.compile(r"\A\{I\} (?:\{(?:am|have|was)\} )?")


def about_someone(source: random.Random, line: str, topic: str) -> str:
    """Return one line of ``[disclosed]`` about a random person."""
    draw = source.random()
    person = _I
    if draw >= 0.45:
        others = _OTHERS
        if draw >= 0.85:
            others = _USERS
        elif topic == "health" and draw >= 0.7:
            others = _PATIENTS
        person = source.choice(others)
    elif draw < 0.12:
        # In the style of notes and hurried questions: "Miscarried on Sunday."
        line = _SUBJECTLESS.sub("", line).replace("{my} ", "")
    text = _formed(line, person)
    if person is _I:
        short = {"I am ": "I'm ", "I have ": "I've ", "do not ": "don't "}
        for long, contracted in short.items():
            if source.random() < 0.5:
                text = text.replace(long, contracted)
    return text


def _formed(line: str, person: _Person) -> str:
    if person.number == "he":
        line = line.replace("{y}", "ies").replace("ha{ve}", "has")
    line = line.replace("{y}", "y").replace("{ve}", "ve")
    agree = _AGREE[person.number]
    return line.format(I=person.subject, my=person.own, me=person.object, **agree)


_HAVE: Final = (
    "{I} {have} {c}", "{I} {was} diagnosed with {c}", "{I} suffer{s} from {c}",
    "{I} {am} being treated for {c}", "{I} {have} had {c} for two years",
    "{I} might have {c}", "{I} take{s} {t}", "{I} {am} on {t} since March",
    "{I} started {t} and feel{s} worse", "{my} results came back: {c}",
    "after {my} {c} {I} could not work", "{I} stopped {t} and {c} came back",
    "{I} {am} afraid of {t}", "history of {c}, on {t}", "{my} {c} gets worse at night",
    "{my} doctor wants {me} to try {t} for the {c}", "they found {c} in {me}",
    "{I} {am} off work because of {c}", "should {I} take {t} with {my} {c}",
    "{my} insurance won't pay {t}", "{I} {was} given {t} yesterday, is that safe",
    "{my} family does not know about the {c}", "can {I} drive with {my} {c}",
    "how long must {I} stay on {t}, it makes {me} sick",
)  # fmt: skip
# About anyone in such a situation, so about no person.
_ANYBODY: Final = (
    "what helps people who {}", "How common is it that people {}?",
    "Write an article about people who {}", "why do some people {}?",
    "famous novels about people who {}",
    "How should a counsellor talk with people who {}?", "advice for those who {}",
    "what does the law say of people who {}", "what should people do who {}",
    "research on adults who {}", "a survey found that many people {}",
    "Write a leaflet for people who {}", "Is it normal when people {}?",
    "In my novel there are two sisters who {}. Suggest a title",
    "what are the rights of people who {}", "Name films about people who {}",
    "How do companies treat people who {}?", "Which charities support people who {}?",
)  # fmt: skip
_THOSE: Final = _Person("", "their", "them", "they")
_FIRST_NUMBER, _LAST_NUMBER = 2, 40


_NOTHING: Final = dict.fromkeys(TOPICS, 0.0)
_Made = tuple[str, str, dict[str, float]]  # the line, the text, -1 for not known


def topic_examples(source: random.Random, count: int) -> Iterator[Example]:
    """Yield ``count`` sentences, about half of them about somebody."""
    sentences = _Sentences(source)
    shares = (
        (0.34, sentences.disclosed),
        (0.44, sentences.plainly_disclosed),
        (0.51, sentences.patient),
        (0.65, sentences.asked_of_anything),
        (0.70, sentences.of_anybody),
        (0.84, sentences.asked_of_health),
        (0.91, sentences.asked_at_work),
        (1.00, sentences.neutral),
    )
    for _ in range(count):
        draw = source.random()
        line, text, topics = next(make for upto, make in shares if draw < upto)()
        known = {name: value for name, value in topics.items() if value >= 0}
        yield Example(framed(source, text), topics=known, key=f"own:{line}")


class _Sentences:
    """One method for each kind of sentence, on the lines that are not held out."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._disclosed = {
            name: _lines("disclosed", name) for name in _DATA["disclosed"]
        }
        self._asked = {name: _lines("asked", name) for name in _DATA["asked"]}
        self._patients = _lines("clinical", "patient")
        self._neutral = _lines("neutral", "stated")
        self._things = {name: _things(name) for name in _DATA["things"]}
        self._subjects = [
            each
            for name, all_of in self._things.items()
            if name not in {"outcomes", "groups"}
            for each in all_of
        ]
        self._bare = [
            [line for line in rows if line.startswith("{I} ")]
            for rows in self._disclosed.values()
        ]

    def disclosed(self) -> _Made:
        topic = self._source.choice(list(self._disclosed))
        line = self._source.choice(self._disclosed[topic])
        more, colon, rest = line.partition(": ")
        also = {more: 1.0} if colon and more in TOPICS else {}
        text = about_someone(self._source, rest if also else line, topic)
        near = dict.fromkeys(_NEAR[topic], -1.0)
        return line, text, _NOTHING | near | also | {topic: 1.0}

    def plainly_disclosed(self) -> _Made:
        line = self._source.choice(_HAVE)
        text = line.replace("{c}", self._source.choice(self._things["conditions"]))
        text = text.replace("{t}", self._source.choice(self._things["treatments"]))
        near = {"special": -1.0, "hr": -1.0, "finance": -1.0}
        text = about_someone(self._source, text, "health")
        return line, text, _NOTHING | near | {"health": 1.0}

    def patient(self) -> _Made:
        line = self._source.choice(self._patients)
        text = _filled(self._source, line)
        return line, text, _NOTHING | {"health": 1.0, "special": -1.0}

    def asked_of_anything(self) -> _Made:
        line = self._source.choice(self._asked["any"])
        text = line.replace("{x}", self._source.choice(self._subjects))
        return line, text, _NOTHING

    def of_anybody(self) -> _Made:
        line = self._source.choice(self._source.choice(self._bare))
        text = _formed(line, _THOSE).strip()
        return line, self._source.choice(_ANYBODY).format(text), _NOTHING

    def asked_of_health(self) -> _Made:
        text = line = self._source.choice(self._asked["health"])
        for key, name in _SLOTS.items():
            text = text.replace(key, self._source.choice(self._things[name]))
        return line, text, _NOTHING

    def asked_at_work(self) -> _Made:
        line = self._source.choice(self._asked["work"])
        return line, line, _NOTHING

    def neutral(self) -> _Made:
        line = self._source.choice(self._neutral)
        return line, line, _NOTHING


# A sentence about one of these is now and then about the other: unknown.
_NEAR: Final = {
    "health": ("special",),
    "special": ("health", "legal", "hr"),
    "finance": ("legal", "hr"),
    "legal": ("finance", "special", "hr"),
    "hr": ("legal", "finance"),
}
_SLOTS: Final = {
    "{c2}": "conditions", "{c}": "conditions", "{t2}": "treatments",
    "{t}": "treatments", "{o}": "outcomes", "{g}": "groups",
}  # fmt: skip


def _filled(source: random.Random, line: str) -> str:
    sex = source.choice(("male", "female", "man", "woman"))
    return line.format(
        n=source.randint(_FIRST_NUMBER, _LAST_NUMBER),
        n2=source.randint(_FIRST_NUMBER, _LAST_NUMBER),
        age=source.randint(19, 89),
        small=source.randint(2, 9),
        sex=sex,
        sex1="F" if sex in {"female", "woman"} else "M",
    )


_OPENINGS: Final = (
    "hi, ", "Hello. ", "so ", "please help: ", "Advice needed. ", "quick question: ",
    "Can you help me write a letter? ", "Draft an email: ", "ok here is the thing, ",
    "Could you rewrite this: ", "Please summarise: ", "Fix the grammar: ",
    "translate to German: ", "Be kind. ", "Make this shorter: ", "Context: ",
    "Hello, I hope you can help me. ", "I would like your opinion. ", "note: ",
    "Act as an expert. ", "Answer in two sentences. ",
)  # fmt: skip
_ENDINGS: Final = (
    "?", " What can I do?", " what now", ", any advice?", " Thanks!", " Keep it short.",
    " Please answer in two sentences.", " Help me word this.", " is that ok", " ideas?",
    " Make it sound polite.", " Use simple words.", " thx", "...",
)  # fmt: skip


def framed(source: random.Random, text: str) -> str:
    """Return a text as it might be typed, with or without a request around it."""
    if source.random() < 0.5:
        text = text[:1].upper() + text[1:]
    if source.random() < 0.35:
        text = source.choice(_OPENINGS) + text
    if source.random() < 0.4 and text[-1:] not in "?.":
        text += source.choice(_ENDINGS)
    elif source.random() < 0.4 and text[-1:] not in "?.":
        text += "."
    draw = source.random()
    if draw < 0.25:
        return text.lower()
    if draw < 0.28:
        return text.upper()
    return text.replace("?", "") if draw < 0.35 else text
