"""Loading at first use, outside a query's time limit.

A model or a set of rules that few texts need is loaded when a text needs it. The
process announces when loading begins and ends, so that its parent pauses the query's
clock and limits the loading by another clock (``worker``). In a process without a
parent, such as a measurement, nothing is announced.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

NOT_LOADED: Final = "what the detectors need could not be loaded"

_Made = TypeVar("_Made")


class _Announced:
    """This module's state: the callback, and how deep loading is nested."""

    call: Callable[[bool], None] | None = None
    depth: int = 0


def announce_to(call: Callable[[bool], None] | None) -> None:
    """Set the callback: True when loading begins, False when it ends."""
    _Announced.call = call


@contextmanager
def loading() -> Generator[None]:
    """Announce that the block loads something; a nested block announces nothing."""
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
    """A value that is made when it is first needed, and only once.

    Args:
        make: makes it. If it raises, later callers get an error too: what cannot be
            loaded is not tried again for each text.
    """

    def __init__(self, make: Callable[[], _Made]) -> None:
        self._make = make
        self._made: tuple[_Made] | None = None
        self._failed = False

    def get(self) -> _Made:
        """Return the value.

        Raises:
            RuntimeError: it could not be made.
        """
        if self._made is None and not self._failed:
            # It counts as failed until it is known to be good.
            self._failed = True
            with loading():
                self._made = (self._make(),)
            self._failed = False
        if self._made is None:
            raise RuntimeError(NOT_LOADED)
        return self._made[0]
