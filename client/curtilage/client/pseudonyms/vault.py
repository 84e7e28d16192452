"""Which stand-in each value of one conversation has, and which value it hides.

Pure and in memory: no I/O, no clock. One vault serves one query, from rewriting
the question to restoring the answer, and dies with it. Numbers are given by
first occurrence and everything secret is derived from the conversation's key,
so the same history gives the same stand-ins with every turn.

Normalisation, by which two spellings are one value: NFKC, case folded, runs of
white space as one space. Of a person also without titles (``Dr.``), without a
possessive ``'s``, and without full stops and commas: "Dr. Smith", "smith" and
"SMITH's" are one. Of numbers and codes also without separators.

A single name is that of the one person whose first or last name it was before:
"Annika Solheim" and later "Annika" have one token. Where two were called so before,
nothing says which of them is meant, and it has a token of its own. Names that follow
change nothing, so that a conversation keeps its tokens with every turn.
"""

import hmac
import re
import secrets
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NoReturn, final

from typing_extensions import override

from curtilage.client.pseudonyms.dates import moved
from curtilage.client.pseudonyms.wording import ENGLISH, worded
from curtilage.client.query import Query

OPENING: Final = "\u27e6"
CLOSING: Final = "\u27e7"
TOKEN: Final = re.compile(rf"{OPENING}[A-Z]+_[0-9]{{1,4}}{CLOSING}")
BARE_FORM: Final = r"[A-Za-z]+\\?_[0-9]{1,4}"
"""A token without its brackets, as a model may write it: what a source holds of this
form is never given out, and what an answer holds of it may be restored."""
_LIKE_TOKEN: Final = re.compile(rf"(?<![A-Za-z]){BARE_FORM}")
MAX_NUMBER: Final = 9999  # of one kind; the grammar has four digits
KEY_BYTES: Final = 32
_MAX_WEEKS: Final = 52

# The word of a token for each class that can be replaced. A class that is not
# here says something about a person by its meaning (a diagnosis, a topic, a
# word of doubt), or gives access (a secret): no stand-in makes such a query
# fit to leave.
_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "identifier.direct.person": "PERSON",
        "identifier.public.figure": "PERSON",
        "identifier.direct.username": "USERNAME",
        "identifier.direct.url_personal": "PROFILE",
        "identifier.direct.email": "EMAIL",
        "identifier.direct.phone": "PHONE",
        "identifier.direct.fax": "FAX",
        "identifier.direct.address": "ADDRESS",
        "identifier.direct.passport": "PASSPORT",
        "identifier.direct.licence": "LICENCE",
        "identifier.direct.ip": "IP",
        "identifier.direct.mac": "MAC",
        "identifier.direct.device": "DEVICE",
        "identifier.direct.vehicle": "VEHICLE",
        "identifier.quasi.date": "DATE",
        "identifier.quasi.dob": "DATE",
        "identifier.quasi.age": "AGE",
        "identifier.quasi.age90": "AGE",
        "identifier.quasi.zip": "ZIP",
        "identifier.quasi.city": "PLACE",
        "identifier.quasi.nationality": "NATIONALITY",
        "identifier.quasi.employer": "ORGANIZATION",
        "identifier.quasi.occupation": "OCCUPATION",
        "identifier.quasi.url": "URL",
        "financial.pan": "CARD",
        "financial.iban": "IBAN",
        "financial.account": "ACCOUNT",
        "financial.aba": "BANK",
        "financial.swift": "BANK",
        "financial.crypto": "WALLET",
        "financial.tax_id": "TAXID",
        "health.mrn": "RECORD",
        "health.plan_id": "PLAN",
        "health.npi": "PROVIDER",
        "health.dea": "PROVIDER",
        "legal.docket": "DOCKET",
    }
)
# Classes that a policy names itself, and the states' numbers, by what they begin with.
_KINDS_BELOW: Final = (
    ("identifier.direct.gov_id.", "ID"),
    ("org.dictionary.", "TERM"),
    ("org.edm.", "RECORD"),
)
KINDS: Final = frozenset((*_KINDS.values(), *(kind for _, kind in _KINDS_BELOW)))
_NAMES: Final = frozenset({"PERSON"})
_WORDS: Final = frozenset(
    {"ADDRESS", "PLACE", "NATIONALITY", "ORGANIZATION", "OCCUPATION", "TERM", "URL"}
    | {"PROFILE", "USERNAME", "EMAIL", "DATE", "AGE"}
)

# Only words that are no names themselves: "Justice" and "Lady" can be.
TITLES: Final = re.compile(
    r"(?:(?:mr|mrs|ms|mx|miss|dr|prof|professor|doctor|sir|madam|rev|sgt|sergeant|"
    r"capt|captain|lt|hon|nurse|herrn?|hr|frau|fräulein|monsieur|madame|mme|mlle|"
    r"mademoiselle|docteure?|señor(?:a|ita)?|sra?|srta|doña|doctora|dra|"
    r"sig(?:nora?|norina|\.ra|\.na)?|dott(?:\.ssa|ore|oressa)?|avv|"
    r"meneer|mevrouw|mevr|mw|dhr|senhora?|dona|doutora?)"
    r"(?:\.\s*|\s+))+(?=\S)",
    re.IGNORECASE,
)
POSSESSIVE: Final = re.compile(r"(?:['\u2019]s|(?<=s)['\u2019])\Z", re.IGNORECASE)
_SEPARATOR: Final = re.compile(r"[\W_]+")
_NAME_MARK: Final = re.compile(r"[.,]")


class VaultError(Exception):
    """A value cannot have a stand-in; the message never repeats it."""


def kind_of(data_class: str) -> str | None:
    """Return the word of a class's tokens, or None: it cannot be replaced."""
    for prefix, kind in _KINDS_BELOW:
        if data_class.startswith(prefix):
            return kind
    return _KINDS.get(data_class)


