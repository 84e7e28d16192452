"""Distinguishes names of things from names of people, by context and by lists.

"Wilson's disease" is about no person, "Wilson has a disease" is about one. So a list
alone never decides about a possible surname; the thing that is named after a person
must follow. Drugs, substances and illnesses are recognised by their endings. Pure
functions of a text.
"""

import re
from collections.abc import Iterator
from typing import Final

from curtilage.client.detection import wordlists
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.packs import PACKS
from curtilage.client.detection.wordlists import (
    ACRONYM_CHARS,
    bare,
    is_known,
    is_term,
    lowered,
    words,
)

_REACH: Final = 60  # characters that are examined on either side
_SINGLE = re.compile(r"[^\W\d_][\w'\u2019\-\u2013\u2010]*")
_JOINED = re.compile(r"[\w'\u2019\-\u2013\u2010]*")
_POSSESSIVE = re.compile(r"['\u2019]s?$|(?<=s)['\u2019]$")
_PARTS = re.compile(r"[\s,\-\u2013\u2010]+|['\u2019]s(?=[\s\-\u2013\u2010])")
_TAIL = re.compile(
    r"(?P<own>['\u2019]s?)?(?P<rest>(?:,?[ \t\n\-\u2013]{1,2}[\w\-]+){1,6})"
)
_BEFORE = re.compile(r"([\w.'\u2019]+)[ \t]{1,2}$")
# Words in eponyms that are not eponyms themselves: "Ellis-van Creveld".
_PARTICLES = words("van von de der den la le di du da and y ii iii iv v")
_TITLES = words("mr mrs ms mx miss dr prof professor doctor sir nurse judge herr frau")
_ASKING = words("""
ask asks asked tell tells told call called phone email text pay paid remind invite meet
met to that did does let why from my our his her their with by patient client tenant
""")
# Verbs for people and not for things: "Foley has a fever", "Apgar said".
_DOES = words("""
has had admitted came come comes says said asked asks told tells wants wanted called
calls paid pays owes owed lives lived works worked signed signs complains complained
denies denied took takes needs thinks thought likes hates loves married left arrived
wrote writes refuses
refused went seen discharged diagnosed born prescribed treated transferred fired hired
""")
_KIN = words("""
mother father mom mum dad wife husband partner son daughter child children brother
sister family house car rent lease salary account email phone number address contract
invoice lawyer boss doctor results result scan appointment chart birthday job home flat
""")
_INITIAL_SPECIES = re.compile(r"[A-Z][a-z]{0,3}\.? ?([a-z]{3,})")
_INITIAL_BEFORE = re.compile(r"(?<!\w)[A-Z](?:[a-z]{0,3}\.|[a-z]{2,}) $")
# T2a, CYP2D6, IL-6: letters and digits mixed; GGATCC: a sequence.
_CODED = re.compile(r"[A-Z][A-Za-z]{0,2}\d[\w\-]*|[A-Z0-9\-]*\d[A-Z0-9\-]*|[ACGTU]{6,}")
# "Lenke et al.": a citation is published; a case is not ("Okafor et al. v."). "al"
# alone is a Spanish and Italian word: "llama a Zubieta al mediodía".
_CITED = re.compile(r" (?:et al\b|al\.)(?!\.? v)")
# A trial, score or group whose name is the word in capitals.
_NAMED_IN_CAPITALS = re.compile(
    r"(?:[\-\u2013 ]\w+)?[\-\u2013 ](?:trials?|stud(?:y|ies)|scores?|scales?|criteria|"
    r"protocols?|projects?|syndromes?|groups?|genes?|questionnaires?|registry|database|"
    r"guidelines?|cohorts?|surveys?|index|programme|program|model|algorithm|patients)\b"
)


