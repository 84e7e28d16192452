"""Combines a model's opinion on names with that of lists and rules.

There are three engines: the embedded model, a model of the operator (``operator``), and
none. Neither side overrules the other where it is certain: a name that only one of them
sees still counts. If a model cannot be loaded, a detector that fails on every text
replaces it, so that nothing is sent.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from curtilage.client.detection import wordlists
from curtilage.client.detection.detectors.loading import OnDemand
from curtilage.client.detection.detectors.model.entity import (
    Entity,
    NameModel,
    Opinion,
    Passages,
)
from curtilage.client.detection.detectors.model.excerpts import excerpts
from curtilage.client.detection.detectors.model.operator import (
    PlainOpinion,
    open_operator_model,
)
from curtilage.client.detection.detectors.names.capitals import (
    NameDetector,
    Suspect,
    Why,
    suspects,
)
from curtilage.client.detection.detectors.names.cues import (
    KEYED,
    PERSON,
    ROLE,
    asked,
    people,
    people_in,
)
from curtilage.client.detection.detectors.names.figures import with_figures
from curtilage.client.detection.detectors.names.nobody import (
    is_identifier,
    is_joined_name,
    is_nobody,
    is_ordinary,
    is_place_or_company,
    is_spoken_of,
    is_thing,
    unknown_words,
)
from curtilage.client.detection.detectors.names.small_letters import (
    Looks,
    is_prose,
    require_dictionaries,
    unknown_small,
)
from curtilage.client.detection.detectors.names.titles import UNSURE_TITLE, titled
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.scanner import AS_WRITTEN, Equipment
from curtilage.client.detection.detectors.topics.lexicon import class_of
from curtilage.client.detection.detectors.topics.markers import (
    tells_of_any_man,
    tells_of_nobody,
)
from curtilage.client.detection.neighbours import carried, is_carried_on, neighbours
from curtilage.client.detection.packs import ENGLISH, PACKS
from curtilage.client.detection.spans import Span
from curtilage.client.detection.wordlists import (
    ACRONYMS,
    MIN_NAME_CHARS,
    bag,
    bare,
    is_listed,
    is_term,
    words,
)
from curtilage.policy.document.detection_plan import NerPlan

if TYPE_CHECKING:
    from curtilage.client.detection.detectors.model.embedded import (
        GuardModel,
        Judgement,
    )

DETECTOR: Final = "ner"
WARM_UP: Final = "Warm up: a sentence of some words."
NATIONALITY: Final = "identifier.quasi.nationality"
AGE: Final = "identifier.quasi.age"
OLD_AGE: Final = "identifier.quasi.age90"
ADDRESS: Final = "identifier.direct.address"
CITY: Final = "identifier.quasi.city"
EMPLOYER: Final = "identifier.quasi.employer"
ZIP: Final = "identifier.quasi.zip"
DATE: Final = "identifier.quasi.date"
MARKER: Final = "marker.first_person"
CASE: Final = "marker.case"
# The policy's class for each kind of the embedded model.
CLASSES: Final[Mapping[str, str]] = {
    "PERSON": PERSON,
    "LOCATION": CITY,
    "ORGANIZATION": EMPLOYER,
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
# "tomorrow" and "on Friday" are not identifying dates.
_CALENDAR_DATE = re.compile(
    r"\d|(?<!\w)(?:jan|feb|mar|apr|jun|jul|aug|sep|oct|nov|dec)\w*|(?<!\w)may(?!\w)",
    re.IGNORECASE,
)
# Numbered things other than houses: a page, a rule, a train, a psalm, a law report.
_NUMBERED = re.compile(
    r"(?:(?:the|der|die|das|dem|den|le|la|el|il|lo|o|a|de|het)\s)?(?:"
    r"p|pages?|circular|section|chapter|table|figure|fig|exhibit|form|article|rule|vol|"
    r"volume|part|step|question|line|row|column|lesson|level|round|ironman|port|"
    r"l[ií]nea|linha|ligne|zeile|regel|riga|p[áa]gina|seite|cap[ií]tulo|ejercicio|"
    r"exerc[ií]cio|(?:\w+-?)?(?:kapitel|aufgabe|übung|artikel|lektion|tabelle|abbildung)|"
    # Not as a stem: Reeperbahn, Rennbahn and Grabenzug are streets.
    r"absatz|band|frage|(?:linien|reise|nacht|schnell|schul|flix)?-?bus|"
    r"(?:s|u|stra(?:ß|ss)en|stadt|regional)?-?bahn|(?:regional|nacht|schnell)?-?zug|"
    r"(?:(?:bus|zug|tram|(?:s|u|stra(?:ß|ss)en|stadt)-?bahn)-?)?linie|"
    r"(?:hin|rück|anschluss)?flug|(?:bahn)?gleis|tram|trains?|tgv|m[eé]tro|"
    r"vols?|quai|voie|chapitre|exercice|leçon|tome|tableau|alinéa|autobus|colectivo|"
    r"tren|treno|comboio|trem|trein|vuelo|volo|voo|vlucht|and[ée]n|binario|spoor|perron|"
    r"capitolo|hoofdstuk|esercizio|oefening|opgave|lección|lição|lezione|les|"
    r"art[ií]culo|artigo|articolo|psalms?|psaumes?|salmo|opus|op|bwv|kv|rfc|iso|din"
    r")\.?\s?(?:n[°º]\s?|nr\.?\s|nummer\s|num[eé]ro\s)?"
    r"\d[\d\-\u2013.]*|[A-Z]{2,10}-\d{1,7}|.*\b(?:LEXIS|WL|F\. Supp\.|U\.S\.C\.?|"
    r"x86)\b.*",
    re.IGNORECASE | re.DOTALL,
)
# After these, any name with a number is a house: ik woon Spoor 47.
_DWELLS = re.compile(
    r"(?<!\w)(?:lives?|living|reside[sd]?|\w{0,12}address|deliver|wohn\w{0,10}|"
    r"\w{0,16}(?:adresse|anschrift)|hausbesuch|paket|liefer\w{0,8}|habit(?:e[rsz]?|ons|"
    r"ent|ait)|demeur\w{1,4}|livr(?:er|ez|aison)|viv[eioía]\w{0,4}|resid\w{1,6}|domicili\w{0,6}|"
    r"direcci[oó]n|abit[aio]\w{0,4}|indirizzo|consegn\w{1,6}|mor(?:o|as?|amos|am|ada)|"
    r"endere[cç]o|entreg\w{1,4}|wo(?:on|ont|nen|nend|ning)|adres|bezorg\w{0,4})(?!\w)"
    r"[^.!?]{0,32}\Z",
    re.IGNORECASE,
)
# A count of something, in an order or a recipe.
_COUNT = re.compile(
    r"\d[\d.,]* ?(?:pieces?|pcs|items?|packs?|boxes|bottles|tablets|sheets|pages|"
    r"people|persons|guests|cm|mm|kg|ml)(?!\w)",
    re.IGNORECASE,
)
_BEFORE: Final = 48  # characters that are examined before an address
AROUND: Final = 150  # characters on either side of a word that is judged separately
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|\n\s*")
_LONGEST_DATE = 40  # characters; the model sometimes takes half a page for a date
_PLACE_NAME = re.compile(r"(?<![\w.])[^\W\d_]{3,}(?!\w)")
_CELL = re.compile(r"[\t|\n]")
_ZIP = re.compile(r"\d{5}(?:-\d{4})?|[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}")
_OLDEST_SAFE = 89  # 45 CFR 164.514(b)(2)(i)(C): ages over 89 are identifiers


def ner_detectors(plan: NerPlan, languages: Collection[str] = ()) -> Equipment:
    """Return the detectors of names for a policy, and the readings that they take.

    Args:
        plan: which model.
        languages: those that the policy names, as ISO 639-1.

    Never raises: if a model cannot be loaded, the detector raises on every text.
    """
    if plan.engine == "none":
        return ((NameDetector(), AS_WRITTEN),)
    try:
        model = _open(plan, languages)
    except Exception:  # noqa: BLE001 - on any error, nothing may be sent
        return ((MissingModelDetector(), AS_WRITTEN),)
    return ((NerDetector(model), AS_WRITTEN),)


def _open(plan: NerPlan, languages: Collection[str]) -> NameModel:
    if plan.engine == "embedded":
        from curtilage.client.detection.detectors.model import embedded as guard_model  # noqa: PLC0415 - needs the extra

        require_dictionaries()
        guard, others = guard_model.load_guard(), None
        _require_classes(guard.manifest.kinds)
        if set(languages) - {ENGLISH}:
            folder = guard_model.multilingual()
            _require_classes(guard_model.read_manifest(folder).kinds)
            others = _LoadedAtFirstUse(partial(guard_model.load_guard, folder))
        return EmbeddedModel(guard, recall=plan.recall, others=others)
    return open_operator_model(plan)


def _require_classes(kinds: Sequence[str]) -> None:
    if set(kinds[1:]) - CLASSES.keys():
        raise ValueError("the embedded model has kinds that are no data class")


class MissingModelDetector:
    """Fails on every text: the model that the policy names is missing."""

    id = DETECTOR

    def find(self, reading: Reading) -> NoReturn:
        """Raise; the text is not examined."""
        del reading
        raise RuntimeError("the policy's names model is not loaded")


class _Judge(Protocol):
    def judge_all(
        self, asked: Sequence[Passages], *, recall: int
    ) -> Sequence["Judgement"]: ...


class _LoadedAtFirstUse:
    """The model for other languages, loaded when a text is in one of them.

    Args:
        load: loads it. If that fails, every text that needs it is uncertain.
    """

    def __init__(self, load: "Callable[[], GuardModel]") -> None:
        self._load = load
        self._model = OnDemand(self._warm)

    def judge_all(
        self, asked: Sequence[Passages], *, recall: int
    ) -> Sequence["Judgement"]:
        return self._model.get().judge_all(asked, recall=recall)

    def _warm(self) -> "GuardModel":
        model = self._load()
        # Its first run allocates memory and reads pages that later runs reuse.
        model.judge_all([Passages(text=WARM_UP)], recall=0)
        return model


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """The model of this package, at one setting of the recall knob."""

    guard: _Judge  # for English
    recall: int
    others: _Judge | None = None  # for every covered language
    person: str = "PERSON"

    @property
    def classes(self) -> Mapping[str, str]:
        """The data class of each kind that it knows."""
        return CLASSES

    def opinion(self, reading: Reading) -> Opinion:
        """Judge a text, and separately its excerpts about a person."""
        judged = [reading.once(judge) for judge in self._judges(reading)]
        return judged[0] if len(judged) == 1 else _Joined(judged)

    def with_capitals(
        self, text: str, places: Sequence[tuple[int, int]], *, alone: bool = False
    ) -> Sequence[tuple[Opinion, int]]:
        """Judge words with a capital in place of a small letter, each in its context.

        Args:
            text: a text.
            places: the positions of the words.
            alone: judge the word's sentence without the others.

        Returns:
            For each position, the opinion on a part of the text around it, and the
            offset of the word in that part.
        """
        if not places:
            return ()
        asked: list[Passages] = []
        offsets: list[int] = []
        for start, end in places:
            before, behind = _around(text, start, end, alone=alone)
            asked.append(Passages(text=before + text[start:end].title() + behind))
            offsets.append(len(before))
        guard = self.others or self.guard
        judged = guard.judge_all(asked, recall=self.recall)
        return list(zip(judged, offsets, strict=True))

    def ahead(self, readings: Sequence[Reading]) -> None:
        """Judge several texts in one batch, and store each opinion with its text."""
        for guard, judge in ((self.guard, self._english), (self.others, self._other)):
            here = [each for each in readings if judge in self._judges(each)]
            if guard is None or not here:
                continue
            asked = [Passages(text=each.text, excerpts=excerpts(each)) for each in here]
            judged = guard.judge_all(asked, recall=self.recall)
            for each, judgement in zip(here, judged, strict=True):
                each.keep(judge, judgement)

    def _judges(self, reading: Reading) -> "Sequence[Callable[[Reading], Judgement]]":
        """Return the models that judge a text, by its languages."""
        if self.others is None or not reading.packs:
            return (self._english,)
        return (self._english, self._other) if reading.english else (self._other,)

    def _english(self, reading: Reading) -> "Judgement":
        return self._judged(self.guard, reading)

    def _other(self, reading: Reading) -> "Judgement":
        return self._judged(self.others or self.guard, reading)

    def _judged(self, guard: _Judge, reading: Reading) -> "Judgement":
        asked = Passages(text=reading.text, excerpts=excerpts(reading))
        return guard.judge_all([asked], recall=self.recall)[0]


def _around(text: str, start: int, end: int, *, alone: bool) -> tuple[str, str]:
    """Return the text before and after a word, or only that of its sentence."""
    first = text.rfind(" ", 0, max(0, start - AROUND)) + 1
    last = text.find(" ", end + AROUND)
    before, behind = text[first:start], text[end : last if last >= 0 else None]
    if alone:
        return _SENTENCE_END.split(before)[-1], _SENTENCE_END.split(behind)[0]
    return before, behind


@dataclass(frozen=True, slots=True)
class _Joined:
    """The union of two models' opinions on a text in two languages."""

    opinions: Sequence[Opinion]

    @property
    def entities(self) -> Sequence[Entity]:
        every = (entity for each in self.opinions for entity in each.entities)
        return sorted(every, key=lambda entity: (entity.start, entity.end))

    @property
    def topics(self) -> Mapping[str, int]:
        return {
            name: max(each.topics[name] for each in self.opinions)
            for name in self.opinions[0].topics
        }

    def likelihood(self, kind: str, start: int, end: int) -> int:
        return max(each.likelihood(kind, start, end) for each in self.opinions)


