"""Figures about typical questions: about a person, about no person, and hard ones."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from curtilage.lab.evaluation.bench import Bench, Wanted
from curtilage.lab.evaluation.figures import Figure, Target
from curtilage.lab.evaluation.identifiers import leaks
from curtilage.lab.evaluation.made_up import asked_about_somebody, written
from curtilage.lab.evaluation.rows import Row, marked_as, sampled, sampled_each
from curtilage.lab.evaluation.statistics import mean_of_shares

_MEDICINE: Final = frozenset(
    {
        "anatomy",
        "clinical_knowledge",
        "college_medicine",
        "medical_genetics",
        "nutrition",
        "professional_medicine",
        "virology",
    }
)
# Consumers' questions in English and Spanish about the asker or the asker's relatives.
_OWN: Final = re.compile(
    r"\b(?:i|i'?[md]|i'?ve|my|mine|me|we|our|us|he|she|his|him|hers?|husband|wife|son|"
    r"daughter|mother|father|sister|brother|mom|dad|yo|mis?|tengo|estoy|soy|tomo|he|"
    r"mí|nuestr[oa]s?|él|ella|hij[oa]|madre|padre|herman[oa]|espos[oa]|hola|gracias)\b",
    re.IGNORECASE,
)
# What identifies a person in clinical records, as their sets call it; "NAME" is PERSON.
RECORDED: Final = frozenset(
    {
        "ADDRESS",
        "CALLE",
        "CORREO_ELECTRONICO",
        "DOCTOR",
        "EMAIL",
        "ID_ASEGURAMIENTO",
        "ID_SUJETO_ASISTENCIA",
        "NOMBRE_PERSONAL_SANITARIO",
        "NOMBRE_SUJETO_ASISTENCIA",
        "NUMERO_TELEFONO",
        "PATIENT",
        "PERSON",
        "PHONE",
        "SSN",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clean:
    """Questions that are about no person.

    Attributes:
        title: for people.
        sets: the data sets.
        counted: whether they are part of the mean that has the target.
    """

    title: str
    sets: tuple[str, ...]
    counted: bool = True


CLEAN: Final[Mapping[str, Clean]] = MappingProxyType(
    {
        "biomedical": Clean(title="biomedical (pubmedqa)", sets=("pubmedqa",)),
        "consumer": Clean(
            title="consumers' health (medquad, xlinghealth)",
            sets=("medquad", "xlinghealth"),
        ),
        "exam": Clean(title="exams (mmlu)", sets=("mmlu-professional",)),
        "tables": Clean(
            title="tables (tatqa, wikitablequestions)",
            sets=("tatqa-tables", "wikitablequestions"),
        ),
        "french": Clean(title="French medical exam", sets=("frenchmedmcqa",)),
        "requests": Clean(title="requests, 18 languages (xsid)", sets=("xsid",)),
        "code": Clean(title="code prompts", sets=("code-prompts",), counted=False),
        "legal": Clean(title="legal clauses", sets=("legalbench-part",), counted=False),
        "problems": Clean(
            title="word problems, 10 languages (mgsm)", sets=("mgsm",), counted=False
        ),
        "vignettes": Clean(
            title="exam vignettes (medqa)", sets=("medqa-vignettes",), counted=False
        ),
    }
)


def questions(bench: Bench, name: str) -> list[Row]:
    """Return a set's rows, without those in which the asker mentions a person."""
    rows = bench.rows(name)
    if name != "xlinghealth":
        return list(rows)
    known = [row for row in rows if {"en", "es"}.intersection(row.tags)]
    return [row for row in known if not _OWN.search(row.text)]


