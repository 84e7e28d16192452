"""What a query asks for, and what a stronger model would add: the words and the rules.

Pure: text in, numbers out. An estimate holds no text. The rules need nothing but the
standard library; a learned estimator (``ngram``) takes their place where one is loaded
that was shown to beat chance.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from typing import Final, Literal, Protocol

from curtilage.client.query import MESSAGE_TOKENS

THRESHOLD: Final = 0.70  # an intent of less confidence is told as unknown
HEAD_CHARS: Final = 1200
TAIL_CHARS: Final = 600
_EDGE_WORDS: Final = 8  # a task is said at the beginning or at the end
_LONG_TOKENS: Final = 1000
_VERY_LONG_TOKENS: Final = 4000
_SHORT_TOKENS: Final = (
    120  # so much to rewrite, sort or read something out of is little
)
_OCTETS_PER_TOKEN: Final = 3.7


@unique
class Intent(StrEnum):
    """What is to be done; ``UNKNOWN`` where nothing is confident enough."""

    CLASSIFICATION = "classification"
    EXTRACTION = "extraction"
    SUMMARISATION = "summarisation"
    GENERATION = "generation"
    TRANSFORM = "transform"
    QA = "qa"
    REASONING = "reasoning"
    CODE = "code"
    UNKNOWN = "unknown"


KNOWN: Final = tuple(each for each in Intent if each is not Intent.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What is expected of one query; no word of it.

    Attributes:
        intent: what is asked for.
        intent_confidence: 0 to 1; of the likeliest intent, also where that is not
            likely enough to be named.
        gain: expected quality of the strong tier's answer minus that of the home
            model's, -1 to 1.
        gain_low: lower end of the interval in which the gain is believed to be.
        gain_high: its upper end.
        source: what estimated: a learned model or the rules; ``unread``: neither, since
            nothing was to be chosen.
        prompt_tokens: about how many tokens the text has.
        answer_tokens: about how many the answer will have; at most what was asked for.
    """

    intent: Intent
    intent_confidence: float
    gain: float
    gain_low: float
    gain_high: float
    source: Literal["ngram", "rules", "unread"]
    prompt_tokens: int
    answer_tokens: int


class RouterModelError(Exception):
    """A learned estimator's file is another one than expected, or broken.

    Messages name arrays and sizes.
    """


class Estimator(Protocol):
    """Whatever makes an estimate of a text; pure, and of bounded time for any text."""

    def estimate(self, query_text: str, max_tokens: int) -> Estimate:
        """Return what is expected of a query that may be answered in so many tokens."""
        ...


def ends_of(text: str) -> str:
    """Return the beginning and the end of a long text: what an estimate looks at.

    So a text of any length costs about the same. What stands in the middle is not seen,
    which costs quality at most.
    """
    if len(text) <= HEAD_CHARS + TAIL_CHARS:
        return text
    return f"{text[:HEAD_CHARS]}\n{text[-TAIL_CHARS:]}"


def prompt_tokens(text: str) -> int:
    """Return about how many tokens a text has, of any language."""
    # Counted in octets: other scripts than Latin take more of both.
    return tokens_in(len(text.encode("utf-8", "surrogatepass")))


def tokens_in(octets: int) -> int:
    """Return about how many tokens a text of so many bytes has."""
    return math.ceil(octets / _OCTETS_PER_TOKEN)


def answer_tokens(intent: Intent, prompt: int, most: int) -> int:
    """Return about how many tokens an answer has, not more than ``most``."""
    if intent is Intent.TRANSFORM:
        return max(0, min(most, prompt + 16))  # as long as what is rewritten
    return max(0, min(most, _ANSWER_TOKENS[intent]))


_ANSWER_TOKENS: Final[Mapping[Intent, int]] = {
    Intent.CLASSIFICATION: 16,
    Intent.EXTRACTION: 80,
    Intent.SUMMARISATION: 160,
    Intent.GENERATION: 350,
    Intent.QA: 160,
    Intent.REASONING: 300,
    Intent.CODE: 350,
    Intent.UNKNOWN: 250,
}

