"""Verdicts of other verifiers, which are no evidence: recognised and refused.

NVIDIA's remote service (NRAS) and its local verifier both answer in JSON Web
Tokens. The local one's say ``{"alg":"none"}``: anybody can write them. Even a
signed one is somebody's opinion of evidence that is not shown here, so none is
accepted; a report begins with SPDM's version and cannot be mistaken for one.
"""

import base64
import binascii
import re
from itertools import islice
from typing import Final

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.spdm import SPDM_VERSION
from curtilage.attest.strictjson import parse_object

# RFC 7515, section 7.1: three base64url texts, of which the last may be empty.
# A header is a JSON object, so its text begins with that of "{" and a quote, a
# blank or "}".
_TOKEN: Final = re.compile(
    rb"(?<![A-Za-z0-9_-])(e[yw3][A-Za-z0-9_-]{1,1024})\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"
)
_JSON_OPENINGS: Final = (b"{", b"[", b'"')
# One for the whole and one for each device; more are refused by the first ones.
_MAX_TOKENS: Final = 32
_MAX_HEADER_BYTES: Final = 1024
_MAX_ALGORITHM_BYTES: Final = 32


def refuse_token(data: bytes) -> None:
    """Refuse what is a JSON Web Token, or JSON that may hold one.

    Raises:
        RefusedError: ``unsigned`` if a token says that it is not signed,
            ``unsupported_algorithm`` for every other.
    """
    if data[:1] == bytes([SPDM_VERSION]):
        return
    text = data.lstrip()
    headers = [match[1] for match in islice(_TOKEN.finditer(data), _MAX_TOKENS)]
    if not headers and not text.startswith(_JSON_OPENINGS):
        return
    if any(_algorithm(header).lower() == "none" for header in headers):
        raise RefusedError(RefusalCode.UNSIGNED, "a token that nobody signed")
    raise RefusedError(
        RefusalCode.UNSUPPORTED_ALGORITHM, "a verdict of others is no evidence"
    )


def _algorithm(header: bytes) -> str:
    """Return a token's algorithm, or "" if its header cannot be read."""
    try:
        decoded = base64.urlsafe_b64decode(header + b"=" * (-len(header) % 4))
        fields = parse_object(decoded, where="token", limit_bytes=_MAX_HEADER_BYTES)
        return fields.text("alg", limit=_MAX_ALGORITHM_BYTES)
    except (binascii.Error, RefusedError):
        return ""