def clinical(bench: Bench) -> Iterator[Figure]:
    """Yield where clinical questions about a person go, and those about no person."""
    impersonal: dict[str, tuple[Row, ...]] = {}
    for name in ("medquad", "pubmedqa", "xlinghealth", "mmlu-professional"):
        found = [row for row in questions(bench, name) if "es" not in row.tags]
        if name == "mmlu-professional":
            found = [row for row in found if _MEDICINE.intersection(row.tags)]
        impersonal[name] = bench.sample(found)
    impersonal["our own"] = tuple(filter(bench.has, written("clinicians")))
    every = [row for rows in impersonal.values() for row in rows]
    somebody = {"en": sampled(asked_about_somebody(every, "en"), bench.limit)}
    for lang, name in (
        ("es", "xlinghealth"),
        ("fr", "frenchmedmcqa"),
        ("de", "covid-faq"),
    ):
        found = [row for row in questions(bench, name) if lang in row.tags]
        asked = asked_about_somebody(bench.sample(found), lang)
        somebody[lang] = sampled(asked, bench.limit)
    for lang, rows in somebody.items():
        yield bench.figure(
            f"clinical.somebody.{lang}",
            f"clinical questions about somebody, {lang}: stay or lose them",
            rows,
            Wanted.NAMELESS,
            target=Target.at_least(0.995),
        )
    title = "of them, marks that leave"
    yield from leaks(
        bench,
        "clinical.leak",
        title,
        somebody["en"],
        frozenset(gold.kind for row in somebody["en"] for gold in row.gold),
    )
    for name in ("meddocan", "contextual-anonymizer"):
        rows = bench.sample(marked_as(bench.rows(name), RECORDED))
        yield bench.figure(
            f"clinical.records.{name}",
            f"records ({name}): do not leave as they are",
            rows,
            Wanted.CAUGHT,
            target=Target.at_least(0.995),
        )
        yield from leaks(bench, f"clinical.records.leak.{name}", title, rows, RECORDED)
    yield bench.figure(
        "clinical.nobody",
        "clinical questions about no person: kept home",
        every,
        Wanted.HOME,
        target=Target.at_most(0.25),
    )
    for name, rows in impersonal.items():
        slug = name.replace(" ", "_")
        yield bench.figure(f"clinical.nobody.{slug}", f"  {name}", rows, Wanted.HOME)


def clean(bench: Bench) -> Iterator[Figure]:
    """Yield which clean questions may be sent, by source, and their mean."""
    counted: list[Figure] = []
    for name, each in CLEAN.items():
        chosen: list[Row] = []
        for one in each.sets:
            chosen += bench.sample(questions(bench, one))
        figure = bench.figure(f"clean.{name}", each.title, chosen, Wanted.LEAVES)
        counted += [figure] if each.counted else []
        yield figure
    yield Figure(
        id="clean.mean",
        title="mean of the first six",
        estimate=mean_of_shares([each.estimate for each in counted]),
        target=Target.at_least(0.85),
        stocks=tuple(
            mean_of_shares([each.stocks[at] for each in counted])
            for at in range(len(bench.stocks))
        ),
    )
    requests = bench.rows("xsid")
    for lang in sorted({row.tags[0] for row in requests}):
        part = [row for row in requests if lang in row.tags]
        rows = sampled(part, max(bench.limit // 4, 1))
        yield bench.figure(
            f"clean.requests.{lang}", f"  requests, {lang}", rows, Wanted.LEAVES
        )


def hard(bench: Bench) -> Iterator[Figure]:
    """Yield which hard everyday prompts may be sent, in English and overall."""
    english: list[Row] = []
    for name in ("arena-hard", "mt-bench", "routing"):
        rows = bench.sample(bench.rows(name))
        english += rows
        yield bench.figure(f"hard.english.{name}", f"  {name}", rows, Wanted.LEAVES)
    yield bench.figure(
        "hard.english",
        "hard everyday prompts, English",
        english,
        Wanted.LEAVES,
        target=Target.at_least(0.80),
    )
    others = [row for name in ("mgsm", "xquad-questions") for row in bench.rows(name)]
    langs = sorted({row.tags[0] for row in others})
    each = sampled_each(others, langs, 2 * bench.limit)
    share = sampled(english, max(len(each) // max(len(langs), 1), 1))
    yield bench.figure(
        "hard.all",
        "hard everyday prompts, all languages (mgsm, xquad)",
        [*each, *share],
        Wanted.LEAVES,
        target=Target.at_least(0.75),
    )
    for lang in langs:
        part = [row for row in each if lang in row.tags]
        yield bench.figure(f"hard.all.{lang}", f"  {lang}", part, Wanted.LEAVES)