# What the strong tier adds, before anything is known of the operator's own traffic:
# small models sort, extract and rewrite about as well, and lag in code and in several
# steps.
GAIN: Final[Mapping[Intent, float]] = {
    Intent.CLASSIFICATION: 0.0,
    Intent.EXTRACTION: 0.03,
    Intent.TRANSFORM: 0.05,
    Intent.SUMMARISATION: 0.08,
    Intent.QA: 0.12,
    Intent.GENERATION: 0.15,
    Intent.UNKNOWN: 0.18,
    Intent.REASONING: 0.35,
    Intent.CODE: 0.35,
}
GAIN_SPREAD: Final = 0.15
_GAIN_LONG: Final = 0.08
_GAIN_VERY_LONG: Final = 0.20
_GAIN_SECOND_SIGN: Final = 0.10  # several steps or code, where the intent is another
_DOUBT: Final = 0.4  # the weight of what no cue told

# Words and pairs of words ("list_all") that say what is to be done, in English, German,
# French, Spanish, Italian, Dutch and Portuguese. One with a colon counts double: it is
# hardly said otherwise; one with a question mark half: "write" may be anything.
_CUES: Final[Mapping[Intent, str]] = {
    Intent.CLASSIFICATION: """
        is_this is_it true_or false: sentiment: classify: categorize: categorise:
        classification: label: category: spam: positive_or negative: tone_of
        klassifiziere: klassifizieren: ordne: einordnen kategorie: stimmung: einstufen:
        classe: classer: classifie: classifiez: catégorie: étiquette: négatif:
        clasifica: clasificar: categoría: sentimiento: etiqueta: negativo: negativa:
        classifica: classificare: categoria: etichetta: classificar: classifique:
        classificeer: categorie: indelen: sentimento: négative:""",
    Intent.EXTRACTION: """
        extract: extrahiere: extrahieren: extrais: extraire: extrayez: extrae: extraer:
        extrai: estrai: estrarre: extraheer: haal_uit extraia: extrair: identify_all
        list_all find_all pull_out all_names all_dates liste_alle nenne_alle finde_alle
        all_email alle_namen alle_daten tous_les todas_las tutti_i todos_os alle_datums
        noms_propres mentioned_in erwähnt as_json als_json en_json in_json""",
    Intent.SUMMARISATION: """
        summarize: summarise: summary: tldr: tl_dr abstract condense: main_points
        key_points zusammen: zusammenfassen: zusammenfassung: kernpunkte: hauptpunkte
        résume: résumer: résumé: résumez: synthèse: resume: resumir: resumen: resumo:
        resuma: riassumi: riassumere: riassunto: sintesi: vat_samen samenvatten:
        samenvatting: samengevat in_brief recap: recapitulate:""",
    Intent.TRANSFORM: """
        rewrite: rephrase: paraphrase: translate: translation: shorten: proofread:
        reword: convert: correct_the fix_the grammar: more_formal politely: polish
        übersetze: übersetzen: umschreiben: formuliere: umformulieren: kürze:
        korrigiere: höflicher: förmlicher: traduis: traduire: traduisez: reformule:
        reformuler: corrige: corriger: raccourcis: traduce: traducir: traduzca:
        reescribe: reescribir: acorta: traduci: tradurre: riscrivi: riscrivere:
        correggi: accorcia: parafrasa: vertaal: vertalen: herschrijf: herschrijven:
        verbeter: traduz: traduza: traduzir: reescreva: reescrever: corrija:
        reformula:""",
    Intent.QA: """
        what? who? where? when? which? why? what_is what_are who_is how_does how_do
        explain was_ist wer? wann? wo? wie? warum? welche? erkläre qu'est qui_est
        quand? où? pourquoi? quel_est quelle_est explique qué? quién? cuándo? dónde?
        cuál? explica quando? dove? perché? quale? cos'è spiega wat? wie_is wanneer?
        waar? waarom? welke? uitleggen leg_uit quem? onde? qual? explique""",
    Intent.GENERATION: """
        write? compose: draft: poem: story: essay: email: brainstorm: suggest: invent:
        slogan: letter: imagine: create? outline: blog: speech: ideas: headline:
        tagline: schreibe? schreib? verfasse: gedicht: geschichte entwirf: erfinde:
        brief: rede: vorschläge: ideen: écris? écrivez? rédige: rédiger: poème:
        histoire lettre: invente: idées: escribe? escriba? redacta: redactar: poema:
        cuento: carta: inventa: scrivi? scrivere? racconto: poesia: lettera: proponi:
        schrijf? schrijven? gedichtje: verhaal: bedenk: escreva? escreve? redige:
        história conto: invente: crie""",
    Intent.REASONING: """
        how_many how_much calculate: compute: prove: derive: solve: step_by puzzle:
        equation: probability: logic: deduce: integral: percent: trade_offs compare
        wie_viele wie_viel berechne: berechnen: beweise: löse: schritt_für gleichung:
        wahrscheinlichkeit: combien calcule: calculer: prouve: démontre: résous:
        étape_par équation: probabilité: cuántos: cuántas: cuánto: calcula: calcular:
        demuestra: resuelve: paso_a ecuación: probabilidad: quanti: quante: quanto
        calcolare: dimostra: risolvi: passo_dopo equazione: probabilità: hoeveel:
        bereken: berekenen: bewijs: stap_voor vergelijking: waarschijnlijkheid:
        quantos: quantas: calcule: calcular: prove: resolva: demonstre: passo_a
        equação: probabilidade:""",
    Intent.CODE: """
        code: python: javascript: typescript: java: rust: golang: sql: regex: html:
        css: bash: script: function: algorithm: debug: refactor: compile: api:
        unit_test unittest: stacktrace: traceback: dockerfile: funktion: programm:
        programmiere: skript: algorithmus: fonction: programme: algorithme: función:
        programa: algoritmo: funzione: programma: functie: algoritme: função: c++:
        pandas: numpy: numba: react: kubernetes: yaml_file shell: segfault:
        nullpointerexception:""",
}
_WORD: Final = re.compile(r"[^\W_]+(?:['\u2019+][^\W_]+|\+\+)?")
_CODE_SIGN: Final = re.compile(
    r"```|</\w|#include|\bdef \w+\(|\w\(\)|[;{]\s*\n|=>|!=|==|\bselect .{1,80} from\b"
)
_STEPS_SIGN: Final = re.compile(
    r"step[ -]by[ -]step|schritt für schritt|étape par étape|paso a paso|passo a passo"
    r"|stap voor stap|\bprove\b|\bderive\b|\bif and only if\b|\bfirst\b.{1,80}\bthen\b"
    r"|\d\s*[-+*/^=]\s*\d|\bhow many\b|\beach\b.{1,80}\beach\b"
)