class NerDetector:
    """Finds names, places, dates and topics by a model, lists and rules."""

    id = DETECTOR

    def __init__(self, model: NameModel) -> None:
        self._model = model

    def ahead(self, readings: Sequence[Reading]) -> None:
        """Have the embedded model judge several texts in one batch."""
        if isinstance(self._model, EmbeddedModel):
            self._model.ahead(readings)

    def find(self, reading: Reading) -> Iterator[Span]:
        """Yield entities, topics, introduced people, and the remaining suspects."""
        text = reading.text
        opinion = self._model.opinion(reading)
        named: list[Span] = []
        seen = (_without_marks(text, each) for each in opinion.entities)
        for entity in filter(None, seen):
            for span in self._entity(reading, entity, opinion):
                if span.data_class == PERSON:
                    named.append(span)
                else:
                    yield span
        named += self._unseen(reading, opinion)
        places = [(each.start, each.end) for each in joined(text, named)]
        named += (
            _person("name-beside", start, end, NEIGHBOUR_SCORE)
            for start, end in neighbours(text, places)
            if not is_nobody(text, start, end) and not _is_health(text[start:end])
        )
        named += self._carried(text, places, opinion)
        yield from with_figures(reading, joined(text, named))
        for topic, score in opinion.topics.items():
            if score >= LEAST_TOPIC:
                yield self._whole(f"topic.{topic}", text, score)
        # In a statement, a topic concerns the speaker; a question may concern no one.
        if any(
            score >= SURE_TOPIC for score in opinion.topics.values()
        ) and not tells_of_nobody(reading):
            marker = CASE if tells_of_any_man(reading) else MARKER
            yield self._whole(marker, text, SURE_TOPIC)

    def _small(self, reading: Reading, opinion: Opinion) -> Iterator[Span]:
        """Yield unknown lower-case words that the model takes for names.

        The model relies on capitals, so words in doubt are judged again with a capital.
        """
        if not isinstance(self._model, EmbeddedModel):
            return
        text = reading.text
        unknown = [
            (start, end, looks)
            for start, end, looks in unknown_small(reading)
            if not is_nobody(text, start, end)
            and not is_thing(reading, start, end)
            and not _is_health(text[start:end])
        ]
        left = self._to_ask(text, unknown, opinion)
        nouns = all(not PACKS[code].capitals for code in reading.packs)
        for alone in (False, True):
            if alone:
                # If its sentence is the whole text, the answer is the same.
                left = [
                    each
                    for each in left
                    if _around(text, *each[0][:2], alone=True)
                    != _around(text, *each[0][:2], alone=False)
                ]
            again = self._model.with_capitals(
                text, [place[:2] for place, _ in left], alone=alone
            )
            asked, left = left, list[tuple[tuple[int, int, Looks], bool]]()
            for (place, doubted), (judged, at) in zip(asked, again, strict=True):
                start, end, looks = place
                here = (at, at + end - start)
                surely = (LEAST_BETWEEN_NOUNS if nouns else LEAST_SURELY)[looks]
                placed = is_place_or_company(text, start, end)  # "in plovdiv"
                if (not placed and self._names(judged, *here, surely)) or (
                    doubted and self._names(judged, *here, LEAST_WITH_CAPITAL[looks])
                ):
                    yield _person(f"name-{looks}", start, end, SMALL_SCORE)
                else:
                    left.append((place, doubted))

    def _to_ask(
        self, text: str, unknown: Sequence[tuple[int, int, Looks]], opinion: Opinion
    ) -> list[tuple[tuple[int, int, Looks], bool]]:
        """Return the words to judge, and whether the model doubts each by itself.

        Each is judged in its context, and a query's time is limited. If there are more
        words than that allows, only those that the model doubts are judged, the
        likeliest first. Words of a dictionary are always limited to those.
        """
        if not is_prose(text, (looks for _, _, looks in unknown)):
            return []
        # One position for each word: the one where it is likeliest to be a name.
        places: dict[str, tuple[int, tuple[int, int, Looks]]] = {}
        for each in unknown:
            likely = opinion.likelihood(self._model.person, *each[:2])
            word = text[each[0] : each[1]]
            if word not in places or likely > places[word][0]:
                places[word] = (likely, each)
        ranked = sorted(places.values(), key=lambda place: -place[0])
        chars = min(ASKED_AT_MOST * len(text), ASKED_CHARS + len(text) // 2)
        most = min(MOST_UNKNOWN, chars // max(1, min(len(text), 2 * AROUND)))
        asked = [
            (each, doubted)
            for _, each in ranked
            for doubted in (self._names(opinion, *each[:2], LEAST_SMALL[each[2]]),)
            if doubted or each[2] is not Looks.LISTED
        ]
        if len(asked) > most:
            asked = [each for each in asked if each[1]][:most]
        return asked

    def _names(self, opinion: Opinion, start: int, end: int, least: "Least") -> bool:
        return (
            opinion.likelihood(self._model.person, start, end) >= least.person
            and self._naming(start, end, opinion) >= least.named
        )

    def _naming(self, start: int, end: int, opinion: Opinion) -> int:
        return sum(
            opinion.likelihood(kind, start, end)
            for kind, name in self._model.classes.items()
            if name in NAMING
        )

    def _carried(
        self, text: str, places: Sequence[tuple[int, int]], opinion: Opinion
    ) -> Iterator[Span]:
        """Yield ordinary words that a particle joins to a name, if a model agrees."""
        for (start, end), surely in carried(text, places):
            likely = opinion.likelihood(self._model.person, start, end)
            if not surely and likely >= LEAST_CARRIED:
                yield _person("name-beside", start, end, NEIGHBOUR_SCORE)

    def _unseen(self, reading: Reading, opinion: Opinion) -> Iterator[Span]:
        """Yield people that rules and lists see, whether or not the model does."""
        text = reading.text
        for span in (*people(text), *people_in(reading), *titled(reading)):
            if self._holds(reading, span, opinion):
                yield span
        for suspect in suspects(reading):
            yield from self._weighed(text, suspect, opinion)
        if isinstance(opinion, PlainOpinion):
            return  # it clears nothing, so every unknown word would be a person
        yield from self._small(reading, opinion)
        if reading.english:
            yield from self._asked(text, opinion)

    def _asked(self, text: str, opinion: Opinion) -> Iterator[Span]:
        """Yield unknown words where English sentences name a person."""
        for start, end, surely in asked(text):
            likely = self._likely(text, start, end, opinion)
            least = LEAST_ASKED if surely else LEAST_LINKED
            if surely and text[start].isupper():
                least = LEAST_ADDRESSED
            if likely >= least and not is_nobody(text, start, end):
                yield _person("name-asked", start, end, ASKED_SCORE)

    def _entity(
        self, reading: Reading, entity: Entity, opinion: Opinion
    ) -> Iterator[Span]:
        text = reading.text
        found = text[entity.start : entity.end]
        data_class = self._class_of(text, entity)
        if data_class in NAMING and (
            is_nobody(text, entity.start, entity.end)
            or _is_health(found)
            or is_thing(reading, entity.start, entity.end)
        ):
            return
        if data_class in (CITY, EMPLOYER) and _is_description(text, found):
            return
        if data_class == EMPLOYER and is_spoken_of(text, entity.start, found):
            return
        # A surname alone is as often labelled a place or a company.
        if (
            data_class in (CITY, EMPLOYER)
            and not isinstance(opinion, PlainOpinion)
            and not is_place_or_company(text, entity.start, entity.end)
            # These signs are English; in other languages the model must have doubts.
            and (
                reading.english
                or opinion.likelihood(self._model.person, entity.start, entity.end)
                >= LEAST_DOUBTED
            )
        ):
            for start, end in unknown_words(text, entity.start, entity.end):
                yield _person(self.id, start, end, entity.score)
            return
        if data_class == PERSON and (
            _is_no_name(text, entity)
            or (
                entity.score < SURE_WORD
                and is_ordinary(reading, found)
                # "Malte" is a verb in German, but a person in "Malte von Felde".
                and not (found[0].isupper() and is_carried_on(text, entity.end))
            )
        ):
            return
        if data_class is not None:
            yield Span(
                data_class=data_class,
                detector=self.id,
                start=entity.start,
                end=entity.end,
                score=entity.score,
            )

    def _class_of(self, text: str, entity: Entity) -> str | None:
        """Return the class of an entity by its words and those before it."""
        found = text[entity.start : entity.end]
        before = text[max(entity.start - _BEFORE, 0) : entity.start]
        data_class = finer_class(self._model.classes[entity.kind], found, before)
        joined_name = data_class in (CITY, EMPLOYER) and is_joined_name(found)
        return PERSON if joined_name else data_class

    def _whole(self, name: str, text: str, score: int) -> Span:
        return Span(
            data_class=name, detector=self.id, start=0, end=len(text), score=score
        )

    def _weighed(self, text: str, suspect: Suspect, opinion: Opinion) -> Iterator[Span]:
        """Yield a suspect as a person, unless the model clears it."""
        # A model without opinions on other words would make each noun a name.
        if suspect.why is Why.NOUN and isinstance(opinion, PlainOpinion):
            return
        over = [
            each
            for each in opinion.entities
            if suspect.start < each.end and each.start < suspect.end
        ]
        if any(self._model.classes[each.kind] == PERSON for each in over):
            return
        likely = opinion.likelihood(self._model.person, suspect.start, suspect.end)
        least = LEAST_IN_ENTITY if over else LEAST_LIKELY[suspect.why]
        word = bare(text[suspect.start : suspect.end])
        if suspect.why in (Why.CAPITAL, Why.FIRST, Why.NOUN) and (
            word.endswith(wordlists.UNSURE_ENDINGS)
            or suspect.end - suspect.start <= SHORT_CHARS
            or word in wordlists.PLACES
            or word in wordlists.ORGANISATIONS
        ):
            least = max(least, LEAST_OF_THING)
        if (
            likely >= least
            or (
                not over
                and self._likely(text, suspect.start, suspect.end, opinion)
                >= LEAST_NAMED
            )
            or any(
                self._model.classes[each.kind] == PERSON
                and _is_adjacent(text, suspect, each)
                for each in opinion.entities
            )
        ):
            yield Span(
                data_class=PERSON,
                detector=f"name-{suspect.why}",
                start=suspect.start,
                end=suspect.end,
                score=suspect.score,
            )

    def _likely(self, text: str, start: int, end: int, opinion: Opinion) -> int:
        """Return how likely a word names a person, in thousandths.

        A surname alone is often labelled a place or a company, so those count as well
        unless there are signs of one.
        """
        if not is_place_or_company(text, start, end):
            return self._naming(start, end, opinion)
        return opinion.likelihood(self._model.person, start, end)

    def _holds(self, reading: Reading, span: Span, opinion: Opinion) -> bool:
        """Return whether the model agrees on a name that a single word introduced."""
        text = reading.text
        if span.detector not in LEAST_ANNOUNCED or isinstance(opinion, PlainOpinion):
            return True
        if is_nobody(text, span.start, span.end) or is_thing(
            reading, span.start, span.end
        ):
            return False
        return (
            self._likely(text, span.start, span.end, opinion)
            >= (LEAST_ANNOUNCED[span.detector])
        )


# --- tuned on the developers' parts; docs/detection.md has the figures for the others

LEAST_TOPIC: Final = 20  # below this score, a topic is not a finding
SURE_TOPIC: Final = 50  # from this score on, a text is about a person
# How likely the model must consider a suspect that it did not choose, in thousandths.
# A listed name with a capital counts whatever the model returns.
LEAST_LIKELY: Final[Mapping[Why, int]] = {
    Why.LISTED: 0,
    Why.GIVEN: 5,
    Why.CAPITAL: 20,
    Why.FIRST: 50,
    Why.HANDLE: 0,
    Why.NOUN: 60,
}
LEAST_DOUBTED: Final = 50  # the same for words that it labels a place or a company
LEAST_NAMED: Final = 200  # the same for a person, a place or a company without signs
LEAST_OF_THING: Final = 300  # the same for a person whose name ends like a substance
LEAST_ASKED: Final = 30  # the same for a lower-case word after "ask" or "pay"
LEAST_ADDRESSED: Final = 3  # for a word with a capital there
LEAST_LINKED: Final = 200  # for a word after "to" or "from", or before "has"
LEAST_CARRIED: Final = 4  # the same for an ordinary word after "von der" or "am"
# the same after "tenant", "name =", and after a title that is ambiguous
LEAST_ANNOUNCED: Final[Mapping[str, int]] = {ROLE: 100, KEYED: 100, UNSURE_TITLE: 20}
SMALL_SCORE: Final = 45


@dataclass(frozen=True, slots=True)
class Least:
    """The least likelihood as a person, and as a person, place or company."""

    person: int
    named: int


# For an unknown lower-case word, and for the same word with a capital.
LEAST_SMALL: Final[Mapping[Looks, Least]] = {
    Looks.FOREIGN: Least(person=0, named=1),
    Looks.FOREIGN_NOUN: Least(person=0, named=4),
    Looks.NATIVE: Least(person=3, named=3),
    Looks.NATIVE_NOUN: Least(person=20, named=20),
    Looks.FORMED: Least(person=20, named=20),
    Looks.LISTED: Least(person=0, named=3),
}
LEAST_WITH_CAPITAL: Final[Mapping[Looks, Least]] = {
    Looks.FOREIGN: Least(person=20, named=40),
    Looks.FOREIGN_NOUN: Least(person=150, named=150),
    Looks.NATIVE: Least(person=150, named=150),
    Looks.NATIVE_NOUN: Least(person=200, named=200),
    Looks.FORMED: Least(person=200, named=200),
    Looks.LISTED: Least(person=300, named=950),
}
# With a capital, if the lower-case word raised no doubt.
LEAST_SURELY: Final[Mapping[Looks, Least]] = {
    Looks.FOREIGN: Least(person=15, named=700),
    Looks.FOREIGN_NOUN: Least(person=700, named=900),
    Looks.NATIVE: Least(person=15, named=700),
    Looks.NATIVE_NOUN: Least(person=700, named=900),
    Looks.FORMED: Least(person=300, named=800),
    Looks.LISTED: LEAST_WITH_CAPITAL[Looks.LISTED],
}
# In languages that capitalise every noun, the model takes few other words for names.
LEAST_BETWEEN_NOUNS: Final[Mapping[Looks, Least]] = {
    each: Least(person=0, named=150 if each.startswith("small-foreign") else 400)
    for each in Looks
} | {Looks.LISTED: LEAST_WITH_CAPITAL[Looks.LISTED]}
MOST_UNKNOWN: Final = 24  # lower-case words per text that are judged
ASKED_CHARS: Final = 1000  # characters judged for them, plus half of the text's
ASKED_AT_MOST: Final = 8  # times the length of the text
SHORT_CHARS: Final = 3
ACRONYM_CHARS: Final = 6  # longer words in capitals may be emphasis
ASKED_SCORE: Final = 60
NEIGHBOUR_SCORE: Final = 50
# The classes that mean that something has a name.
NAMING: Final = frozenset({PERSON, CITY, EMPLOYER})
SURE_WORD: Final = 95  # from this score on, an ordinary word is a person
LEAST_IN_ENTITY: Final = 50  # the same if the model chose another kind


def _without_marks(text: str, entity: Entity) -> Entity | None:
    """Return an entity without the marks before it; None if nothing else remains.

    In "mr. smith", the model takes ". smith" for the name. Replaced as it is, that
    would leave "mr[PERSON_1]"; and no list has a word with a leading mark.
    """
    found = text[entity.start : entity.end]
    if len(found) != entity.end - entity.start or not found:
        return entity  # not a place in the text, which ``checked`` reports
    marks = len(found) - len(found.lstrip(".,;: \t\n"))
    return None if marks == len(found) else replace(entity, start=entity.start + marks)


def joined(text: str, named: Iterable[Span]) -> Iterator[Span]:
    """Yield people so that all words of one name are in one span.

    The spans of a name from rules, lists and the model overlap or are adjacent. If only
    the most certain one were kept, the rest of the name would be sent.
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


def finer_class(data_class: str, found: str, before: str = "") -> str | None:
    """Return an entity's class after a check of its words and those before it.

    None if they show that it is nothing: a model takes a part number for an address and
    "girl" for an age.
    """
    if data_class == NATIONALITY and (
        _is_special(found) or found.lower().endswith("lingual")
    ):
        return None  # a religion or a party, which the lexicon has
    if data_class == AGE:
        return _age_class(found)
    if data_class == ADDRESS:
        return _address_class(found, before)
    if data_class == DATE:
        is_date = len(found) <= _LONGEST_DATE and _CALENDAR_DATE.search(found)
        return DATE if is_date else None
    return data_class


def _person(detector: str, start: int, end: int, score: int) -> Span:
    return Span(data_class=PERSON, detector=detector, start=start, end=end, score=score)


def _is_health(found: str) -> bool:
    """Return whether a single word is an illness or a drug in the lexicon."""
    listed = class_of(bare(found.strip()))
    return listed is not None and listed.startswith("health.")


def _is_description(text: str, found: str) -> bool:
    """Return whether a place or company is described without identifying a person.

    A state or a larger region; "the university hospital" in a text that uses capitals;
    an acronym that is in no list is not a place by itself.
    """
    plain = found.lower().split()
    if "".join(plain).replace(".", "").removeprefix("the") in wordlists.REGIONS:
        return True
    if found.isupper() and len(plain) == 1 and len(found) <= ACRONYM_CHARS:
        return not text.isupper() and not (
            is_listed(plain[0]) or plain[0] in wordlists.ORGANISATIONS
        )
    return (
        found.islower()
        and not text.islower()
        and all(
            word in wordlists.COMMON or is_term(word) or _is_health(word)
            for word in plain
        )
    )


def _is_no_name(text: str, entity: Entity) -> bool:
    """Return whether an uncertain person is a mark, a letter or an ordinary word."""
    found, score = text[entity.start : entity.end], entity.score
    if sum(map(str.isalpha, found)) < MIN_NAME_CHARS:
        return True
    if is_identifier(text, entity.start, entity.end):
        return True
    plain = bare(found.strip("@#\"'"))
    if found.isupper() and plain in ACRONYMS:
        return True
    if found.islower() and plain.endswith(wordlists.ENDINGS) and score < SURE_WORD:
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


def _address_class(found: str, before: str) -> str | None:
    """Return the class of a house or a place; None for a number of any other kind."""
    if _STREET.search(found):
        return ADDRESS
    if _NUMBERED.fullmatch(found.strip()) and not _DWELLS.search(before):
        return None
    found = _COUNT.sub("", found)
    # A number and a name in different cells of a table are not an address.
    if any(_PLACE_NAME.search(at) and _NUMBER.search(at) for at in _CELL.split(found)):
        return ADDRESS
    if _ZIP.fullmatch(found):
        return ZIP
    return CITY if _PLACE_NAME.search(found) else None


def _is_adjacent(text: str, suspect: Suspect, entity: Entity) -> bool:
    """Return whether a suspect is directly before or after an entity."""
    low, high = sorted(((suspect.start, suspect.end), (entity.start, entity.end)))
    between = text[low[1] : high[0]]
    return len(between) <= len(". ") and not between.strip(" .")
