"""Our own split of the developers' data: what is trained on, what is held out.

A text belongs to one part by the digest of its key, so that training, tuning and
``curtilage evaluate --part`` agree without a list of texts.
"""

import hashlib

HELD_OUT_TENTHS = 3


def held_out(key: str) -> bool:
    """Tell whether the row with this key is kept for measuring."""
    digest = hashlib.sha256(f"curtilage-split:{key}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % 10 < HELD_OUT_TENTHS