_CUE_WEIGHT: Final = {":": 2.0, "?": 0.5}


def _parse_cues() -> dict[str, tuple[Intent, float]]:
    cues: dict[str, tuple[Intent, float]] = {}
    for intent, words in _CUES.items():
        for word in words.split():
            weight = _CUE_WEIGHT.get(word[-1], 1.0)
            cues.setdefault(word.rstrip("".join(_CUE_WEIGHT)), (intent, weight))
    return cues


_CUE: Final = _parse_cues()


def unread(octets: int, messages: int, most: int) -> Estimate:
    """Return what is expected of a query that is not read: its size, and no intent.

    Args:
        octets: bytes of its texts.
        messages: how many there are.
        most: how many tokens its answer may have.
    """
    gain, prompt = GAIN[Intent.UNKNOWN], tokens_in(octets) + messages * MESSAGE_TOKENS
    return Estimate(
        intent=Intent.UNKNOWN,
        intent_confidence=0.0,
        gain=gain,
        gain_low=gain - GAIN_SPREAD,
        gain_high=gain + GAIN_SPREAD,
        source="unread",
        prompt_tokens=prompt,
        answer_tokens=answer_tokens(Intent.UNKNOWN, prompt, most),
    )


@dataclass(frozen=True, slots=True)
class Signs:
    """What a text shows at first sight; read once for whatever judges by it.

    Attributes:
        ends: what is looked at of the text.
        lowered: the same in small letters.
        scores: how much its cue words say for each intent.
        in_code: whether it looks like code.
        in_steps: whether it asks for several steps.
    """

    ends: str = field(repr=False)
    lowered: str = field(repr=False)
    scores: Mapping[Intent, float]
    in_code: bool
    in_steps: bool

    @property
    def shares(self) -> list[float]:
        """What part of the cues speaks for each intent; the rest is what none told."""
        whole = sum(self.scores.values()) + _DOUBT
        return [each / whole for each in self.scores.values()]


