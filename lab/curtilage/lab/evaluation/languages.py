"""Figures by language and country, for sensitive texts, also disguised, and others."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from curtilage.lab.evaluation.bench import Bench, Wanted
from curtilage.lab.evaluation.figures import Figure, Target
from curtilage.lab.evaluation.identifiers import leaks, lowered
from curtilage.lab.evaluation.made_up import (
    BURIED,
    FORMS,
    about_people,
    buried,
    languages,
    national,
    sentences,
    surnames,
    written,
)
from curtilage.lab.evaluation.rows import Row, marked_as, sampled

# It includes the words of Spanish clinical records for a patient's and a doctor's name.
_PERSON: Final = frozenset(
    {"PERSON", "NOMBRE_SUJETO_ASISTENCIA", "NOMBRE_PERSONAL_SANITARIO"}
)
# Names of sets; a colon limits a set to one language.
NAMED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "de": ("germeval2014", "smartdata-de", "uner-german-pud"),
        "pt": ("uner-portuguese-bosque", "uner-pud:pt"),
        "da": ("uner-danish-ddt",),
        "sv": ("swedish-ner-corpus", "uner-swedish-talbanken", "uner-pud:sv"),
        "fi": ("turku-ner",),
        "ro": ("ronec",),
        "fr": ("europeana-ner:fr",),
        "nl": ("europeana-ner:nl",),
        "es": ("meddocan",),
        "en": ("uner-ewt",),
        "no": ("uner-norwegian-ndt",),
        "hr": ("uner-croatian-set",),
        "sr": ("uner-serbian-set",),
        "sk": ("uner-slovak-snk",),
        "hu": ("nerkor",),
        "id": ("idner-news",),
        "ru": ("factrueval-ru", "uner-pud:ru"),
        "zh": ("uner-chinese-gsdsimp", "uner-pud:zh"),
        "ja": ("stockmark-ner-ja",),
        "ko": ("klue-ner-ko",),
    }
)
_ASKED_FOR: Final = frozenset(tuple(NAMED)[:9])  # the others are for information
_NUMBERS_OF: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "en": ("gb", "ie", "us"),
        "de": ("de", "at", "ch"),
        "nl": ("nl", "be"),
        "pt": ("pt", "br"),
        "sv": ("se",),
        "da": ("dk",),
    }
)
_HARMLESS: Final = (
    "xsid",
    "mgsm",
    "xquad-questions",
    "chatterbot-corpus",
    "tatoeba-short",
)
# A label of small talk alone does not make a text about oneself harmless.
_FACTS: Final = frozenset(
    {"coding", "computers", "food", "history", "literature", "movies", "science"}
)
_MOST_NUMBERS: Final = 1000


def named(bench: Bench) -> Iterator[Figure]:
    """Yield by language how many texts with a name are kept local or lose the name."""
    every: list[Row] = []
    for lang, sets in NAMED.items():
        rows: list[Row] = []
        for each in sets:
            name, _, tag = each.partition(":")
            found = [row for row in bench.rows(name) if not tag or tag in row.tags]
            rows += sampled(marked_as(found, _PERSON), max(bench.limit // len(sets), 1))
        yield bench.figure(
            f"named.{lang}",
            f"texts that name somebody, {lang}",
            rows,
            Wanted.NAMELESS,
            target=Target.at_least(0.97) if lang in _ASKED_FOR else None,
        )
        every += rows if lang in _ASKED_FOR else []
    yield from leaks(
        bench,
        "named.leak",
        f"names that leave, {len(_ASKED_FOR)} languages",
        every,
        _PERSON,
    )


def language(bench: Bench) -> Iterator[Figure]:
    """Yield six figures for each language, about sensitive and about harmless texts.

    The limit does not apply to our own texts, since they are few.
    """
    numbers = list(national(max(bench.limit // 6, 1)))
    ours = {
        name: written(name)
        for name in ("told_health", "told_special", "told_affairs", "harmless")
    }
    for lang in languages():
        countries = _NUMBERS_OF.get(lang, (lang,))
        harmless: list[Row] = []
        for name in _HARMLESS:
            found = [row for row in bench.rows(name) if row.tags[0] == lang]
            if name == "chatterbot-corpus":
                found = [row for row in found if row.tags[-1] in _FACTS]
            harmless += sampled(found, max(bench.limit // len(_HARMLESS), 1))
        own = {
            name: [row for row in rows if lang in row.tags]
            for name, rows in ours.items()
        }
        structured = bench.sample(row for row in numbers if row.tags[0] in countries)
        people = sentences(lang, "named", bench.limit)
        ill = sentences(lang, "health", bench.limit)
        for kind, rows, wanted, target in (
            (
                "identifying",
                (*people, *about_people("naming", lang)),
                Wanted.NAMELESS,
                0.95,
            ),
            (
                "structured",
                (*structured, *about_people("structured", lang)),
                Wanted.NAMELESS,
                0.99,
            ),
            ("health", (*ill, *own["told_health"]), Wanted.HOME, 0.93),
            ("special", own["told_special"], Wanted.HOME, 0.93),
            ("affairs", own["told_affairs"], Wanted.CAUGHT, 0.80),
            ("harmless", (*harmless, *own["harmless"]), Wanted.LEAVES, 0.93),
        ):
            yield bench.figure(
                f"language.{lang}.{kind}",
                f"{lang}: {kind}",
                [row for row in rows if bench.has(row)],
                wanted,
                target=Target.at_least(target),
            )


def red_team(bench: Bench) -> Iterator[Figure]:
    """Yield where the red team's evasions go, by kind and by language."""
    whole = [row for row in written("redteam") if BURIED not in row.tags]
    rows = [row for row in (*whole, *buried()) if bench.has(row)]
    yield bench.figure(
        "redteam.all",
        "texts written to get past: do not leave as they are",
        rows,
        Wanted.CAUGHT,
        target=Target.at_least(0.90),
    )
    for at, about in ((1, "kind"), (0, "lang")):
        for tag in dict.fromkeys(row.tags[at] for row in rows):
            part = [row for row in rows if row.tags[at] == tag]
            name = f"redteam.{about}.{tag.replace(' ', '_')}"
            yield bench.figure(name, f"  {tag}", part, Wanted.CAUGHT)
    # Otherwise a policy that keeps all mixed-language texts local would seem to catch
    # all.
    free = [row for row in written("harmless") if "mixed" in row.tags]
    yield bench.figure(
        "redteam.harmless",
        "in addition, harmless texts in two languages: may leave",
        [row for row in free if bench.has(row)],
        Wanted.LEAVES,
    )


