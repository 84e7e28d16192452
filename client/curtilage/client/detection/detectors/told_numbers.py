"""Numbers spelled out in words, in the covered languages other than English.

As people dictate them: digit by digit, in pairs and in hundreds ("trentuno",
"vierhundertzwölf", "deux cent dix"), with "double", "three times the" and "then" in
between. Only a row of them is read, since many of the words alone are ambiguous.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from curtilage.client.detection.wordlists import unaccented


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_DE: Final = _list("null ein zwei drei vier fünf sechs sieben acht neun")
_NL: Final = _list("nul een twee drie vier vijf zes zeven acht negen")
_IT: Final = _list("zero uno due tre quattro cinque sei sette otto nove")
_FR: Final = _list("zéro un deux trois quatre cinq six sept huit neuf")
_ES: Final = _list("cero uno dos tres cuatro cinco seis siete ocho nueve")
_PT: Final = _list("zero um dois três quatro cinco seis sete oito nove")
DIGITS: Final = (*_DE, *_NL, *_IT, *_FR, *_ES, *_PT)
"""The ten digits of each language, in counting order."""
# Ten to nineteen.
_DE_TEENS: Final = _list(
    "zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn"
)
_NL_TEENS: Final = _list(
    "tien elf twaalf dertien veertien vijftien zestien zeventien achttien negentien"
)
_IT_TEENS: Final = _list(
    "dieci undici dodici tredici quattordici quindici sedici diciassette diciotto "
    "diciannove"
)
_FR_TEENS: Final = (
    *_list("dix onze douze treize quatorze quinze seize"),
    *("dix sept", "dix huit", "dix neuf"),
)
_ES_TEENS: Final = _list(
    "diez once doce trece catorce quince dieciséis diecisiete dieciocho diecinueve"
)
_PT_TEENS: Final = _list(
    "dez onze doze treze catorze quinze dezasseis dezassete dezoito dezanove"
)
# Twenty, thirty and so on.
_DE_TENS: Final = _list(
    "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig"
)
_NL_TENS: Final = _list(
    "twintig dertig veertig vijftig zestig zeventig tachtig negentig"
)
_IT_TENS: Final = _list(
    "venti trenta quaranta cinquanta sessanta settanta ottanta novanta"
)
_FR_TENS: Final = _list("vingt trente quarante cinquante soixante")
_ES_TENS: Final = _list(
    "veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa"
)
_PT_TENS: Final = _list(
    "vinte trinta quarenta cinquenta sessenta setenta oitenta noventa"
)
_ES_HUNDREDS: Final = _list(
    "ciento doscientos trescientos cuatrocientos quinientos seiscientos setecientos "
    "ochocientos novecientos"
)
_PT_HUNDREDS: Final = _list(
    "cento duzentos trezentos quatrocentos quinhentos seiscentos setecentos "
    "oitocentos novecentos"
)
# Irregular forms of some countries or of dictation, and of neighbouring languages.
_OTHERS: Final = (
    ("0", "noll"),
    ("1", "eins eine une una uma en ett jeden"),
    ("2", "zwo duas två to dwa"),
    ("3", "trzy"),
    ("4", "fyra fire cztery"),
    ("5", "fem pięć"),
    ("6", "meia sex seks sześć"),
    ("7", "sju syv siedem"),
    ("8", "åtta otte osiem"),
    ("9", "nio ni dziewięć"),
    ("10", "tio ti dziesięć"),
    ("11", "elva elleve jedenaście"),
    ("12", "tolv dwanaście"),
    ("13", "tretton tretten"),
    ("14", "quatorze fjorton fjorten"),
    ("15", "femton femten"),
    ("16", "dezesseis sexton seksten"),
    ("17", "dezessete sjutton sytten"),
    ("18", "arton atten"),
    ("19", "dezenove nitton nitten"),
    ("20", "tjugo tyve dwadzieścia"),
    ("21", "veintiún veintiuna"),
    ("30", "trettio tredive"),
    ("40", "fyrtio fyrre"),
    ("50", "femtio halvtreds"),
    ("60", "sextio"),
    ("70", "septante sjuttio halvfjerds"),
    ("80", "huitante octante åttio firs"),
    ("90", "nonante nittio halvfems"),
    ("100", "cien cem honderd hundert cent"),
)


def _glued(
    units: Sequence[str],
    teens: Sequence[str],
    tens: Sequence[str],
    joined: Callable[[str, str], str],
) -> dict[int, str]:
    """Return the numbers up to 99 in a language that joins ones and tens by a rule."""
    words = dict(enumerate((*units, *teens)))
    for at, ten in enumerate(tens, start=2):
        words[10 * at] = ten
        words.update((10 * at + one, joined(ten, units[one])) for one in range(1, 10))
    return words


def _french() -> dict[int, str]:
    words = dict(enumerate((*_FR, *_FR_TEENS)))
    for at, ten in enumerate(_FR_TENS, start=2):
        words.update(
            (10 * at + more, f"{ten} {words[more]}")
            for more in range(1, 20 if ten == "soixante" else 10)
        )
        words[10 * at] = ten
        words[10 * at + 1] = f"{ten} et un"
    words[71] = "soixante et onze"
    words.update((80 + more, f"quatre vingt {words[more]}") for more in range(1, 20))
    words[80] = "quatre vingts"
    return words


def _all() -> Iterator[tuple[str, int]]:
    """Yield every number below 1000 in spoken form; hyphens become spaces."""
    german = _glued(_DE, _DE_TEENS, _DE_TENS, lambda ten, one: f"{one}und{ten}")
    dutch = _glued(
        _NL,
        _NL_TEENS,
        _NL_TENS,
        lambda ten, one: f"{one}{'ë' if one[-1] == 'e' else 'e'}n{ten}",
    )
    italian = _glued(
        _IT,
        _IT_TEENS,
        _IT_TENS,
        lambda ten, one: (ten[:-1] if one[0] in "uo" else ten) + one,
    )
    spanish = _glued(_ES, _ES_TEENS, _ES_TENS, lambda ten, one: f"{ten} y {one}")
    spanish |= {20 + one: f"veinti{_ES[one]}" for one in range(1, 10)}
    portuguese = _glued(_PT, _PT_TEENS, _PT_TENS, lambda ten, one: f"{ten} e {one}")
    french = _french()
    for words in (german, dutch, italian, french, spanish, portuguese):
        yield from ((word, number) for number, word in words.items())
    yield "quatre vingt", 80
    for word, number in ((french[n], n) for n in range(100)):
        yield f"cent {word}", 100 + number
        yield from ((f"{_FR[h]} cent {word}", 100 * h + number) for h in range(2, 10))
    for hundreds in range(1, 10):
        number = 100 * hundreds
        one = "" if hundreds == 1 else _FR[hundreds] + " "
        yield from ((f"{one}cent", number), (f"{one}cents", number))
        cento = (_IT[hundreds] if hundreds > 1 else "") + "cento"
        heads: list[tuple[dict[int, str], str, tuple[str, ...]]] = [
            (german, f"{_DE[hundreds]}hundert", ("", "und")),
            (dutch, f"{_NL[hundreds]}honderd", ("", "en")),
            (italian, cento, ("",)),
            (spanish, _ES_HUNDREDS[hundreds - 1], (" ",)),
            (spanish, _ES_HUNDREDS[hundreds - 1][:-2] + "as", (" ",)),
            (portuguese, _PT_HUNDREDS[hundreds - 1], (" e ",)),
            (portuguese, _PT_HUNDREDS[hundreds - 1][:-2] + "as", (" e ",)),
        ]
        if hundreds == 1:
            heads += [(german, "hundert", ("", "und")), (dutch, "honderd", ("", "en"))]
        for words, head, joints in heads:
            yield head, number
            for joint in joints:
                yield from (
                    (head + joint + words[more], number + more)
                    for more in range(1, 100)
                )
        for more in range(80, 90):  # "centottanta"
            yield f"{cento[:-1]}{italian[more]}", number + more


def _numbers() -> dict[str, str]:
    """Return the digits of every number, keyed by its spoken form without accents."""
    spoken = [(word, str(number)) for word, number in _all()]
    spoken += [(word, digits) for digits, words in _OTHERS for word in words.split()]
    # German compounds end in "eins" as well.
    spoken += [
        (f"{word}s", said) for word, said in spoken if word.endswith("hundertein")
    ]
    found: dict[str, str] = {}
    for word, digits in spoken:
        umlauts = word.replace("ü", "ue").replace("ö", "oe")
        for other in (word, umlauts):
            found.setdefault(unaccented(other), digits)
            found.setdefault(unaccented(other).replace("ß", "ss"), digits)
    return found


_THEN: Final = frozenset(
    _list(
        unaccented(
            "dann danach puis ensuite luego después poi dan daarna depois nochmal und "
            "et y e en i strich bindestrich tiret guión trattino streepje traço hífen "
            "bindestreck myślnik pause pausa ähm äh euh eh ehm espace espacio spazio "
            "spatie espaço leerzeichen "
            # Dictated between two groups: a gap, a mark, the end of a line.
            "lücke luecke abstand leer leerstelle leertaste leerschritt als frei "
            "weiter nächste naechste nächstes naechstes anschließend schließlich "
            "wieder jetzt nun neue zeile absatz umbruch gedankenstrich schrägstrich "
            "schraegstrich punkt minus blanc vide suivant suivante après apres "
            "encore maintenant nouvelle à la ligne retour trait d union barre slash "
            "point blanco vacío hueco siguiente próximo entonces ahora nueva línea "
            "linea salto de raya guion punto vuoto dopo avanti bianco quindi "
            "successivo prossimo ancora adesso nuova riga a capo barra trattini "
            "lineetta leeg pauze wit ruimte tussenruimte volgende vervolgens nog nu "
            "nieuwe regel liggend koppelteken schuine punt vazio branco seguinte "
            "então agora nova linha quebra travessão hifen ponto seguida seguir em"
        )
    )
)
_NUMBERS: Final = _numbers()
_SIGNS: Final = frozenset(word for key in _NUMBERS for word in key.split()) - _THEN
_MOST_WORDS: Final = 1 + max(word.count(" ") for word in _NUMBERS)
_THOUSAND: Final = frozenset(("tausend", "mille", "mil", "duizend"))
_THOUSANDS: Final = re.compile(
    r"([a-z]{0,40}?)(?:tausend|duizend|mila|mille)(?:und)?([a-zß]{0,40})"
)
_TIMES: Final = frozenset(_list("mal fois vez veces volta volte keer maal vezes x"))
_FOLD: Final = {
    word: times
    for times, words in (
        (2, "doppel doppelt doppelte double doble doppio doppia dubbel dubbele dobro"),
        (2, "duplo zweimal tweemaal"),
        (3, "triple tripel triplo dreimal dreifach driemaal"),
        (4, "viermal viermaal"),
        (5, "fünfmal fuenfmal vijfmaal"),
    )
    for word in unaccented(words).split()
}
_ARTICLES: Final = frozenset(_list("die der das le la el il lo de het o a l"))
_LONGEST_THEN: Final = 4  # "und dann", "à la ligne", "trait d'union puis"

_LONGEST_PAUSE: Final = 2  # "em seguida"

_WORD: Final = re.compile(r"[^\W\d_]+|\d+")
_WITHIN: Final = frozenset((" ", "-"))
_BETWEEN: Final = re.compile(r"[^\w\n\x1e:;?!]{0,4}")  # texts are joined by \x1e
_MANY: Final = 5  # words that are a row, however short their numbers are
_FEW: Final = 3  # words that are one if they have as many digits as a telephone number
_LEAST_DIGITS: Final = 7
_LEAST_COUNTED: Final = 7
_LEAST_COUNTED_LARGE: Final = 4
_STEPS: Final = frozenset((-10, -1, 1, 2, 5, 10))  # the steps in which people count
_MOST_WRITTEN: Final = 4  # digits in a group that is written in digits in a row
_MOST_TIMES: Final = 16
_ROUND: Final = 10
_LARGE: Final = 100

_Words = Sequence[re.Match[str]]


def replaced(text: str, made: Callable[[str], str]) -> str:
    """Return a text in which each row of spelled-out numbers is one number.

    Args:
        text: any text; takes time linear in its length.
        made: returns the replacement for some digits.
    """
    words = list(_WORD.finditer(text))
    low = [unaccented(match[0]) for match in words]
    if sum(word in _SIGNS or _THOUSANDS.match(word) is not None for word in low) < _FEW:
        return text
    parts: list[str] = []
    end = at = 0
    while at < len(words):
        numbers, after, spelled = _row(text, words, low, at)
        if spelled and _is_row(numbers, spelled):
            parts += text[end : words[at].start()], made("".join(numbers))
            end = words[after - 1].end()
        at = max(after, at + 1)
    return "".join((*parts, text[end:]))


def _row(
    text: str, words: _Words, low: Sequence[str], first: int
) -> tuple[list[str], int, int]:
    """Return a row's numbers, one past its last word, and how many are spelled out."""
    numbers: list[str] = []
    spelled, together, at, after = 0, 0, first, first
    while at < len(words):
        found = _number(text, words, low, at)
        if found is None:
            break
        digits, at = found
        spelled += not low[at - 1].isdigit()
        numbers.append(digits)
        together += 1
        after = at
        for _ in range(_LONGEST_THEN):
            if at < len(words) and low[at] in _THEN and _follows(text, words, at):
                at += 1
        if together > 1 and low[after - 1] in _SIGNS:
            at = _past_a_word(text, words, low, at)
        together = together if at == after else 0
        if at < len(words) and not _follows(text, words, at):
            break
    return numbers, after, spelled


