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
        # Of a copied context, both would seal under one nonce; of a copied one-shot,
        # each would have its own shot. Pickled, a key would be in a file.
        raise TypeError(f"{type(self).__name__} cannot be copied")


class OneShot(Uncopyable):
    """Gives away its right at the first call, whether that call succeeds or not."""

    __slots__ = ("_spent",)

    def __init__(self) -> None:
        self._spent = False

    def _spend(self) -> None:
        # Marked before the work is done and not behind it: a call that raised half way
        # must not be tried again with another message.
        if self._spent:
            raise ConsumedError(f"{type(self).__name__} was used before")
        self._spent = True
