"""Estimates what a query asks for, and how much better a stronger model would answer.

Pure: text in, numbers out. An estimate contains no text. The rules need only the
standard library; if learned intents are loaded (``ngram``), they are combined with the
cues. The gain is computed from the probability of each intent, the length, and signs of
code, of several steps and of hard tasks; it is smooth, so that it can be ranked.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from itertools import pairwise
from typing import Final, Generic, Literal, Protocol, TypeVar

from curtilage.client.chat.query import MESSAGE_TOKENS
from curtilage.client.routing.wording import request_in

THRESHOLD: Final = 0.70  # an intent with less confidence is reported as unknown
# By these limits an estimate for 200 kB takes 1.4 ms, about as long as for 1.2 kB
# (docs/costs.md, routing); a pasted document must not delay its own answer.
HEAD_CHARS: Final = 1200
TAIL_CHARS: Final = 600
_EDGE_WORDS: Final = 8  # the task is usually stated at the beginning or at the end
_BYTES_PER_TOKEN: Final = 3.7


@unique
class Intent(StrEnum):
    """The task; ``UNKNOWN`` if no intent is confident enough."""

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


ROUTINE_INTENTS: Final = frozenset(
    {Intent.CLASSIFICATION, Intent.EXTRACTION, Intent.TRANSFORM, Intent.QA}
)
"""Tasks that small models do about as well as strong ones if the text is short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The estimate for one query, without its text.

    Attributes:
        intent: the task.
        intent_confidence: 0 to 1; of the likeliest intent, even if that is too
            unlikely to be named. For a routine intent: that it is any of these.
        gain: expected quality of the strong tier's answer minus that of the local
            model's, -1 to 1.
        gain_low: lower end of the confidence interval of the gain.
        gain_high: its upper end.
        source: the estimator: rules with a learned model, or the rules alone;
            ``unread``: neither, since there was no choice.
        prompt_tokens: approximate number of tokens of the text.
        answer_tokens: approximate number of tokens of the answer; at most the limit of
            the request.
        most_tokens: that limit, for which an engine needs room; 0: not known.
    """

    intent: Intent
    intent_confidence: float
    gain: float
    gain_low: float
    gain_high: float
    source: Literal["ngram", "rules", "unread"]
    prompt_tokens: int
    answer_tokens: int
    most_tokens: int = 0


class RouterModelError(Exception):
    """A learned estimator's file is not the expected one, or is invalid.

    Messages contain names of arrays, and sizes.
    """


class Estimator(Protocol):
    """Estimates queries by their text; pure, with bounded time for any text."""

    def estimate(self, query_text: str, max_tokens: int) -> Estimate:
        """Return the estimate for a query whose answer may have this many tokens."""
        ...


def ends_of(text: str) -> str:
    """Return the beginning and the end of a long text, on which an estimate is based.

    So a text of any length costs about the same. The middle is not examined, which at
    most costs quality.
    """
    if len(text) <= HEAD_CHARS + TAIL_CHARS:
        return text
    # A line break and not a space between the two ends: the last word of one and the
    # first of the other must not look like one phrase.
    return f"{text[:HEAD_CHARS]}\n{text[-TAIL_CHARS:]}"


def prompt_tokens(text: str) -> int:
    """Return the approximate number of tokens of a text in any language."""
    # By bytes: scripts other than Latin have more bytes and more tokens per character.
    return tokens_in(len(text.encode("utf-8", "surrogatepass")))


def tokens_in(text_bytes: int) -> int:
    """Return the approximate number of tokens of a text of this many bytes."""
    return math.ceil(text_bytes / _BYTES_PER_TOKEN)


def answer_tokens(intent: Intent, prompt: int, most: int) -> int:
    """Return the approximate number of tokens of an answer, at most ``most``."""
    if intent is Intent.TRANSFORM:
        return max(0, min(most, prompt + 16))  # as long as the original text
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

# The gain of the strong tier, before anything is known of the operator's own traffic:
# small models are about as good at sorting, extracting, rewriting and short factual
# questions, and worse at code, at several steps and at long texts.
GAIN: Final[Mapping[Intent, float]] = {
    Intent.CLASSIFICATION: 0.0,
    Intent.EXTRACTION: 0.04,
    Intent.TRANSFORM: 0.05,
    Intent.QA: 0.06,
    Intent.SUMMARISATION: 0.09,
    Intent.GENERATION: 0.08,
    Intent.UNKNOWN: 0.11,
    Intent.REASONING: 0.36,
    Intent.CODE: 0.38,
}
GAIN_SPREAD: Final = 0.15
# By intent: the additional gain for long requests, and the number of characters at
# which half of it applies.
_GAIN_LENGTH: Final[Mapping[Intent, tuple[float, int]]] = {
    Intent.CLASSIFICATION: (0.12, 1500),
    Intent.EXTRACTION: (0.35, 1200),
    Intent.TRANSFORM: (0.12, 1200),
    Intent.QA: (0.22, 150),
    Intent.SUMMARISATION: (0.15, 1500),
    Intent.GENERATION: (0.10, 600),
    Intent.UNKNOWN: (0.22, 300),
    Intent.REASONING: (0.14, 250),
    Intent.CODE: (0.10, 300),
}
_GAIN_LONG: Final = 0.35  # of any text that a small model loses its way in
_LONG_CHARACTERS: Final = 5000
_LONG_SLOPE: Final = 3
_GAIN_SIGN: Final = 0.12  # code or several steps, where the intent is another
_GAIN_HARD_WORD: Final = 0.05
_MOST_HARD_WORDS: Final = 4
_DOUBT: Final = 0.4  # the weight of the part without any cue

# Words and pairs of words ("list_all") that say what is to be done, in English, German,
# French, Spanish, Italian, Dutch and Portuguese. One with a colon counts double: it is
# hardly said otherwise; one with a question mark half: "write" may be anything. One
# with an asterisk is the beginning of a word.
_CUES: Final[Mapping[Intent, str]] = {
    Intent.CLASSIFICATION: """
        is_this is_it true_or false: sentiment* classif* categori*: category: label*:
        spam: positive_or negative: tone_of how_urgent: urgency: priority department:
        which_team: which_category: sort_into: does_this
        klassifi*: ordne: einordnen kategorie* stimmung: einstufen: dringend* abteilung:
        dringlich*: sortiere gehört_die gehört_das zuordnen:
        classe: classer: catégor*: étiquet*: négatif: négative: urgent* urgence: service
        quel_service: est_ce priorité
        clasific*: categor* etiquet*: sentimiento: negativ* urgencia: departament*:
        prioridad pertenece
        etichett*: sentimento: urgenza: reparto: ufficio quale_ufficio: priorità
        appartiene
        classificeer: categorie: indelen: afdeling: spoed label welke_afdeling: hoort
        que_departamento: urgência: prioridade""",
    Intent.EXTRACTION: """
        extract*: extrah*: extrai* extraye* estra* extrae* haal_uit haal_eruit:
        identify_all list_all list_every list_the find_all pull_out all_names all_dates
        liste_alle nenne_alle finde_alle all_email alle_namen alle_daten tous_les
        toutes_les todas_las todas_as tutti_i tutte_le todos_os alle_datums
        noms_propres mentioned: mentioned_in erwähnt: genannt: named_here as_json:
        als_json: en_json: in_json: em_json: invoice_number phone_number*
        telefonnummer rechnungsnummer termine heraus numbers_that relève relever
        cité: mentionné* numéro_de número_de numero_di numero_della numero_della
        fechas: dates: datas nominat*: menciona* mencionad*: genoemd*: factuurnummer
        telefoonnummer elenca: recopie copia riporta""",
    Intent.SUMMARISATION: """
        summari*: summary: tldr: tl_dr abstract condense: main_points key_points
        zusammen: zusammenfass*: kernpunkte: hauptpunkte résum*: synthèse: resume:
        resumir: resumen: resumo: resuma: riassu*: sintesi: vat_samen samenvat*:
        samengevat in_brief recap: recapitul*: gist:""",
    Intent.TRANSFORM: """
        rewrit*: rephras*: paraphras*: translat*: shorten*: shorter: proofread*:
        reword*: convert: correct_the fix_the grammar: spelling: formal: more_formal
        politely: polite* polish friendlier: nicer: passive: half_as
        finish_the: finish_this: complete_the: complete_this: continue_the:
        continue_this: fill_in next_word bullet*
        übersetz*: umschreib* formulier*: umformulier*: kürz*: korrigier*: höflich*:
        förmlich* freundlicher: rechtschreibung: grammatik: passiv: vervollständig*:
        ergänze: weiter satz_zu schreib_weiter: stichpunkt* halb_so
        tradu*: reformul*: corrig*: raccourci*: aimable: passive: termine complète:
        compléter: continue fautes orthographe: plus_court
        reescrib*: acort*: completa: termina continúa: sigue amable: pasiva: más_corto
        ortografía: gramática:
        riscriv*: corregg*: accorci*: parafras*: gentile: passivo: finisci: completa
        continua ortografia: elenco_puntato
        vertaal*: vertalen: herschrij*: verbeter*: lijdende: vriendelijker: korter:
        vul_aan maak_de zin_af ga_verder spelling*
        reescrev*: corrij* passiva complete: simpático: encurta*: resumido""",
    Intent.QA: """
        what? who? where? when? which? why? what_is what_are what's whats who_is who_was
        how_does how_do stand_for: stands_for: capital_of: capital
        explain was_ist wer? wann? wo? wie? warum? welche? erkläre qu'est qui_est wofür
        hauptstadt: abkürzung: bedeutet
        quand? où? pourquoi? quel_est quelle_est explique qui? capitale: sigle:
        veut_dire signifie
        qué? quién? cuándo? dónde? cuál? explica qué_es quién_es siglas: significa*
        capital_de:
        quando? dove? perché? quale? cos'è spiega chi? sigla: capitale_della:
        wat? wie_is wanneer? waar? waarom? welke? uitleggen leg_uit hoofdstad:
        afkorting: betekent
        quem? onde? qual? explique o_que que_significa quem_é""",
    Intent.GENERATION: """
        write? compose: draft: poem: story: essay: email: brainstorm: suggest: invent:
        slogan*: letter: imagine: create? outline: blog: speech: ideas: headline:
        tagline: schreibe? schreib? verfass*: gedicht*: geschichte entwirf: erfinde:
        brief: rede: vorschläge: ideen: écris? écrivez? rédig*: poème:
        histoire lettre: invente: idées: propose: escribe? escriba? redact*: poema:
        cuento: carta: inventa: propón: scrivi? scrivere? racconto: poesia: lettera:
        proponi: schrijf? schrijven? gedichtje: verhaal: bedenk: escreve? escreva?
        redige: história conto: invente: crie sugere: sugiere:""",
    Intent.REASONING: """
        calculat*: comput* prove: deriv* solve: step_by puzzle: equation: probabilit*:
        logic: deduce: integral: percent: trade_off trade_offs compare: ratio:
        justify: argue: assess: recommend: schedule plan: planning pros_and
        berechn*: beweis*: löse: schritt_für gleichung: wahrscheinlich*: verhältnis:
        begründe*: vergleiche: plane: wäge: abwägen: prüfe_ob erörter*: empfiehl*
        calcul*: prouve* démontr*: résous: étape_par équation: justifi*: compare*
        planifi*: analys* pèse rapport_de recommand*
        demuestra*: resuelve: paso_a ecuación: razon* compara*: planific* analiza:
        sopesa: proporción recomiend*
        dimostr*: risolvi: passo_dopo equazione: motiva*: confronta*: pianific*: valuta:
        consiglia rapporto
        bereken*: bewijs: stap_voor vergelijk*: waarschijnlijkheid: verhouding: leg_uit
        plan beoordeel: adviseer: beargument*:
        demonstr*: resolva: resolve passo_a equação: justific*: planeia: analisa:
        pondera: razão recomend*""",
    Intent.CODE: """
        code: python: javascript: typescript: java: rust: golang: haskell: kotlin: sql:
        regex: html: css: bash: script*: function* algorithm*: debug*: refactor*:
        compil* api: unit_test unittest: stacktrace: traceback: dockerfile: funktion
        programm: programmier*: skript*: algoritm*: fonction programme: función
        programa funzione programma functie função c++: pandas: numpy: numba: react:
        kubernetes: yaml_file shell: segfault: nullpointerexception: thread-safe
        implement* docker* quicksort: csv json_schema""",
}
_WORD: Final = re.compile(r"[^\W_]+(?:['\u2019+][^\W_]+|\+\+)?")
_CODE_MARKS: Final = ("```", "</", "#include", "()", "=>", "!=", "==", "++)")
_CODE_SIGN: Final = re.compile(
    r"\bdef \w+\(|[;{]\s*\n|\bselect .{1,80} from\b"
    r"|\.(?<=\w\.)\w+\(|\[(?<=\w\[)\w+\]"
)
_STEPS_WORDS: Final = frozenset({"prove", "derive"})
_STEPS_PHRASES: Final = (
    *("step by step", "step-by-step", "schritt für schritt", "étape par étape"),
    *("paso a paso", "passo a passo", "stap voor stap", "if and only if"),
)
_STEPS_SIGN: Final = re.compile(
    r"\d\s*[+*/^=]\s*\d|\bfirst\b.{1,80}\bthen\b|\beach\b.{1,80}\beach\b"
)
# Requests with a typical form: answers to choose from, a scale, a gap to fill.
_CHOICE_FORM: Final = re.compile(
    r"\b(?:yes or no|ja oder nein|oui ou non|s[ií] o no|s[iì] o no|ja of nee"
    r"|sim ou não)\b|\b1\s?(?:to|bis|à|al?|tot|-|\u2013)\s?(?:5|10)\b"
    r"|\b\w{1,30}, (?:\w{1,30}, ){0,6}\w{1,30},? (?:or|oder|ou|o|of) \w{1,30}\s?[?:]"
    r"|\b\w{1,30} (?:or|oder|ou|o) \w{1,30}\s?[?:]"
)
_GAP_ENDS: Final = ("...", "\u2026")
_QUOTES: Final = " \n\"'\u00bb\u201d"
_LEAST_ROUTINE: Final = 0.45  # minimum for one of them to be named
_FORM_WEIGHT: Final = 3.0
_QUANTITIES: Final = """
    how_many how_much how_long how_far percent wie_viel wie_viele wieviel wieviele
    wie_lange wie_weit prozent combien cuánto cuánta cuántos cuántas cuanto cuantos
    quanto quanta quanti quante quantos quantas hoeveel hoe_lang hoe_ver"""
_DIGITS: Final = re.compile(r"\d+(?:[.,]\d+)*")
_NUMBER_WORDS: Final = frozenset(
    """
    two three four five six seven eight nine ten half twice third quarter double
    zwei drei vier fünf sechs sieben acht zehn halb halbe doppelt drittel
    deux trois quatre cinq sept huit dix moitié tiers quart
    dos tres cuatro cinco seis siete ocho diez mitad doble tercio
    due tre quattro cinque sei sette otto dieci metà doppio terzo
    twee drie vijf zes zeven tien helft dubbel derde
    dois três quatro sete oito dez metade dobro terço
    """.split()  # noqa: SIM905 - a list of words is read more easily in lines
)
# Words of tasks that small models do badly: arguing, weighing, planning, law, medicine.
_HARD_WORDS: Final = """
    trade_off trade_offs pros_and assumption* risk risks implication* contradict* argu*
    weigh assess* evaluat* analyse analyze analysing analyzing justify differential*
    milestone* roadmap strateg* root_cause liable liabilit* tenant tenants landlord*
    plaintiff defendant statut* guarant* lawful* unlawful* terminat* anticoag* diagnos*
    therap* treatment comorbid* creatinin* complexity thread_safe optimis* optimiz*
    abhängigkeit* risik* annahme annahmen widerspr* begründ* erörter* beurteil* haftet
    haftung* mieter* vermieter* kündig* wirksam* bürgschaft* meilenstein* komplexität
    vor_und nachteile
    dépendance* risque* hypothès* justifi* analys* locataire* bailleur* résili* licenci*
    caution* jalon* complexité traitement*
    dependenci* riesgo* supuesto* contradic* razona* razonando inquilin* arrendador*
    rescind* despid* fianza* hitos complejidad tratamiento*
    dipendenz* rischi* ipotesi contraddi* motiva* locator* conduttor* licenzia*
    fideiussion* tappe complessità
    afhankelijkhe* risico* aanname* tegenstrijdig* huurder* verhuurder* opzegg* ontsla*
    borgtocht* mijlpa* complexiteit behandeling*
    dependência* risco* pressuposto* contradiç* justific* senhorio* inquilino* despedi*
    marcos complexidade tratamento*"""
_SHORT_QUESTION_WORDS: Final = 14
_SUM_WORDS: Final = 22


_CUE_WEIGHT: Final = {":": 2.0, "?": 0.5}


_STEM_LETTERS: Final = 4  # minimum length of a stem; stems are looked up by these


_Said = TypeVar("_Said")


class _Words(Generic[_Said]):
    """A lookup table of words, pairs of words and word stems, with their meanings."""

    def __init__(self, said: Iterable[tuple[str, _Said]]) -> None:
        self._whole: dict[str, _Said] = {}
        self._begin_pairs: set[str] = set()
        self._stems: dict[str, list[tuple[str, _Said]]] = {}
        for word, meaning in said:
            stem = word.rstrip("*")
            if stem == word:
                self._whole.setdefault(word, meaning)
                self._begin_pairs.update(word.split("_")[:-1])
            else:
                self._stems.setdefault(stem[:_STEM_LETTERS], []).append((stem, meaning))

    def of(self, word: str, after: str) -> _Said | None:
        """Return the meaning of a word, with the following one or alone."""
        said = None
        # Most words begin no pair: this saves building a string for each of them.
        if word in self._begin_pairs:
            said = self._whole.get(f"{word}_{after}")
        # Pairs first: "list all" asks for extraction, while "list" alone may be
        # anything.
        if said is None:
            said = self._whole.get(word)
        if said is not None:
            return said
        # By the first four letters: testing every stem for every word would make the
        # cost of a text the product of both.
        for stem, meaning in self._stems.get(word[:_STEM_LETTERS], ()):
            if word.startswith(stem):
                return meaning
        return None


_CUE: Final = _Words(
    (word.rstrip("".join(_CUE_WEIGHT)), (intent, _CUE_WEIGHT.get(word[-1], 1.0)))
    for intent, words in _CUES.items()
    for word in words.split()
)
_HARD: Final[_Words[bool]] = _Words((word, True) for word in _HARD_WORDS.split())
_QUANTITY: Final[_Words[bool]] = _Words((word, True) for word in _QUANTITIES.split())


def unread(text_bytes: int, messages: int, most: int) -> Estimate:
    """Return the estimate for a query that is not read: by its size, without an intent.

    Args:
        text_bytes: length of its texts in bytes.
        messages: number of its messages.
        most: largest number of tokens of its answer.
    """
    gain = GAIN[Intent.UNKNOWN]
    prompt = tokens_in(text_bytes) + messages * MESSAGE_TOKENS
    return Estimate(
        intent=Intent.UNKNOWN,
        intent_confidence=0.0,
        gain=gain,
        gain_low=gain - GAIN_SPREAD,
        gain_high=gain + GAIN_SPREAD,
        source="unread",
        prompt_tokens=prompt,
        answer_tokens=answer_tokens(Intent.UNKNOWN, prompt, most),
        most_tokens=most,
    )


@dataclass(frozen=True, slots=True)
class Signs:
    """Superficial signs in a text, computed once for all estimators; no word of it.

    Attributes:
        characters: length of the whole text, without courtesies.
        words: number of words of the request.
        scores: the weight of its cues for each intent.
        numbers: how many there are, as digits or in words.
        hard_words: number of words of tasks that small models do badly.
        in_code: whether it looks like code.
        in_steps: whether it asks for several steps.
    """

    characters: int
    words: int
    scores: Mapping[Intent, float]
    numbers: int
    hard_words: int
    in_code: bool
    in_steps: bool

    @property
    def shares(self) -> list[float]:
        """Share of the cues for each intent; the rest is without any cue."""
        whole = sum(self.scores.values()) + _DOUBT
        return [each / whole for each in self.scores.values()]


def signs_of(text: str) -> Signs:
    """Return the signs in a text of any length."""
    return read(text)[1]


def read(text: str) -> tuple[str, Signs]:
    """Return the request within a text's two ends, in lowercase, and its signs."""
    # Lowercased after cutting, so that the cost does not grow with the text.
    lowered = ends_of(text).lower()
    request = request_in(lowered)
    words = _WORD.findall(request)
    scores: dict[Intent, float] = dict.fromkeys(KNOWN, 0.0)
    pairs = list(pairwise((*words, "")))
    last = len(pairs) - _EDGE_WORDS
    for at, (word, after) in enumerate(pairs):
        # The second word of a pair has no meaning alone.
        if cue := _CUE.of(word, after):
            intent, weight = cue
            # Words in the middle are often part of a pasted text, and say nothing about
            # the task; those near either end count twice.
            scores[intent] += weight * (2 if at < _EDGE_WORDS or at >= last else 1)
    if _CHOICE_FORM.search(request):
        scores[Intent.CLASSIFICATION] += _FORM_WEIGHT
    gap = words and lowered.rstrip(_QUOTES).endswith(_GAP_ENDS)
    if gap or "__" in request:
        scores[Intent.TRANSFORM] += _FORM_WEIGHT
    in_code = any(mark in lowered for mark in _CODE_MARKS) or bool(
        _CODE_SIGN.search(lowered)
    )
    in_steps = (
        not _STEPS_WORDS.isdisjoint(words)
        or any(phrase in request for phrase in _STEPS_PHRASES)
        or _STEPS_SIGN.search(request) is not None
    )
    numbers = len(_DIGITS.findall(request)) + sum(
        word in _NUMBER_WORDS for word in words
    )
    if "%" in request or _times(_QUANTITY, pairs):
        # "How many days has a leap year?" is a question of fact; with two numbers, or
        # with many words, it requires reasoning.
        summed = numbers > 1 or len(words) > _SUM_WORDS
        scores[Intent.REASONING if summed else Intent.QA] += 2.0
    elif lowered.rstrip().endswith("?") and len(words) <= _SHORT_QUESTION_WORDS:
        scores[Intent.QA] += 1.0
    # Signs count as strongly as a double cue: a pasted function often comes with no
    # word about it.
    scores[Intent.CODE] += 2.0 * in_code
    scores[Intent.REASONING] += 2.0 * in_steps
    return request, Signs(
        # Lowercase can be longer than uppercase, such as for a dotted I.
        characters=max(len(request), len(text) - len(lowered) + len(request)),
        words=len(words),
        scores=scores,
        numbers=numbers,
        hard_words=_times(_HARD, pairs),
        in_code=in_code,
        in_steps=in_steps,
    )