def _past_a_word(text: str, words: _Words, low: Sequence[str], at: int) -> int:
    """Return the index at which a row continues after one or two unlisted words.

    Between "eight one four" and "two two seven", any word is a pause: prose does not
    have two numbers on each side of it.
    """
    for past in range(at, min(at + _LONGEST_PAUSE + 1, len(words))):
        if not _follows(text, words, past):
            break
        found = _number(text, words, low, past)
        if found is not None:
            after = found[1]
            pair = (
                after < len(words)
                and _follows(text, words, after)
                and _number(text, words, low, after) is not None
            )
            return past if pair else at
    return at


def _follows(text: str, words: _Words, at: int) -> bool:
    return _BETWEEN.fullmatch(text, words[at - 1].end(), words[at].start()) is not None


def _is_row(numbers: Sequence[str], spelled: int) -> bool:
    digits = sum(map(len, numbers))
    if spelled < _FEW or (spelled < _MANY and digits < _LEAST_DIGITS):
        return False
    values = list(map(int, numbers))
    if all(value >= _LARGE and value % _ROUND == 0 for value in values):
        return False  # prices
    steps = {late - early for early, late in pairwise(values)}
    least = _LEAST_COUNTED_LARGE if max(values) >= _ROUND else _LEAST_COUNTED
    return not (len(steps) == 1 and steps <= _STEPS and len(values) >= least)


