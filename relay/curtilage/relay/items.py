"""One kind of structured field: a boolean Item (RFC 9651, section 3.3.6).

Knows the grammar of a true one, parameters included; refuses all else as
absent, as the RFC says of a field that does not parse.
"""

import re
from collections.abc import Sequence
from typing import Final

_BARE_ITEM: Final = rb"""(?:"(?:[ !#-\[\]-~]|\\["\\])*"|[!#-+\--:<-~]+)"""
_TRUE: Final = re.compile(
    rb"\?1(?: *; *[a-z*][a-z0-9_.*-]*(?:=" + _BARE_ITEM + rb")?)*"
)


def is_true(values: Sequence[bytes]) -> bool:
    """Return whether a field is there once, and a true boolean.

    Parameters that nobody defined are ignored (RFC 9651, section 1.1).

    Args:
        values: of every field of the name.
    """
    return len(values) == 1 and (
        values[0] == b"?1" or _TRUE.fullmatch(values[0]) is not None
    )
