"""What the detectors load at first use, outside of a query's time limit.

A model or a set of rules that few texts need is loaded when a text needs it. The
process announces when it begins and ends to load, so that its parent stops the query's
clock meanwhile and bounds the loading by a clock of its own (``worker``). In a process
without a parent, such as a measurement, nothing is announced.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Generic, TypeVar

_Made = TypeVar("_Made")


class _Announced:
    """What of this module changes: who is called, and how deep loading is nested."""

    call: Callable[[bool], None] | None = None
    depth: int = 0


def announce_to(call: Callable[[bool], None] | None) -> None:
    """Have every loading announced: True when one begins, False when it ends."""
    _Announced.call = call


@contextmanager
def loading() -> Generator[None]:
    """Announce that what the block does is loading; a nested block says nothing."""
    call = _Announced.call if _Announced.depth == 0 else None
    _Announced.depth += 1
    try:
        if call is not None:
            call(True)
        yield
    finally:
        _Announced.depth -= 1
        if call is not None:
            call(False)


class OnDemand(Generic[_Made]):
    """Something that is made when it is first asked for, and only once.

    Args:
        make: makes it. What it raises is raised for every later caller as well: what
            cannot be loaded is not tried again for each text.
    """

    def __init__(self, make: Callable[[], _Made]) -> None:
        self._make = make
        self._made: tuple[_Made] | None = None
        self._failed = False

    def get(self) -> _Made:
        """Return it.

        Raises:
            RuntimeError: it could not be made.
        """
        if self._made is None and not self._failed:
            # Until it is known to be good it counts as failed.
            self._failed = True
            with loading():
                self._made = (self._make(),)
            self._failed = False
        if self._made is None:
            raise RuntimeError("what the detectors need could not be loaded")
        return self._made[0]
