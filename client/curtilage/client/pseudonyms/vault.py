"""The stand-in of each value in one conversation, and the value behind it.

Pure and in memory: no I/O, no clock. One vault serves one query, from rewriting
the question to restoring the answer, and is discarded with it. Values are numbered by
first occurrence and everything secret is derived from the conversation's key, so the
same history gives the same stand-ins in every turn.

Two spellings are one value if they are equal after normalisation: NFKC, case folding,
runs of white space as one space. For a person also without titles (``Dr.``), without a
possessive ``'s``, and without full stops and commas: "Dr. Smith", "smith" and
"SMITH's" are one. For numbers and codes also without separators.

A single name belongs to the one person with that first or last name before:
"Annika Solheim" and later "Annika" have one token. If two people had that name before,
it is ambiguous and gets a token of its own. Names that follow change nothing, so that a
conversation keeps its tokens in every turn.
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

from curtilage.client.chat.query import Query
from curtilage.client.pseudonyms.dates import moved
from curtilage.client.pseudonyms.wording import ENGLISH, worded

OPENING: Final = "\u27e6"
CLOSING: Final = "\u27e7"
TOKEN: Final = re.compile(rf"{OPENING}[A-Z]+_[0-9]{{1,4}}{CLOSING}")
BARE_FORM: Final = r"[A-Za-z]+\\?_[0-9]{1,4}"
"""A token without its brackets, as a model may write it: words of this form in the
source are never used as tokens, and those in an answer may be restored."""
_LIKE_TOKEN: Final = re.compile(rf"(?<![A-Za-z]){BARE_FORM}")
MAX_NUMBER: Final = 9999  # of one kind; the token's grammar has four digits
KEY_BYTES: Final = 32
_MAX_WEEKS: Final = 52

# The word of a token for each class that can be replaced. A class that is missing
# here describes a person by its meaning (a diagnosis, a topic, a word of
# doubt), or gives access (a secret): no stand-in makes such a query safe
# to send.
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
# Prefixes: classes that a policy defines itself, and national numbers.
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

# Only words that are not names themselves: "Justice" and "Lady" can be.
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
TOO_MANY: Final = "more values than tokens"
_NAME_MARK: Final = re.compile(r"[.,]")


class VaultError(Exception):
    """A value cannot have a stand-in; the message never contains it."""


def kind_of(data_class: str) -> str | None:
    """Return the word of a class's tokens, or None: it cannot be replaced."""
    for prefix, kind in _KINDS_BELOW:
        if data_class.startswith(prefix):
            return kind
    return _KINDS.get(data_class)


def normalised(kind: str, written: str) -> str:
    """Return the normal form that two spellings of one value share; see above."""
    text = unicodedata.normalize("NFKC", written).casefold()
    if kind in _NAMES:
        text = POSSESSIVE.sub("", TITLES.sub("", text.strip(), count=1))
        text = _NAME_MARK.sub(" ", text)
    elif kind not in _WORDS:
        text = _SEPARATOR.sub("", text)
    return " ".join(text.split())


class ConversationKeys:
    """Provides the key of each conversation; two processes share none.

    Args:
        random: generates the key of this process.
    """

    def __init__(self, *, random: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._key = random(KEY_BYTES)

    @override
    def __repr__(self) -> str:
        """Show nothing: with the key, guesses can be tested."""
        return "<ConversationKeys>"

    def of(self, query: Query, whose: bytes = b"") -> bytes:
        """Return the key of a conversation, 32 bytes; ``whose``: which application's.

        Callers send no conversation id, only the history with every turn, so a
        conversation is identified by its turns up to the first of the user. Two that
        begin alike share a key, and so the shift of their dates, unless they are of
        two applications; numbers are assigned for each query separately.
        """
        digest = whose
        for message in query.messages:
            digest = hmac.digest(self._key, digest + message.encoded(), "sha256")
            if message.role == "user":
                break
        if digest == whose:  # without a turn
            return hmac.digest(self._key, whose, "sha256")
        return digest


@final
class Vault:
    """The stand-ins of one query and the values behind them.

    Args:
        key: the conversation's, 32 bytes.
        source: every text of the query, joined: no stand-in may occur in it.
        language: of the texts, in ISO 639-1; the language of the stand-ins.
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
        # People with a single name: digests of it, and the tokens of the people.
        self._called: dict[bytes, set[str]] = {}

    def stand_in(self, data_class: str, written: str, *, alone: bool = True) -> str:
        """Return the stand-in of a value; always the same for the same value.

        A token, or for a readable date a date shifted by whole weeks.

        Args:
            data_class: what the value is.
            written: the value as written in the text, without title.
            alone: whether it is a word of a sentence, not part of an address or a
                file name, where the full name cannot be restored for a part of it.

        Raises:
            VaultError: its class cannot be replaced, it has no letters or digits, or
                there are too many.
        """
        kind = kind_of(data_class)
        if kind is None:
            raise VaultError("a class that has no stand-in")
        plain = normalised(kind, written)
        if not plain:
            raise VaultError("a value without letters or digits")
        # A date's format is part of it, and is restored as it was written.
        spelling = written if kind == "DATE" else plain
        digest = self._digest(kind, spelling)
        if not alone and digest in self._called:
            digest = self._digest(kind, f"|{spelling}")
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
        # The first spelling is restored; preferably one with capitals.
        known = self._values.get(found)
        if known is None or (known.islower() and not written.islower()):
            self._values[found] = written
        return found

    @property
    def values(self) -> Mapping[str, str]:
        """The value behind each stand-in, for the restorer alone."""
        return MappingProxyType(self._values)

    @override
    def __repr__(self) -> str:
        """Show the number of stand-ins; nothing of the values behind them."""
        return f"<Vault: {len(self._values)}>"

    @override
    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be copied or pickled: it is discarded with its query."""
        raise TypeError("a Vault cannot be copied")

    def _call(self, kind: str, plain: str, token: str) -> None:
        """Record the first and the last word of a person's name."""
        parts = plain.split()
        for part in {parts[0], parts[-1]} if len(parts) > 1 else ():
            digest = self._digest(kind, part)
            called = self._called.setdefault(digest, set())
            called.add(token)
            # A name used alone before is ambiguous from now on.
            if len(called) > 1 and self._given.get(digest) in called:
                del self._given[digest]

    def _digest(self, kind: str, spelling: str) -> bytes:
        return hmac.digest(self._key, f"{kind}|{spelling}".encode(), "sha256")

    def _moved(self, kind: str, written: str) -> str | None:
        if kind != "DATE":
            return None
        # One to 52 weeks, either way, never zero; the same for all dates of a
        # conversation, so that intervals stay correct.
        number = int.from_bytes(hmac.digest(self._key, b"weeks", "sha256"), "big")
        weeks = number % (2 * _MAX_WEEKS) - _MAX_WEEKS
        found = moved(
            written,
            weeks=weeks if weeks < 0 else weeks + 1,
            language=self._language,
        )
        # A date that the source contains would be restored as a different one.
        if found is None or found in self._source or found in self._values:
            return None
        return found

    def _token(self, kind: str) -> str:
        word = worded(kind, self._language)
        while self._kinds[kind] < MAX_NUMBER:
            self._kinds[kind] += 1
            bare = f"{word}_{self._kinds[kind]}"
            # A word of the source must not be restored as a value: tokens are restored
            # without their brackets as well.
            if bare not in self._said:
                return f"{OPENING}{bare}{CLOSING}"
        raise VaultError(TOO_MANY)