def normalised(kind: str, written: str) -> str:
    """Return what two spellings of one value have in common; see above."""
    text = unicodedata.normalize("NFKC", written).casefold()
    if kind in _NAMES:
        text = POSSESSIVE.sub("", TITLES.sub("", text.strip(), count=1))
        text = _NAME_MARK.sub(" ", text)
    elif kind not in _WORDS:
        text = _SEPARATOR.sub("", text)
    return " ".join(text.split())


class ConversationKeys:
    """Gives each conversation its key; two processes share none.

    Args:
        random: makes the key of this process.
    """

    def __init__(self, *, random: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._key = random(KEY_BYTES)

    @override
    def __repr__(self) -> str:
        """Say nothing: whoever holds the key can test guesses."""
        return "<ConversationKeys>"

    def of(self, query: Query) -> bytes:
        """Return the key of a conversation, 32 bytes.

        Callers send no conversation id, only the history again with every turn,
        so a conversation is known by its turns up to the first of the user. Two
        that begin alike share a key, and so how far their dates are moved; what
        is numbered is numbered for each query alone.
        """
        digest = b""
        for message in query.messages:
            digest = hmac.digest(self._key, digest + message.encoded(), "sha256")
            if message.role == "user":
                break
        return digest or hmac.digest(self._key, b"", "sha256")


@final
class Vault:
    """The stand-ins of one query and the values behind them.

    Args:
        key: the conversation's, 32 bytes.
        source: every text of the query, joined: no stand-in may occur in it.
        language: of the texts, in ISO 639-1; stand-ins are worded in it.
    """

    __slots__ = (
        "_called",
        "_given",
        "_key",
        "_kinds",
        "_language",
        "_said",
        "_source",
        "_values",
    )

    def __init__(self, key: bytes, *, source: str, language: str = ENGLISH) -> None:
        self._key = key
        self._language = language
        self._source = source
        self._given: dict[bytes, str] = {}
        self._values: dict[str, str] = {}
        self._kinds: Counter[str] = Counter()
        self._said = {
            each.upper().replace("\\", "") for each in _LIKE_TOKEN.findall(source)
        }
        # Who is called by a single name: digests of it, and the tokens of people.
        self._called: dict[bytes, set[str]] = {}

    def stand_in(self, data_class: str, written: str, *, alone: bool = True) -> str:
        """Return what stands for a value; the same for the same value.

        A token, or for a date that can be read a date moved by whole weeks.

        Args:
            data_class: what the value is.
            written: the value as it stands in the text, without title.
            alone: it is a word of a sentence, and no part of an address or a file's
                name, where the whole name cannot come back for a part of it.

        Raises:
            VaultError: its class cannot be replaced, nothing is left of it but
                marks, or there are too many.
        """
        kind = kind_of(data_class)
        if kind is None:
            raise VaultError("a class that has no stand-in")
        plain = normalised(kind, written)
        if not plain:
            raise VaultError("a value without letters or digits")
        # A date's spelling is part of it: it comes back as it was written.
        told = written if kind == "DATE" else plain
        digest = self._digest(kind, told)
        if not alone and digest in self._called:
            digest = self._digest(kind, f"|{told}")
        if digest not in self._given:
            called = self._called.get(digest, set())
            self._given[digest] = (
                next(iter(called))
                if len(called) == 1
                else self._moved(kind, written) or self._token(kind)
            )
        found = self._given[digest]
        if kind in _NAMES:
            self._call(kind, plain, found)
        # The first spelling comes back; one with capitals is better than none.
        known = self._values.get(found)
        if known is None or (known.islower() and not written.islower()):
            self._values[found] = written
        return found

    @property
    def values(self) -> Mapping[str, str]:
        """What each stand-in hides, for the restorer alone."""
        return MappingProxyType(self._values)

    @override
    def __repr__(self) -> str:
        """Tell how many; nothing of what they hide."""
        return f"<Vault: {len(self._values)}>"

    @override
    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be copied or pickled: it dies with its query."""
        raise TypeError("a Vault cannot be copied")

    def _call(self, kind: str, plain: str, token: str) -> None:
        """Note who is called by the first and the last word of a name."""
        parts = plain.split()
        for part in {parts[0], parts[-1]} if len(parts) > 1 else ():
            digest = self._digest(kind, part)
            called = self._called.setdefault(digest, set())
            called.add(token)
            # What stood alone is somebody's of several from now on.
            if len(called) > 1 and self._given.get(digest) in called:
                del self._given[digest]

    def _digest(self, kind: str, told: str) -> bytes:
        return hmac.digest(self._key, f"{kind}|{told}".encode(), "sha256")

    def _moved(self, kind: str, written: str) -> str | None:
        if kind != "DATE":
            return None
        # One to 52 weeks, either way, never zero; the same for all dates of a
        # conversation, so that what lies between two of them stays true.
        number = int.from_bytes(hmac.digest(self._key, b"weeks", "sha256"), "big")
        weeks = number % (2 * _MAX_WEEKS) - _MAX_WEEKS
        found = moved(
            written,
            weeks=weeks if weeks < 0 else weeks + 1,
            language=self._language,
        )
        # What the source says already would come back as something else.
        if found is None or found in self._source or found in self._values:
            return None
        return found

    def _token(self, kind: str) -> str:
        word = worded(kind, self._language)
        while self._kinds[kind] < MAX_NUMBER:
            self._kinds[kind] += 1
            bare = f"{word}_{self._kinds[kind]}"
            # A word of the source must not come back as a value: a token is restored
            # without its brackets as well.
            if bare not in self._said:
                return f"{OPENING}{bare}{CLOSING}"
        raise VaultError("more values than tokens")