def is_nobody(text: str, start: int, end: int) -> bool:
    """Return whether a possible name at a position is the name of a thing.

    Args:
        text: the whole text.
        start: first character of the possible name.
        end: one past its last character; half of a joined word counts as the whole.
    """
    while start > 0 and _JOINED.fullmatch(text[start - 1]):
        start -= 1
    joined = _JOINED.match(text, end)
    end = joined.end() if joined else end
    found = text[start:end]
    before = _BEFORE.search(text, max(0, start - _REACH), start)
    last = "" if before is None else before[1]
    # "Mr Parkinson", "Ana Wilson": the person with the illness, not its name.
    if last.lower().rstrip(".") in _TITLES or _is_given(last):
        return False
    if (_SINGLE.fullmatch(found) and is_term(found)) or _is_option(text, found):
        return True
    species = _INITIAL_SPECIES.fullmatch(found)
    if species is not None and species[1] in wordlists.SPECIES:
        return True
    if found in wordlists.SPECIES and _INITIAL_BEFORE.search(
        text[max(0, start - _REACH) : start]
    ):
        return True
    if _CODED.fullmatch(found) or _CITED.match(text, end):
        return True
    return _is_eponym(text, start, end, asked=last.lower() in _ASKING)


# "--author", which has no capital.
_OPTION = re.compile(r"--[a-z]{2,}(?:-[a-z]+)*")
_ANY_OPTION = re.compile(r"(?<=[\w\"'=/.] )--[a-z]{2,}(?:-[a-z]+)*(?![\w])")


def _is_option(text: str, found: str) -> bool:
    """Return whether a word after two dashes is a program's option, not a signature.

    An option consists of ordinary words, or there is another one, and it is within a
    line.
    """
    parts = found.strip("-").split("-")
    if not _OPTION.fullmatch(found) or not wordlists.GIVEN.isdisjoint(parts):
        return False
    options = {match[0] for match in _ANY_OPTION.finditer(text)}
    return all(map(is_known, parts)) or (found in options and len(options) > 1)


def _is_given(word: str) -> bool:
    return word[:1].isupper() and bare(word) in wordlists.GIVEN


def _is_eponym(text: str, start: int, end: int, *, asked: bool) -> bool:
    """Return whether a thing is named after the person at a position."""
    found = text[start:end]
    parts = [part.lower() for part in _PARTS.split(_POSSESSIVE.sub("", found)) if part]
    # The thing may have been taken for a part of the name.
    things: list[str] = []
    while len(parts) > 1 and (parts[-1] in wordlists.HEADS or is_term(parts[-1])):
        things.insert(0, parts.pop())
    names = [part for part in parts if part not in _PARTICLES]
    tail = _TAIL.match(text, end, end + _REACH)
    owned = _POSSESSIVE.search(found) is not None or bool(tail and tail["own"])
    rest = "" if tail is None else tail["rest"].lower()
    behind = things + [part for part in re.split(r"[\W_]+", rest) if part]
    listed = wordlists.EPONYMS.issuperset(names)
    if not names or (listed and things and is_term(things[0])):
        return listed and bool(things)
    if len(names) > 1:
        # Two joined names are a thing, or a double surname: Smith-Jones.
        some = not wordlists.EPONYMS.isdisjoint(names)
        alone = listed and (wordlists.GIVEN | wordlists.AMBIGUOUS).isdisjoint(names)
        head = _head(behind, listed=some, owned=False)
        glued = " " not in found or (listed and "," in found and head is not None)
        return glued and (head is not None or alone)
    head = _head(behind, listed=listed, owned=owned)
    if head is not None:
        # "Wilson's test came back", "Bell tests positive".
        own = listed and names[0] in wordlists.GIVEN and head in wordlists.OWN_HEADS
        return not own or (not owned and head == behind[0] and not head.endswith("s"))
    following = behind[0] if behind else ""
    if owned:
        ailments = wordlists.AILMENTS - wordlists.GIVEN
        return names[0] in ailments and following not in _KIN
    if names[0] in wordlists.THINGS:
        # "Foley was admitted", but not "Foley was placed".
        acts = [word for word in behind[:2] if word not in ("was", "is")]
        return not asked and (not acts or acts[0] not in _DOES)
    return found.isupper() and _NAMED_IN_CAPITALS.match(text, end) is not None


