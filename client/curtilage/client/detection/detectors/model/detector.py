"""Weigh what a model says about names against what lists and rules say.

Knows three engines: the embedded model, a model of the operator's
(``operator``), and none. Neither overrules the other where it is sure:
a name that only one of both sees is still one. A model that cannot be loaded
is replaced by a detector that fails on every text, so that nothing leaves.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from curtilage.client.detection import wordlists
from curtilage.client.detection.detectors.model.entity import Entity, NameModel, Opinion
from curtilage.client.detection.detectors.model.excerpts import excerpts
from curtilage.client.detection.detectors.model.operator import open_operator_model
from curtilage.client.detection.detectors.names.capitals import (
    NameDetector,
    Suspect,
    Why,
    suspects,
)
from curtilage.client.detection.detectors.names.cues import PERSON, people
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.scanner import AS_WRITTEN, Equipment
from curtilage.client.detection.detectors.topics.lexicon import class_of
from curtilage.client.detection.spans import Span
from curtilage.client.detection.wordlists import (
    ACRONYMS,
    MIN_NAME_CHARS,
    bag,
    bare,
    is_listed,
    words,
)
from curtilage.policy.document.detection_plan import NerPlan

if TYPE_CHECKING:
    from curtilage.client.detection.detectors.model.embedded import Judgement

DETECTOR: Final = "ner"
NATIONALITY: Final = "identifier.quasi.nationality"
AGE: Final = "identifier.quasi.age"
OLD_AGE: Final = "identifier.quasi.age90"
ADDRESS: Final = "identifier.direct.address"
CITY: Final = "identifier.quasi.city"
ZIP: Final = "identifier.quasi.zip"
DATE: Final = "identifier.quasi.date"
MARKER: Final = "marker.first_person"
# The kinds of the embedded model, in the classes of the policy.
CLASSES: Final[Mapping[str, str]] = {
    "PERSON": PERSON,
    "LOCATION": CITY,
    "ORGANIZATION": "identifier.quasi.employer",
    "ADDRESS": ADDRESS,
    "AGE": AGE,
    "DATE": DATE,
    "NRP": NATIONALITY,
}
_NUMBER = re.compile(r"\d+")
_AGE_WORDS = words("""
one two three four five six seven eight nine ten eleven twelve thirteen fourteen
fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy
eighty twenties thirties forties fifties sixties seventies eighties teens
""")
_OLD_WORDS = words("ninety nineties hundred centenarian nonagenarian")
_STREET = re.compile(
    r"(?<!\w)(?:street|st|road|rd|avenue|ave|lane|ln|drive|dr|boulevard|blvd|court|ct|"
    r"way|square|sq|terrace|close|crescent|highway|hwy|p\.? ?o\.? ?box|apt|apartment|"
    r"suite|unit|flat|rue|via|calle|rua|avenida|carrera|plaza|piazza|ulica|ul|utca|"
    r"cesta|trg|calea|strada|jalan|kalea)(?!\w)|"
    r"\w{3}(?:stra(?:ße|sse)|str|gasse|allee|platz|weg|vej|vegen|veien|gatan?|gade|"
    r"laan|straat|plein|katu|tie)(?!\w)",
    re.IGNORECASE,
)
# "tomorrow" and "on Friday" are dates of nothing.
_TELLS_DATE = re.compile(
    r"\d|(?<!\w)(?:jan|feb|mar|apr|jun|jul|aug|sep|oct|nov|dec)\w*|(?<!\w)may(?!\w)",
    re.IGNORECASE,
)
_PLACE_NAME = re.compile(r"(?<![\w.])[^\W\d_]{3,}(?!\w)")
_CELL = re.compile(r"[\t|\n]")
_ZIP = re.compile(r"\d{5}(?:-\d{4})?|[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}")
_OLDEST_SAFE = 89  # 45 CFR 164.514(b)(2)(i)(C): ages over 89 are identifiers


def ner_detectors(plan: NerPlan) -> Equipment:
    """Return what looks for names under a policy, and the readings it takes.

    Never raises: a model that cannot be loaded becomes a detector that does,
    on every text.
    """
    if plan.engine == "none":
        return ((NameDetector(), AS_WRITTEN),)
    try:
        model = _open(plan)
    except Exception:  # noqa: BLE001 - whatever is wrong, nothing may leave
        return ((MissingModelDetector(), AS_WRITTEN),)
    return ((NerDetector(model), AS_WRITTEN),)


def _open(plan: NerPlan) -> NameModel:
    if plan.engine == "embedded":
        from curtilage.client.detection.detectors.model import embedded as guard_model  # noqa: PLC0415 - needs the extra

        guard = guard_model.load_guard()
        unknown = set(guard.manifest.kinds[1:]) - CLASSES.keys()
        if unknown:
            raise ValueError("the embedded model has kinds that are no data class")
        return EmbeddedModel(guard, recall=plan.recall)
    return open_operator_model(plan)


class MissingModelDetector:
    """Fail on every text: the model that the policy names is not there."""

    id = DETECTOR

    def find(self, reading: Reading) -> NoReturn:
        """Raise; the text is not looked at."""
        del reading
        raise RuntimeError("the policy's names model is not loaded")


class _Judge(Protocol):
    def judge(
        self, text: str, *, recall: int, beside: Sequence[str] = ()
    ) -> "Judgement": ...


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """The model of this package, at one setting of the recall knob."""

    guard: _Judge
    recall: int
    person: str = "PERSON"

    @property
    def classes(self) -> Mapping[str, str]:
        """The data class of each kind it knows."""
        return CLASSES

    def opinion(self, text: str) -> "Judgement":
        """Judge one text, and by itself what is said of somebody in it."""
        return self.guard.judge(text, recall=self.recall, beside=excerpts(text))


class NerDetector:
    """Find names, places, dates and topics: a model, joined with lists and rules."""

    id = DETECTOR

    def __init__(self, model: NameModel) -> None:
        self._model = model

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield entities, topics, people who are introduced, and what is left."""
        text = reading.text
        opinion = self._model.opinion(text)
        named = [*people(text)]
        for entity in opinion.entities:
            for span in self._entity(text, entity):
                if span.data_class == PERSON:
                    named.append(span)
                else:
                    yield span
        for suspect in suspects(text):
            named.extend(self._weighed(text, suspect, opinion))
        yield from joined(text, named)
        for topic, score in opinion.topics.items():
            if score >= LEAST_TOPIC:
                yield self._whole(f"topic.{topic}", text, score)
        if any(score >= SURE_TOPIC for score in opinion.topics.values()):
            yield self._whole(MARKER, text, SURE_TOPIC)

    def _entity(self, text: str, entity: Entity) -> Iterator[Span]:
        found = text[entity.start : entity.end]
        data_class = finer_class(self._model.classes[entity.kind], found)
        if data_class == PERSON and _is_no_name(found, entity.score):
            return
        if data_class is not None:
            yield Span(
                data_class=data_class,
                detector=self.id,
                start=entity.start,
                end=entity.end,
                score=entity.score,
            )

    def _whole(self, name: str, text: str, score: int) -> Span:
        return Span(
            data_class=name, detector=self.id, start=0, end=len(text), score=score
        )

    def _weighed(self, text: str, suspect: Suspect, opinion: Opinion) -> Iterator[Span]:
        """Yield a suspect as a person, unless the model clears it."""
        over = [
            each
            for each in opinion.entities
            if suspect.start < each.end and each.start < suspect.end
        ]
        if any(self._model.classes[each.kind] == PERSON for each in over):
            return
        likely = opinion.likelihood(self._model.person, suspect.start, suspect.end)
        least = LEAST_IN_ENTITY if over else LEAST_LIKELY[suspect.why]
        if likely >= least or any(
            self._model.classes[each.kind] == PERSON and _beside(text, suspect, each)
            for each in opinion.entities
        ):
            yield Span(
                data_class=PERSON,
                detector=f"name-{suspect.why}",
                start=suspect.start,
                end=suspect.end,
                score=suspect.score,
            )


