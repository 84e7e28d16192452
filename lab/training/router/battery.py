"""The battery of office requests, edits that preserve the meaning, and its figures.

For a score, the threshold is chosen that keeps a given share of the battery local.
Three figures follow: the routine requests below it, the hard ones above it, and how
many of those kept local are still kept local when they are phrased slightly
differently.
"""

import json
import random
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

FILE = Path(__file__).with_name("battery.toml")
BLIND = Path(__file__).with_name("blind.jsonl")
ROUTINE_KINDS: Mapping[str, str] = {
    "autocomplete": "transform",
    "classification": "classification",
    "extraction": "extraction",
    "rewriting": "transform",
    "answering": "qa",
}
HARD_KINDS: Mapping[str, str] = {
    "code": "code",
    "reasoning": "reasoning",
    "long": "",  # the requests differ; the length makes them hard
    "expert": "reasoning",
    "planning": "reasoning",
}
ROUTINE_INTENTS = frozenset(ROUTINE_KINDS.values())
KEPT_SHARE = 0.70
_LONG_CHARACTERS = 6000
_TEXT_SENTENCES = 4
_TYPO_EVERY = 40

Half = Literal["developed", "learned", "held"]
Numbers = npt.NDArray[np.float64]
Score = Callable[[str], float]


@dataclass(frozen=True, slots=True)
class Request:
    """One request, its language and its kind."""

    text: str
    language: str
    kind: str

    @property
    def routine(self) -> bool:
        """Whether a small model does it about equally well."""
        return self.kind in ROUTINE_KINDS

    @property
    def hard(self) -> bool:
        """Whether a strong model's answer is worth having."""
        return self.kind in HARD_KINDS

    @property
    def side(self) -> str:
        """``routine``, ``hard``, or ``either``: both are acceptable."""
        return "routine" if self.routine else "hard" if self.hard else "either"


def blind() -> list[Request]:
    """Return 120 requests by an author who saw neither the battery nor the router."""
    rows = map(json.loads, BLIND.read_text("utf-8").splitlines())
    return [Request(row["text"], row["lang"], row["kind"]) for row in rows]


def requests(half: Half) -> list[Request]:
    """Return one part of the battery."""
    made: list[Request] = []
    for language, read in tomllib.loads(FILE.read_text("utf-8")).items():
        sentences = list(_sentences(read["sentences"]))
        parts = {"{text}": sentences[:_TEXT_SENTENCES], "{long}": sentences}
        made += [
            Request(_filled(text, parts), language, kind)
            for kind, texts in read[half].items()
            for text in texts
        ]
    return made


def _filled(template: str, parts: Mapping[str, Sequence[str]]) -> str:
    for name, sentences in parts.items():
        template = template.replace(name, " ".join(sentences))
    return template


def _sentences(given: Sequence[str]) -> Iterator[str]:
    """Yield sentences, each time with another number, until they form a document."""
    length = 0
    for at in range(_LONG_CHARACTERS):
        sentence = given[at % len(given)].replace("{n}", str(7 + at * 5 % 89))
        length += len(sentence) + 1
        if length > _LONG_CHARACTERS:
            return
        yield sentence


# Polite phrases around a request, by language: before it and after it. The first of
# each is used for training, the others are held out.
_POLITE: Mapping[str, Sequence[tuple[str, str]]] = {
    "en": (
        ("Hello, could you please help me with this? ", " Thank you."),
        ("Hi there! I was hoping you could assist me: ", ""),
        ("Good afternoon. ", " Many thanks in advance!"),
    ),
    "de": (
        ("Hallo, kannst du mir bitte dabei helfen? ", " Danke."),
        ("Guten Tag, ich hätte da eine Bitte: ", ""),
        ("Servus! ", " Vielen lieben Dank schon mal!"),
    ),
    "fr": (
        ("Bonjour, peux-tu m'aider avec ceci ? ", " Merci."),
        ("Salut ! J'aurais besoin d'un coup de main : ", ""),
        ("Bonsoir, ", " Merci beaucoup d'avance !"),
    ),
    "es": (
        ("Hola, ¿puedes ayudarme con esto? ", " Gracias."),
        ("¡Buenas! Necesito que me eches una mano: ", ""),
        ("Buenos días. ", " ¡Muchísimas gracias de antemano!"),
    ),
    "it": (
        ("Ciao, puoi aiutarmi con questo? ", " Grazie."),
        ("Buonasera! Mi servirebbe una mano: ", ""),
        ("Buongiorno, ", " Grazie mille in anticipo!"),
    ),
    "nl": (
        ("Hallo, kun je me hiermee helpen? ", " Dank je wel."),
        ("Goedemorgen! Ik kan wel wat hulp gebruiken: ", ""),
        ("Dag, ", " Alvast heel erg bedankt!"),
    ),
    "pt": (
        ("Olá, podes ajudar-me com isto? ", " Obrigado."),
        ("Boa noite! Precisava de uma ajudinha: ", ""),
        ("Bom dia. ", " Muito obrigada desde já!"),
    ),
}
_WRAPPERS: Sequence[tuple[str, str]] = (
    ("Question: ", "\nAnswer:"),
    ("### Instruction:\n", "\n\n### Response:"),
    ("Q: ", " A:"),
    ("User request -> ", ""),
)


