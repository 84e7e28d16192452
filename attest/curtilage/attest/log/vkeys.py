"""Keys of logs and witnesses as text: the "vkey" of C2SP signed-note.

``name+id+key``: the id is eight hex digits, the key base64 of one byte that names
the kind of signature and then the public key. Every id is computed again: a text
that names another key's is refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from curtilage.attest.encoding.strict_json import (
    decode_base64,
    encode_base64,
    malformed,
)
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.log.note import (
    COSIGNATURE_V1,
    ED25519,
    ML_DSA_44_KEY_BYTES,
    PUBLIC_KEY_BYTES,
    SUBTREE_V1,
    NoteKey,
)

_KEY_BYTES: Final[Mapping[int, int]] = {
    ED25519: PUBLIC_KEY_BYTES,
    COSIGNATURE_V1: PUBLIC_KEY_BYTES,
    SUBTREE_V1: ML_DSA_44_KEY_BYTES,
}
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_KEY_NAME: Final = re.compile(r"[^\s+]+")
_VERIFIER_KEY: Final = re.compile(r"([^\s+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/=]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierKey:
    """A key and what its owner signs with it.

    Attributes:
        key: name and public key.
        signature_type: ``ED25519`` of a log; ``COSIGNATURE_V1`` or
            ``SUBTREE_V1`` of a witness, the latter of a log too.
    """

    key: NoteKey
    signature_type: int

    @property
    def text(self) -> str:
        """The C2SP encoding: name, key id in hex, base64 of type and key."""
        tagged = bytes([self.signature_type]) + self.key.public_key
        key_id = self.key.key_id(self.signature_type).hex()
        return f"{self.key.name}+{key_id}+{encode_base64(tagged)}"


def parse_verifier_key(text: str) -> VerifierKey:
    """Read a verifier key (signed-note, "vkey"), without a newline.

    Raises:
        RefusedError: ``unsupported_algorithm`` for a type that this program does
            not verify, ``malformed`` for the rest: also for an id that is not
            that of the key.
    """
    match = _VERIFIER_KEY.fullmatch(text)
    if match is None:
        raise malformed("verifier key: not name+id+key")
    data = decode_base64(match[3], "verifier key")
    # Part of what the id is computed from: a key meant for one kind of signature has
    # another id for another.
    if data[0] not in _KEY_BYTES:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_ALGORITHM, f"verifier key of type {data[0]:#04x}"
        )
    # The length is not in the text, and a key of another length would be another
    # algorithm's.
    if len(data) - 1 != _KEY_BYTES[data[0]]:
        raise malformed("verifier key: not as long as its type says")
    try:
        found = VerifierKey(
            key=NoteKey(name=match[1], public_key=data[1:]), signature_type=data[0]
        )
        # The id is computed from the key and compared as text: a text with a wrong id
        # would be pinned, and never match a signature.
        same = found.text == text
    except UnicodeEncodeError:
        raise malformed("verifier key: not Unicode") from None
    if not same:
        raise malformed("verifier key: the id is another key's")
    return found


def public_key_in(text: str, *types: int) -> bytes | None:
    """Return the public key of a vkey, or None if the text is not one.

    For files that people write, where a bare key may stand as well. The name is
    compared with nothing: under another one, no signature is found.

    Args:
        text: as it is in the file.
        types: the kinds of signatures that the key may be for.

    Raises:
        RefusedError: ``malformed``: a vkey, but for another kind of signature.
    """
    try:
        found = parse_verifier_key(text)
    # No error: the file may hold a bare key, which the caller tries next.
    except RefusedError:
        return None
    if found.signature_type not in types:
        raise malformed("verifier key: for another kind of signature")
    return found.key.public_key


def is_key_name(text: str) -> bool:
    """Return whether a text may be a key's name (signed-note)."""
    return _KEY_NAME.fullmatch(text) is not None and _CONTROL.search(text) is None
