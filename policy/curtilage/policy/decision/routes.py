"""Routes of a query, from the most private to the least."""

from collections.abc import Iterable
from enum import StrEnum


class Route(StrEnum):
    """A route; an earlier member is more private than every later one.

    ``DEIDENTIFY``: the query may leave once tokens have replaced what was found, and
    a second inspection of the result permits it; otherwise it is ``LOCAL``.
    """

    # The order matters: the most private of all that fire is taken, so a new route must
    # be inserted at its rank.
    BLOCK = "block"
    LOCAL = "local"
    DEIDENTIFY = "deidentify"
    ENCLAVE = "enclave"

    @property
    def privacy(self) -> int:
        """Return a rank: a larger number is more private."""
        return _PRIVACY[self]


# From the order above, so that no second list can disagree with it.
_PRIVACY = {route: -index for index, route in enumerate(Route)}


def most_private(routes: Iterable[Route]) -> Route:
    """Return the most private of the routes.

    Raises:
        ValueError: there is none; an empty choice permits nothing.
    """
    # No default: a route for an empty choice would be one that sends the query out.
    return max(routes, key=lambda route: route.privacy)
