"""Lists of words and of exact values: their files, and how texts are compared.

A file is UTF-8 with one entry in a line; empty lines and lines that begin with
``#`` are ignored. The detectors compare by the same functions, so that a list
has one meaning. No message contains an entry.
"""

import hashlib
import hmac
import re
import unicodedata
from typing import Final

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
MAX_ENTRIES: Final = 100_000
MAX_ENTRY_CHARS: Final = 200
MIN_SALT_BYTES: Final = 16  # 128 bits: the values themselves can be guessed
_DIGEST = re.compile(r"[0-9a-f]{64}")


def words_of(content: bytes) -> tuple[str, ...]:
    """Return the entries of a dictionary file, as they were written.

    Raises:
        ValueError: not such a file; names the line.
    """
    return tuple(entry for _, entry in _lines(content))


def digests_of(content: bytes) -> tuple[str, ...]:
    """Return the entries of a file of exact values (``edm_entry``).

    Raises:
        ValueError: not such a file; names the line.
    """
    entries = _lines(content)
    for number, entry in entries:
        if not _DIGEST.fullmatch(entry):
            raise ValueError(f"line {number} of the file is no HMAC-SHA256: 64 digits")
    return tuple(entry for _, entry in entries)


def folded(text: str) -> str:
    """Return a text as it is compared with a list's: case and spaces aside."""
    # Compatibility forms first: full-width letters and ligatures fold like plain ones.
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def compacted(text: str) -> str:
    """Return the letters and digits of a text, folded, to compare exact values."""
    return "".join(char for char in folded(text) if char.isalnum())


def edm_entry(value: str, *, salt: bytes) -> str:
    """Return the entry of an exact value in a file.

    HMAC-SHA256 under ``salt`` of the value's letters and digits, folded, in
    hexadecimal. With file and salt one can confirm a guess, and no more.

    Raises:
        ValueError: nothing is left to compare.
    """
    compact = compacted(value)
    if not compact:
        raise ValueError("an exact value has a letter or a digit")
    # A plain hash of a card or social security number is found by exhaustive search.
    return hmac.new(salt, compact.encode(), hashlib.sha256).hexdigest()


def _lines(content: bytes) -> list[tuple[int, str]]:
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"the file has more than {MAX_FILE_BYTES} bytes")
    try:
        # Some editors put a byte order mark in front, which would become a part of the
        # first entry, so that it is never found.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("the file is not UTF-8") from None
    entries = [
        (number, line.strip())
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.startswith("#")
    ]
    # A list that was emptied by mistake would silently find nothing.
    if not entries:
        raise ValueError("the file has no entry")
    if len(entries) > MAX_ENTRIES:
        raise ValueError(f"the file has more than {MAX_ENTRIES} entries")
    for number, entry in entries:
        if len(entry) > MAX_ENTRY_CHARS:
            raise ValueError(
                f"line {number} of the file has more than {MAX_ENTRY_CHARS} characters"
            )
    return entries