def _head(behind: list[str], *, listed: bool, owned: bool) -> str | None:
    """Return the thing that is named after a person, from the words after the name.

    It follows directly, or after words that belong to such a thing: "Glasgow coma
    scale". With an unlisted name, it must be a thing that no person has or does.
    """
    for word in behind:
        if listed and (word in wordlists.HEADS or is_term(word)):
            return word
        if word in wordlists.SURE_HEADS:
            return word
        if not listed and not owned and word in wordlists.HEADS - wordlists.OWN_HEADS:
            return word
        # "Babinski, Hoffmann and Romberg signs", "Glasgow coma scale".
        if not (word in wordlists.BETWEEN or (listed and word in wordlists.EPONYMS)):
            return None
    return None


# --- places and companies -----------------------------------------------------------

_TO_PLACE = re.compile(
    r"(?:(?:^|[\s(,])(?:in|near|outside|across|throughout|within|into|via|around)|"
    r"(?<!mad)(?<!angry)(?<!yell)(?<!yelling)(?<!yelled)(?<!shout)(?<!shouted)"
    r"(?<!look)(?<!looked)(?<!laugh)(?<!laughed)(?<!furious)(?:^|\s)at|"
    r"(?:^|\s)(?:go|goes|going|went|get|getting|travel\w*|fly|flying|flights?|moved?|"
    r"moving|drive|driving|trips?|back|welcome|relocat\w*|commut\w*|tickets?|trains?|"
    r"bus|road|way|lived?|lives|living|come|comes|coming|hotels?|cities|city|town|"
    r"village|province|state|university|port|capital|mayor|map|people|streets?|"
    r"republic|kingdom|gulf|bay|weather|population|i['\u2019]?m|am|is|are|was|were) "
    r"(?:to|from|in|of|for)|"
    r"(?:^|\s)(?:north|south|east|west|northern|southern|eastern|western|central|upper|"
    r"lower|downtown|greater|new|san|santa|saint|st\.?|mount|mt\.?|lake|fort|port|el|"
    r"los|las))\s$",
    re.IGNORECASE,
)
_BEHIND_PLACE = re.compile(
    r"(?:,? (?:inc|ltd|llc|gmbh|corp|co|ag|plc|bv|oy|ab)\b|"
    r",? (?:city|county|university|college|hospital|clinic|airport|street|road|avenue|"
    r"square|river|lake|bay|beach|island|islands|valley|district|province|region|state|"
    r"airlines?|airways|motors|museum|stadium|bridge|station|cathedral|castle|park|"
    r"stores?|website|app|hotels?|bank|foundation|institute|school|league|cup)\b|\.\w)",
    re.IGNORECASE,
)
_NAME_WORD = re.compile(r"[^\W\d_][\w'\u2019]*")
_JOINED_NAME = re.compile(
    r"(?:Mc|Mac|O['\u2019]|D['\u2019]|De|Di|Van|Von|Fitz)[A-Z][^\W\d_A-Z]+"
)
_LINKS = words(
    "and or the of y und et twins family families brothers sisters siblings s"
)
_STATE_BEHIND = re.compile(r", ?([^\W\d_]+)")


def is_place_or_company(text: str, start: int, end: int) -> bool:
    """Return whether a place or company from a model has the signs of one.

    A model often labels a surname alone as one. Signs are several words, an acronym, a
    listed name, "in" before or "Ltd" after it; one unlisted word without a sign is
    none.
    """
    found = text[start:end].strip()
    if any(_is_marked(word) for word in _NAME_WORD.findall(found)):
        return True
    if _BEHIND_PLACE.match(text, end, end + _REACH):
        return True
    state = _STATE_BEHIND.match(text, end, end + _REACH)
    if state is not None and (
        bare(state[1]) in wordlists.PLACES or bare(state[1]) in wordlists.PROPER
    ):
        return True
    return bool(_TO_PLACE.search(text[max(0, start - _REACH) : start]))


def is_joined_name(found: str) -> bool:
    """Return whether a place from a model begins with a given name and a particle.

    "Ginevra dal Monte", "Rosália dos Rio"; but "Palma" in "Palma de Mallorca" is not a
    given name.
    """
    parts = found.split()
    return (
        len(parts) > 2  # noqa: PLR2004 - given name, particle, surname
        and _is_given(parts[0])
        and bare(parts[1]) in wordlists.PARTICLES
        and parts[-1][0].isupper()
    )