def typos(text: str) -> str:
    """Swap two neighbouring letters inside words, about once in forty characters."""
    draw = random.Random(text)
    letters = list(text)
    places = [
        at
        for at, (one, other) in enumerate(pairwise(text))
        if one.isalpha() and other.isalpha() and one.lower() != other.lower()
    ]
    for at in draw.sample(places, min(len(places), 1 + len(text) // _TYPO_EVERY)):
        letters[at : at + 2] = reversed(letters[at : at + 2])
    return "".join(letters)


def _last_mark(text: str) -> str:
    ended = text.rstrip()
    return ended[:-1] if ended[-1:] in ".?!" else ended + "."


def edits(request: Request, half: Half) -> dict[str, str]:
    """Return a slightly rephrased request for each edit, by name."""
    text = request.text
    around = {f"polite {n}": pair for n, pair in enumerate(_POLITE[request.language])}
    around |= {f"wrapper {n}": pair for n, pair in enumerate(_WRAPPERS)}
    made = {
        name: before + text + after
        for name, (before, after) in around.items()
        if name.endswith(" 0") == (half == "developed")
    }
    made["lower case"] = text.lower()
    made["typos"] = typos(text)
    if half == "held":
        made |= {
            "first letter": text[:1].swapcase() + text[1:],
            "last mark": _last_mark(text),
            "blanks": "  ".join(text.split()),
            "line breaks": text.replace(". ", ".\n").replace(": ", ":\n"),
        }
    return made


def figures(score: Score, half: Half = "held") -> dict[str, dict[str, object]]:
    """Return the figures of a score on one half; larger scores mean more to gain."""
    rows = requests(half)
    scores = np.array([score(row.text) for row in rows])
    limit = float(np.quantile(scores, KEPT_SHARE))
    kept = scores <= limit
    languages = dict.fromkeys(row.language for row in rows)
    found: dict[str, dict[str, object]] = {
        language: _counts(
            [row for row in rows if row.language == language],
            kept[[row.language == language for row in rows]],
        )
        for language in languages
    }
    found["all"] = _counts(rows, kept)
    parts = [
        scores[[row.hard for row in rows]],
        scores[[row.routine for row in rows]],
    ]
    found["all"]["auroc, hard over routine"] = round(auroc(*parts), 3)
    same: dict[str, list[bool]] = {}
    for row, local in zip(rows, kept, strict=True):
        if local:
            for name, text in edits(row, half).items():
                same.setdefault(name, []).append(score(text) <= limit)
    steady = {name: round(float(np.mean(each)), 3) for name, each in same.items()}
    whole = float(np.mean([each for some in same.values() for each in some]))
    return found | {"still kept local": {"all": round(whole, 3)} | steady}


def _counts(rows: Sequence[Request], kept: npt.NDArray[np.bool_]) -> dict[str, object]:
    routine = [
        bool(local) for row, local in zip(rows, kept, strict=True) if row.routine
    ]
    sent = [not local for row, local in zip(rows, kept, strict=True) if row.hard]
    return {
        "routine kept local": f"{sum(routine)} of {len(routine)}",
        "hard sent": f"{sum(sent)} of {len(sent)}",
    }


def auroc(higher: Numbers, lower: Numbers) -> float:
    """Return how often one of ``higher`` is above one of ``lower``; a tie is half."""
    both = np.concatenate([higher, lower])
    _, place, times = np.unique(both, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(times) - (times - 1) / 2)[place]
    count = len(higher)
    return float((ranks[:count].sum() - count * (count + 1) / 2) / (count * len(lower)))
