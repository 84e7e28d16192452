"""Where a query may be answered, from the most private route to the least."""

from collections.abc import Iterable
from enum import StrEnum


class Route(StrEnum):
    """A route; an earlier member is more private than every later one.

    ``DEIDENTIFY``: the query may leave once tokens stand in the place of what was
    found, and a second inspection of the result lets it; else it is ``LOCAL``.
    """

    # The order is the promise: the most private of all that fire is taken, so a new
    # route has to be put in its place here.
    BLOCK = "block"
    LOCAL = "local"
    DEIDENTIFY = "deidentify"
    ENCLAVE = "enclave"

    @property
    def privacy(self) -> int:
        """Return a rank: a larger number is more private."""
        return _PRIVACY[self]


# From the order above, so that there is no second list that could disagree with it.
_PRIVACY = {route: -index for index, route in enumerate(Route)}


def most_private(routes: Iterable[Route]) -> Route:
    """Return the most private of the routes.

    Raises:
        ValueError: there is none; an empty choice permits nothing.
    """
    # No default: a route for "nobody asked for anything" would be one that leaves.
    return max(routes, key=lambda route: route.privacy)
