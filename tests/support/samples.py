"""Every cut and every flipped byte, or a fixed sample of them.

A test that takes the fixture ``sample`` tries some places of a long list in
``make test``, the same in each run, and every place in ``make test-exhaustive``.
"""

from collections.abc import Collection, Sequence
from random import Random
from typing import Final, TypeVar

T = TypeVar("T")

SIZE: Final = 48


class Sample:
    """Which places of a list are tried.

    Args:
        every: all of them.
    """

    def __init__(self, *, every: bool) -> None:
        self.every = every

    def __call__(
        self, places: Sequence[T], *, edges: Collection[T] = (), size: int = SIZE
    ) -> list[T]:
        """Return the first two and last two places, the edges, and others at random.

        Args:
            places: all that could be tried, in their order.
            edges: where a part begins or ends; the place before each comes as well.
            size: how many others.
        """
        if self.every or len(places) <= size:
            return list(places)
        count = len(places)
        kept = {0, 1, count - 2, count - 1}
        for at, place in enumerate(places):
            if place in edges:
                kept |= {max(at - 1, 0), at}
        # No secret, and the same for each run: a failure can be repeated.
        kept.update(Random(count).sample(range(count), size))  # noqa: S311
        return [places[at] for at in sorted(kept)]
