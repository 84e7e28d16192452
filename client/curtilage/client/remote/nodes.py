"""Which of a pool's nodes a question goes to: drawn, each with the same chance.

Whoever controls the way to the enclaves must not choose the one that reads a person's
question: he may have opened one of them. So a client draws by itself, anew for each
question, and has no favourite; what it learns on the way (a node failed, is busy)
takes nodes out for a while and never puts one first. To take out all others would be
to choose as well, so this has a bound: half are always left, of those that failed the
ones that failed longest ago; and where fewer than half could be verified, or are left
without the one that has just failed, none is drawn. Answering for some
nodes and not for others then at most doubles the chance that an attempt reaches a
given one (docs/protocol.md, "Pools").

Pure: what a pool lists, the time and the randomness come in.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.verified_key import VerifiedKey
from curtilage.wire.errors import WireError
from curtilage.wire.node_list import is_node_list, parse_node_list

GATEWAY: Final = ""
"""The id of a gateway that is one enclave and no pool."""
FAILED_FOR: Final = timedelta(seconds=60)
BUSY_FOR: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Node:
    """One enclave that may be sealed to.

    Attributes:
        id: in the relay's table; ``GATEWAY`` where there is no pool.
        key: its own, verified by itself.
    """

    id: str
    key: VerifiedKey


def bundles_of(served: bytes) -> Mapping[str, bytes]:
    """Return the bundles that a relay serves, by node id; an empty one is missing.

    What is no list is one gateway's bundle, which its verification then judges.
    """
    try:
        return parse_node_list(served) if is_node_list(served) else {GATEWAY: served}
    except WireError:
        return {GATEWAY: served}


def key_lists_of(mirrored: bytes, *, pool: bool) -> Mapping[str, bytes]:
    """Return the key lists that a mirror serves, by node id.

    Raises:
        RefusedError: ``key_inconsistent``: no list of nodes, of a pool.
    """
    if not pool:
        return {GATEWAY: mirrored}
    try:
        return parse_node_list(mirrored)
    except WireError:
        raise RefusedError(
            RefusalCode.KEY_INCONSISTENT, "the mirror serves no list of nodes"
        ) from None


class Draw:
    """The draw of a node, and the memory of those that failed.

    Args:
        below: draws an integer from 0 to one less than what it is given.
    """

    def __init__(self, below: Callable[[int], int]) -> None:
        self._below = below
        self._out: dict[str, datetime] = {}

    def failed(self, node: str, now: datetime, *, busy: bool) -> None:
        """Leave a node out for a while."""
        self._out = {each: until for each, until in self._out.items() if until > now}
        until = now + (BUSY_FOR if busy else FAILED_FOR)
        self._out[node] = max(until, self._out.get(node, until))

    def node(
        self,
        verified: Sequence[Node],
        missing: int,
        now: datetime,
        *,
        meets: Callable[[VerifiedKey], bool],
        other_than: str | None = None,
    ) -> Node | None:
        """Draw a node, or return None where too few are left.

        Args:
            verified: every node whose key is in force.
            missing: how many there are besides, of which that is not so.
            now: the time.
            meets: whether a key meets what the question's data demand. Where none
                does, whoever asks is told by the key that is drawn.
            other_than: the id of the node that has just failed; None: none has.
        """
        # The missing ones might meet it too, so they count; those that are known not to
        # do not.
        fitting = [each for each in verified if meets(each.key)] or list(verified)
        listed = len(fitting) + missing
        # Before the rule of the half: or a relay that hides half of the nodes and fails
        # the first attempt would choose who reads the second.
        fitting = [each for each in fitting if each.id != other_than]
        if 2 * len(fitting) < listed:
            return None
        left = [each for each in fitting if not self._is_out(each.id, now)]
        out = [each for each in fitting if self._is_out(each.id, now)]
        out.sort(key=lambda each: self._out[each.id])
        left += out[: max(0, (listed + 1) // 2 - len(left))]
        if len(left) <= 1:
            return left[0] if left else None
        return left[self._below(len(left))]

    def _is_out(self, node: str, now: datetime) -> bool:
        until = self._out.get(node)
        # By both ends: a clock that was set back must leave nobody out for hours.
        return until is not None and until - FAILED_FOR <= now < until