# --- tuned on the developers' split; benchmarks/ and the README tell the figures

LEAST_TOPIC: Final = 20  # below, a topic is not worth a finding
SURE_TOPIC: Final = 50  # from here on the text is taken to be about somebody
# How likely the model must find a suspect word that it did not choose, in
# thousandths. A listed name with a capital counts whatever the model says.
LEAST_LIKELY: Final[Mapping[Why, int]] = {
    Why.LISTED: 0,
    Why.GIVEN: 5,
    Why.CAPITAL: 3,
    Why.FIRST: 20,
    Why.HANDLE: 0,
}
SURE_WORD: Final = 95  # an ordinary word is a person from here on
LEAST_IN_ENTITY: Final = 50  # the same where the model chose another kind


def joined(text: str, named: Iterable[Span]) -> Iterator[Span]:
    """Yield people with every word of one name in one span.

    What a rule, a list and the model found of a name overlaps or stands side by
    side; were the surest alone kept, the rest of the name would go out.
    """
    last: Span | None = None
    for span in sorted(named, key=lambda each: (each.start, each.end)):
        if last is None or not (
            span.start <= last.end or text[last.end : span.start] == " "
        ):
            if last is not None:
                yield last
            last = span
            continue
        surer = max(last, span, key=lambda each: each.score)
        last = replace(surer, start=last.start, end=max(last.end, span.end))
    if last is not None:
        yield last