def expected_gain(chances: Sequence[float], signs: Signs) -> float:
    """Return the expected advantage of a strong tier's answer.

    Args:
        chances: probability of each known intent; the rest, up to 1, is doubt.
        signs: the signs in the text.
    """
    if not signs.words and not signs.in_code:
        return 0.0  # punctuation and spaces alone ask for nothing
    size = signs.characters
    # The chances are sums of floating-point numbers, and may exceed 1 by a rounding
    # error.
    doubt = max(0.0, 1.0 - sum(chances))
    gain = 0.0
    for intent, chance in zip((*KNOWN, Intent.UNKNOWN), (*chances, doubt), strict=True):
        most, half = _GAIN_LENGTH[intent]
        gain += chance * (GAIN[intent] + most * size / (size + half))
    hard = chances[KNOWN.index(Intent.CODE)] + chances[KNOWN.index(Intent.REASONING)]
    # Only as far as the intent is another: code and reasoning already have these signs
    # in their own gain, and would count twice.
    gain += _GAIN_SIGN * (1.0 - hard) * (signs.in_code or signs.in_steps)
    # Limited to a few: otherwise a long text with a word of law in each line would be
    # certain to be sent.
    gain += _GAIN_HARD_WORD * min(signs.hard_words, _MOST_HARD_WORDS) * (1.0 - hard)
    # Smooth, without a threshold: almost nothing at one page, almost all at five.
    share = size**_LONG_SLOPE / (size**_LONG_SLOPE + _LONG_CHARACTERS**_LONG_SLOPE)
    return min(1.0, gain + _GAIN_LONG * share)


