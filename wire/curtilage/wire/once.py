"""Objects that may be used once and never copied."""

from typing import NoReturn, SupportsIndex

from typing_extensions import override

from curtilage.wire.errors import ConsumedError


class Uncopyable:
    """Holds a secret or a right: cannot be copied or pickled."""

    __slots__ = ()

    @override
    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse what ``copy``, ``deepcopy`` and ``pickle`` all go through."""
        raise TypeError(f"{type(self).__name__} cannot be copied")


class OneShot(Uncopyable):
    """Gives away its right at the first call, whether that call succeeds or not."""

    __slots__ = ("_spent",)

    def __init__(self) -> None:
        self._spent = False

    def _spend(self) -> None:
        if self._spent:
            raise ConsumedError(f"{type(self).__name__} was used before")
        self._spent = True