def finer_class(data_class: str, found: str) -> str | None:
    """Return the class of an entity once its words are looked at.

    None where they tell that it is nothing: a model takes a part number for an
    address and a girl for an age.
    """
    if data_class == NATIONALITY and _is_special(found):
        return None  # a religion or a party: the lexicon has it
    if data_class == AGE:
        return _age_class(found)
    if data_class == ADDRESS:
        return _address_class(found)
    if data_class == DATE:
        return DATE if _TELLS_DATE.search(found) else None
    return data_class


def _is_no_name(found: str, score: int) -> bool:
    """Tell whether an unsure person is a mark, a letter or an ordinary word."""
    if sum(map(str.isalpha, found)) < MIN_NAME_CHARS:
        return True
    plain = bare(found)
    if found.isupper() and plain in ACRONYMS:
        return True
    ordinary = is_listed(plain) and plain not in wordlists.AMBIGUOUS
    return ordinary and plain not in wordlists.GIVEN and score < SURE_WORD


def _is_special(found: str) -> bool:
    listed = (class_of(word) for word in found.lower().split())
    return any(each is not None and each.startswith("special.") for each in listed)


def _age_class(found: str) -> str | None:
    number = _NUMBER.search(found)
    if number is not None:
        return OLD_AGE if int(number[0][:4]) > _OLDEST_SAFE else AGE
    here = bag(found)
    if not here.isdisjoint(_OLD_WORDS):
        return OLD_AGE
    return None if here.isdisjoint(_AGE_WORDS) else AGE


def _address_class(found: str) -> str | None:
    """Tell a house from a place, and a place from a number of any kind."""
    if _STREET.search(found):
        return ADDRESS
    # A number and a name in different cells of a table are no house.
    if any(_PLACE_NAME.search(at) and _NUMBER.search(at) for at in _CELL.split(found)):
        return ADDRESS
    if _ZIP.fullmatch(found):
        return ZIP
    return CITY if _PLACE_NAME.search(found) else None


def _beside(text: str, suspect: Suspect, entity: Entity) -> bool:
    """Tell whether a suspect stands right before or behind an entity."""
    low, high = sorted(((suspect.start, suspect.end), (entity.start, entity.end)))
    between = text[low[1] : high[0]]
    return len(between) <= len(". ") and not between.strip(" .")
