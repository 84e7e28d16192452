"""Our own split of the developers' data into training and held-out parts.

The digest of its key determines the part of a text, so that training, tuning and
``curtilage evaluate --part`` agree without a list of texts.
"""

import hashlib

HELD_OUT_TENTHS = 3


def held_out(key: str) -> bool:
    """Return whether the row with this key is held out for measuring."""
    digest = hashlib.sha256(f"curtilage-split:{key}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % 10 < HELD_OUT_TENTHS