def named_intent(chances: Sequence[float], threshold: float) -> tuple[Intent, float]:
    """Return the intent if it is likely enough to be named, and its probability.

    Routine intents count together: the distinction between them matters little, and a
    short request is often two of them ("which date is named here?").

    Args:
        chances: probability of each known intent.
        threshold: the confidence from which one is named.
    """
    # With an explicit key, since members of an enum have no order that means anything.
    chance, best = max(zip(chances, KNOWN, strict=True), key=lambda each: each[0])
    confidence = chance
    if best in ROUTINE_INTENTS and chance >= _LEAST_ROUTINE:
        confidence = sum(
            each
            for each, intent in zip(chances, KNOWN, strict=True)
            if intent in ROUTINE_INTENTS
        )
    return best if confidence >= threshold else Intent.UNKNOWN, confidence


class RulesEstimator:
    """Estimates by cue words, length, and signs of several steps and of code.

    Args:
        threshold: the confidence from which an intent is named.
    """

    def __init__(self, threshold: float = THRESHOLD) -> None:
        self._threshold = threshold

    def estimate(self, query_text: str, max_tokens: int) -> Estimate:
        """Return the estimate by the rules."""
        signs, tokens = signs_of(query_text), prompt_tokens(query_text)
        return self.judge(signs, tokens, max_tokens)

    def judge(self, signs: Signs, tokens: int, max_tokens: int) -> Estimate:
        """Return the estimate by the rules, for these signs and number of tokens."""
        # A single weak cue ("what") has little weight; several for one intent have
        # much.
        shares = signs.shares
        intent, confidence = named_intent(shares, self._threshold)
        gain = expected_gain(shares, signs)
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


def _times(words: _Words[bool], pairs: Iterable[tuple[str, str]]) -> int:
    return sum(words.of(word, after) is not None for word, after in pairs)