_OF_SOMEBODY = re.compile(
    r"\b(?:me|my|us|our|him|her|his|employees?|colleagues?|manager|boss|job|salary)\b"
)
_EMPLOYED = re.compile(
    r"(?:^|\W)(?:at|for|of|joined|join|left|leave|leaving|quit|my|our|me|us|from)"
    r"(?: the)?\s$",
    re.IGNORECASE,
)


def is_spoken_of(text: str, start: int, found: str) -> bool:
    """Return whether a company or an institution is a generally known one.

    And no person is said to be there: "does Mayo Clinic recommend it", but not "at Mayo
    Clinic" or "Toyota fired me".
    """
    listed = bare(found) in wordlists.PROPER or any(
        bare(word) in wordlists.ORGANISATIONS for word in _NAME_WORD.findall(found)
    )
    behind = text[start + len(found) :][:_REACH]
    return (
        listed
        and not _EMPLOYED.search(text[max(0, start - _REACH) : start])
        and not _OF_SOMEBODY.search(behind)
    )


def _is_marked(word: str) -> bool:
    """Return whether a word in a name cannot be a surname."""
    plain = bare(word)
    if plain in _KIN or plain in _LINKS:
        return False
    if word.isupper():
        if len(word) <= ACRONYM_CHARS:
            return True
    elif not (word.islower() or word[1:].islower()):
        return _JOINED_NAME.fullmatch(word) is None  # CamelCase
    return (
        plain in wordlists.PLACES
        or plain in wordlists.ORGANISATIONS
        or is_known(word)
        or is_term(word)
    )


def unknown_words(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the words of what may be several names, without their links."""
    for match in _NAME_WORD.finditer(text, start, end):
        if bare(match[0]) not in _KIN | _LINKS and not is_known(match[0]):
            yield match.span()


# --- programs -----------------------------------------------------------------------

# "doctorAccount", "XMLParser": the parts of a joined word.
HUMP: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_IDENTIFIER_CHAR = re.compile(r"\w")
_MIN_PART_CHARS: Final = 3


def is_identifier(text: str, start: int, end: int) -> bool:
    """Return whether a name is part of a program's identifier.

    ``doctor_account``, ``PatientService``: all parts are ordinary words. With an
    unknown part it is a person (``okonkwo_rent``).
    """
    while start > 0 and _IDENTIFIER_CHAR.fullmatch(text[start - 1]):
        start -= 1
    while end < len(text) and _IDENTIFIER_CHAR.fullmatch(text[end]):
        end += 1
    parts = HUMP.findall(text[start:end])
    return len(parts) > 1 and all(
        len(part) < _MIN_PART_CHARS or is_known(part) or is_term(part) for part in parts
    )


# --- the other languages ------------------------------------------------------------


def _thing_patterns(code: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    names = PACKS[code].names
    before = "|".join(names["things_before"]) or "(?!)"
    after = "|".join(names["things_after"]) or "(?!)"
    return re.compile(rf"(?<!\w)(?:{before})[ \t]?$"), re.compile(rf"(?:{after})(?!\w)")


_THINGS: Final = {code: _thing_patterns(code) for code in PACKS}


def is_thing(reading: Reading, start: int, end: int) -> bool:
    """Return whether a thing is named after the person at a position.

    By the words that its language puts before or after: "maladie de Crohn",
    "Down-Syndrom".
    """
    for code in reading.packs:
        before, after = _THINGS[code]
        if before.search(lowered(reading.text[max(0, start - _REACH) : start])):
            return True
        # The words after it may have been taken for a part of the name.
        length = end - start
        behind = lowered(reading.text[start : end + _REACH])
        if any(0 < at.start() <= length <= at.end() for at in after.finditer(behind)):
            return True
    return False


def is_ordinary(reading: Reading, found: str) -> bool:
    """Return whether a name has only ordinary words of the text's languages."""
    plain = _NAME_WORD.findall(lowered(found))
    return any(
        bool(plain) and PACKS[code].words.issuperset(plain) for code in reading.packs
    )