def affairs(bench: Bench) -> Iterator[Figure]:
    """Yield where short sentences about somebody's health and affairs go."""
    rows = [row for row in written("health") if bench.has(row)]
    langs = len({row.tags for row in rows})
    yield bench.figure(
        "told.health",
        f"short sentences about health, {langs} languages: stay",
        rows,
        Wanted.HOME,
        target=Target.at_least(1.0),
    )
    rows = [row for row in written("unsaid") if bench.has(row)]
    for tag, title in (
        ("affairs", "somebody's money, law and work"),
        ("unsaid", "health without its words"),
        ("special", "special categories without their words"),
    ):
        yield bench.figure(
            f"told.{tag}",
            f"{title}: do not leave as they are",
            [row for row in rows if tag in row.tags],
            Wanted.CAUGHT,
            target=Target.at_least(0.80),
        )


def surname(bench: Bench) -> Iterator[Figure]:
    """Yield how often a surname alone in prose is kept local or replaced."""
    rows = [row for row in surnames(bench.limit) if bench.has(row)]
    for name, title, part, target in (
        ("capital", "with a capital", rows, 0.98),
        ("lower", "lower case", [lowered(row) for row in rows], 0.95),
    ):
        yield bench.figure(
            f"surname.{name}",
            f"a bare surname in prose, {title}",
            part,
            Wanted.NAMELESS,
            target=Target.at_least(target),
        )


def numbers(bench: Bench) -> Iterator[Figure]:
    """Yield how many valid national numbers are kept local, by country and by form.

    Each country has a tenth of the limit, at most a thousand.
    """
    count = min(max(bench.limit // 10, 1), _MOST_NUMBERS)
    rows = [row for row in national(count) if bench.has(row)]
    yield bench.figure(
        "national.all",
        "national numbers that do not leave",
        rows,
        Wanted.NAMELESS,
        target=Target.at_least(1.0),
        note=f"national numbers: {count} valid ones of each country in three forms",
    )
    for tag in (*FORMS, *sorted({row.tags[0] for row in rows})):
        part = [row for row in rows if tag in row.tags]
        name = tag.replace(" ", "_")
        yield bench.figure(f"national.{name}", f"  {tag}", part, Wanted.NAMELESS)
