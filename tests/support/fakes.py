"""Stand-ins for functions of libraries."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def returns(value: T) -> Callable[..., T]:
    """Return a function that gives one value, whatever it is called with."""

    def returning(*_arguments: object) -> T:
        return value

    return returning
