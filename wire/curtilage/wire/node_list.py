"""The nodes of a pool, each with its own evidence or key list, in one piece.

::

    node list = version(1) = 01  { length(1) id  length(4) content }+

In ascending order of the ids, so that there is one list that says the same. A content
may be empty: the relay could not get it. Knows shapes only.
"""

import re
from collections.abc import Mapping
from typing import Final

from curtilage.wire.cursor import Cursor
from curtilage.wire.errors import (
    LimitExceededError,
    MalformedError,
    UnsupportedError,
)

MAX_LIST_BYTES: Final = 4 * 1024 * 1024
MAX_NODES: Final = 32
_VERSION: Final = 1
# Part of a question's path, so no byte with a meaning there. The relay itself answers
# under these two names.
_ID: Final = re.compile(rb"(?!(?:keys|bundle)\Z)[a-z0-9][a-z0-9-]{0,31}")


def is_node_list(data: bytes) -> bool:
    """Return whether it is a list, not one node's bundle, which begins with a brace."""
    return data[:1] == bytes([_VERSION])


def parse_node_list(data: bytes) -> Mapping[str, bytes]:
    """Return the contents by node id, in the list's order.

    Raises:
        UnsupportedError: another version.
        MalformedError: an id that is none, twice or out of order; no node at all.
        TruncatedError: it ends too soon.
        LimitExceededError: too long, or too many nodes.
    """
    if len(data) > MAX_LIST_BYTES:
        raise LimitExceededError(f"node list longer than {MAX_LIST_BYTES} bytes")
    cursor = Cursor(data)
    if cursor.take_uint(1) != _VERSION:
        raise UnsupportedError("node list: another version")
    found: dict[str, bytes] = {}
    last = b""
    while cursor.remaining:
        node = cursor.take(cursor.take_uint(1))
        # Strictly ascending: twice the same id would be two chances for one node, and
        # an order of one's own could mark the client that was given it.
        if _ID.fullmatch(node) is None or node <= last:
            raise MalformedError("node list: an id that is invalid, or out of order")
        if len(found) == MAX_NODES:
            raise LimitExceededError(f"node list: more than {MAX_NODES} nodes")
        found[node.decode()] = cursor.take(cursor.take_uint(4))
        last = node
    if not found:
        raise MalformedError("node list: no node")
    return found