def signs_of(text: str) -> Signs:
    """Return what a text of any length shows."""
    ends = ends_of(text)
    lowered = ends.lower()
    scores: dict[Intent, float] = dict.fromkeys(KNOWN, 0.0)
    for intent, weight in _cues_of(_WORD.findall(lowered)):
        scores[intent] += weight
    return Signs(
        ends=ends,
        lowered=lowered,
        scores=scores,
        in_code=_CODE_SIGN.search(lowered) is not None,
        in_steps=_STEPS_SIGN.search(lowered) is not None,
    )


class RulesEstimator:
    """Judges by cue words, length, marks of several steps and marks of code.

    Args:
        threshold: the confidence from which an intent is named.
    """

    def __init__(self, threshold: float = THRESHOLD) -> None:
        self._threshold = threshold

    def estimate(self, query_text: str, max_tokens: int) -> Estimate:
        """Return what the rules expect."""
        signs, tokens = signs_of(query_text), prompt_tokens(query_text)
        return self.judge(signs, tokens, max_tokens)

    def judge(self, signs: Signs, tokens: int, max_tokens: int) -> Estimate:
        """Return what the rules expect of a text that shows this, of so many tokens."""
        scores = dict(signs.scores)
        scores[Intent.CODE] += 2.0 * signs.in_code
        scores[Intent.REASONING] += 2.0 * signs.in_steps
        best, most = max(scores.items(), key=lambda each: each[1])
        # A lone weak cue ("what") is worth little; several for one intent much.
        confidence = most / (sum(scores.values()) + _DOUBT)
        intent = best if confidence >= self._threshold else Intent.UNKNOWN
        gain = GAIN[intent]
        if intent not in {Intent.CODE, Intent.REASONING}:
            gain += _GAIN_SECOND_SIGN * (signs.in_code or signs.in_steps)
        if tokens > _VERY_LONG_TOKENS:
            gain += _GAIN_VERY_LONG
        elif tokens > _LONG_TOKENS:
            gain += _GAIN_LONG
        elif tokens > _SHORT_TOKENS:
            gain += _GAIN_LONG / 2
        return Estimate(
            intent=intent,
            intent_confidence=confidence,
            gain=gain,
            gain_low=gain - GAIN_SPREAD,
            gain_high=gain + GAIN_SPREAD,
            source="rules",
            prompt_tokens=tokens,
            answer_tokens=answer_tokens(intent, tokens, max_tokens),
        )


def _cues_of(words: list[str]) -> Iterator[tuple[Intent, float]]:
    """Yield the cues among words, those at either end with twice their weight."""
    last = len(words) - _EDGE_WORDS
    for at, word in enumerate(words):
        # Of a pair the second word says nothing alone.
        pair = f"{word}_{words[at + 1]}" if at + 1 < len(words) else ""
        if cue := _CUE.get(pair) or _CUE.get(word):
            intent, weight = cue
            yield intent, weight * (2 if at < _EDGE_WORDS or at >= last else 1)