def _number(
    text: str, words: _Words, low: Sequence[str], at: int
) -> tuple[str, int] | None:
    """Return the digits of the number that begins with a word, and the next word."""
    times, start = _FOLD.get(low[at], 1), at
    if times > 1:
        start += 1 + (low[at + 1 : at + 2] != [] and low[at + 1] in _ARTICLES)
        found = _simple(text, words, low, start)
        return (
            None if found is None or len(found[0]) > 1 else (found[0] * times, found[1])
        )
    found = _simple(text, words, low, at)
    if found is None or low[at].isdigit():
        return found
    digits, after = found
    here = low[after : after + 2]
    if here and here[0] in _TIMES and int(digits) <= _MOST_TIMES:
        start = after + 1 + (here[1:] != [] and here[1] in _ARTICLES)
        more = _simple(text, words, low, start)
        if more is not None and len(more[0]) == 1:
            return more[0] * int(digits), more[1]
    if here and here[0] in _THOUSAND:
        more = _simple(text, words, low, after + 1)
        if more is None or low[after + 1].isdigit():
            return f"{digits}000", after + 1
        return f"{digits}{more[0]:0>3}", more[1]
    return found


def _simple(
    text: str, words: _Words, low: Sequence[str], at: int
) -> tuple[str, int] | None:
    """Return the longest number that begins with a word, as ``_number`` does."""
    if at >= len(words):
        return None
    if low[at].isdigit():
        return (low[at], at + 1) if len(low[at]) <= _MOST_WRITTEN else None
    best: tuple[str, int] | None = None
    said = ""
    for after in range(at, min(at + _MOST_WORDS, len(words))):
        if after > at:
            if text[words[after - 1].end() : words[after].start()] not in _WITHIN:
                break
            said += " "
        said += low[after]
        if said in _NUMBERS:
            best = _NUMBERS[said], after + 1
    return best or _glued_alone(low[at], at + 1)


def _glued_alone(word: str, after: int) -> tuple[str, int] | None:
    """Return "viertausendzwei" and "doppelnull", which are in no list."""
    match = _THOUSANDS.fullmatch(word)
    if match is not None:
        head, rest = match[1] or "ein", match[2] or "null"
        if head in _NUMBERS and rest in _NUMBERS:
            return f"{_NUMBERS[head]}{_NUMBERS[rest]:0>3}", after
    if word.startswith(("doppel", "dubbel")):
        digits = _NUMBERS.get(word[len("doppel") :], "")
        return (digits * 2, after) if len(digits) == 1 else None
    return None
