"""Random choice of a pool's node for each question, uniform among the usable ones.

A party that controls the path to the enclaves must not be able to choose which enclave
reads a user's question: it may have broken into one of them. So a client draws by
itself, anew for each question, without preference; failed and busy nodes are left out
for a while, and no node is ever preferred. Excluding all other nodes would be a choice
too, so this is limited: half of the nodes always remain, filled up with those that
failed longest ago; and if fewer than half could be verified, or remain without the one
that has just failed, none is drawn. Answering selectively for some nodes then at most
doubles the chance that an attempt reaches a given one (docs/protocol.md, "Pools").

Pure: the pool's list, the time and the randomness are arguments.
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
"""The id of a gateway that is a single enclave, not a pool."""
FAILED_FOR: Final = timedelta(seconds=60)
BUSY_FOR: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Node:
    """One enclave that requests may be sealed to.

    Attributes:
        id: in the relay's table; ``GATEWAY`` if there is no pool.
        key: its own key, verified on its own evidence.
    """

    id: str
    key: VerifiedKey


def bundles_of(served: bytes) -> Mapping[str, bytes]:
    """Return the bundles that a relay serves, by node id; an empty one is missing.

    Anything but a list is a single gateway's bundle, to be judged by verification.
    """
    try:
        return parse_node_list(served) if is_node_list(served) else {GATEWAY: served}
    except WireError:
        return {GATEWAY: served}


def key_lists_of(mirrored: bytes, *, pool: bool) -> Mapping[str, bytes]:
    """Return the key lists that a mirror serves, by node id.

    Raises:
        RefusedError: ``key_inconsistent``: not a list of nodes, for a pool.
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
    """Draws a node; remembers those that failed.

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
            missing: number of listed nodes without a key in force.
            now: the time.
            meets: whether a key meets the requirement of the question's data. If
                none does, the caller finds out from the key that is drawn.
            other_than: the id of the node that has just failed; None: none has.
        """
        # Missing nodes might meet it, so they count; nodes known not to meet it do not
        # count.
        fitting = [each for each in verified if meets(each.key)] or list(verified)
        listed = len(fitting) + missing
        # Before the rule of the half: otherwise a relay that hides half of the nodes
        # and fails the first attempt would choose who reads the second.
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
        # Both limits: after a clock was set back, no node may be left out for hours.
        return until is not None and until - FAILED_FOR <= now < until
