"""Reads fixed layouts from front to back; no byte is read twice or left over.

Knows positions and ends, not what the bytes mean.
"""

from typing import Literal

from curtilage.attest.encoding.strict_json import malformed


class Reader:
    """Takes bytes off the front of a message, and never more than there are.

    Args:
        data: the message.
        where: what it is, for a refusal.
        byteorder: of its numbers.
    """

    def __init__(
        self,
        data: bytes,
        where: str,
        *,
        byteorder: Literal["little", "big"] = "little",
    ) -> None:
        self._data = data
        self._where = where
        self._byteorder: Literal["little", "big"] = byteorder
        self._position = 0

    @property
    def position(self) -> int:
        """Number of bytes that were taken."""
        return self._position

    @property
    def left(self) -> int:
        """Number of bytes that are left."""
        return len(self._data) - self._position

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes.

        Raises:
            RefusedError: ``malformed``: there are not so many.
        """
        begin = self._position
        end = begin + count
        # A slice beyond the end would give fewer bytes and no error.
        if end > len(self._data):
            raise malformed(f"{self._where}: truncated")
        self._position = end
        return self._data[begin:end]

    def number(self, count: int) -> int:
        """Return the next ``count`` bytes as a number.

        Raises:
            RefusedError: ``malformed``: there are not so many.
        """
        return int.from_bytes(self.take(count), self._byteorder)

    def end(self) -> None:
        """Refuse unless everything was taken.

        Raises:
            RefusedError: ``malformed``.
        """
        # Unread bytes are unchecked bytes.
        if self.left:
            raise malformed(f"{self._where}: trailing bytes")
