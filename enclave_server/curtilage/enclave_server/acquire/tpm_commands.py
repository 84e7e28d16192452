"""Three commands of a TPM 2.0: read an index, read registers, quote.

As in the TCG's Library Specification, Part 3 (commands) and Part 2 (structures), over
any transport to a TPM; on Linux the resource manager's device. No library is used: the
necessary code is smaller than what one would have to trust. Every authorisation is the
empty password, as for the indices and keys that a cloud provider leaves for its guests.
Big-endian throughout.
"""

import os
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from typing_extensions import override

from curtilage.attest.encoding.reader import Reader
from curtilage.attest.errors import RefusedError
from curtilage.enclave_server.errors import AcquisitionError

TPM_DEVICE: Final = Path("/dev/tpmrm0")
MAX_RESPONSE_BYTES: Final = 4096
ATTEMPTS: Final = 5
RETRY_S: Final = 0.05

_NO_SESSIONS: Final = 0x8001
_SESSIONS: Final = 0x8002
_NV_READ: Final = 0x0000014E
_QUOTE: Final = 0x00000158
_NV_READ_PUBLIC: Final = 0x00000169
_PCR_READ: Final = 0x0000017E
_OWNER: Final = 0x40000001
_PASSWORD: Final = 0x40000009
_SHA256: Final = 0x000B
_NULL: Final = 0x0010
# TPM_RC_YIELDED, TPM_RC_TESTING, TPM_RC_RETRY: busy, retry soon.
_AGAIN: Final = frozenset({0x908, 0x90A, 0x922})
_HEADER: Final = struct.Struct(">HII")
# An empty password (TPMS_AUTH_COMMAND), preceded by its size.
_AUTHORISATION: Final = struct.pack(">IIHBH", 9, _PASSWORD, 0, 0, 0)
# The size that every TPM can return at once; its maximum is vendor-specific.
_NV_PIECE_BYTES: Final = 512
_SELECTION_BYTES: Final = 3
PCR_COUNT: Final = 8 * _SELECTION_BYTES
PCR_BYTES: Final = 32


class TpmChannel(Protocol):
    """A transport for TPM commands; it may raise ``OSError``."""

    def transmit(self, command: bytes) -> bytes:
        """Send one command and return its response, at most 4 KiB."""
        ...


class TpmDevice:
    """The kernel's device.

    Args:
        path: the device; the resource manager's, which removes left-over objects.
    """

    def __init__(self, path: Path = TPM_DEVICE) -> None:
        self._path = path

    def transmit(self, command: bytes) -> bytes:
        """Exchange one command; see the Protocol."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.write(descriptor, command)
            return os.read(descriptor, MAX_RESPONSE_BYTES)
        finally:
            os.close(descriptor)


class Tpm:
    """A TPM that answers three commands.

    Every method raises ``AcquisitionError`` if the TPM refuses or its response is
    malformed.

    Args:
        channel: carries the commands.
        sleep: waits when the TPM reports that it is busy.
    """

    def __init__(
        self, channel: TpmChannel, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._channel = channel
        self._sleep = sleep

    def nv_read(self, index: int, limit: int) -> bytes:
        """Read a whole non-volatile index with the owner's authorisation.

        Args:
            index: the handle, such as 0x01400001.
            limit: a longer index is refused unread.
        """
        reader = self._command(_NV_READ_PUBLIC, struct.pack(">I", index), b"")
        public = _Response(reader.sized())
        # Index, name algorithm, attributes; then the policy and the size.
        public.take(4 + 2 + 4)
        public.sized()
        size = public.number(2)
        if size > limit:
            raise AcquisitionError(f"the index is longer than {limit} bytes")
        data = b""
        while len(data) < size:
            count = min(_NV_PIECE_BYTES, size - len(data))
            handles = struct.pack(">II", _OWNER, index)
            parameters = struct.pack(">HH", count, len(data))
            reader = self._command(_NV_READ, handles, parameters, authorised=True)
            piece = reader.sized()
            if len(piece) != count:
                raise AcquisitionError("the TPM returned another length")
            data += piece
        return data

    def pcr_read(self, indices: Sequence[int]) -> tuple[tuple[int, bytes], ...]:
        """Read registers of the SHA-256 bank, in the order of their indices."""
        values: dict[int, bytes] = {}
        missing = sorted(set(indices))
        # A TPM returns as many at a time as fit into its response, for example eight.
        while missing:
            reader = self._command(_PCR_READ, b"", _selection(missing))
            # The update counter of the registers: their values are more precise.
            reader.take(4)
            given = reader.selection()
            digests = reader.digests()
            # At least one of the missing registers, or this would never end.
            if (
                not given
                or len(given) != len(digests)
                or not set(given) <= set(missing)
            ):
                raise AcquisitionError("the TPM returned other registers")
            values.update(zip(given, digests, strict=True))
            missing = [index for index in missing if index not in values]
        return tuple(sorted(values.items()))

    def quote(
        self, key: int, qualifying: bytes, indices: Sequence[int]
    ) -> tuple[bytes, bytes]:
        """Quote registers of the SHA-256 bank with a restricted key's own scheme.

        Args:
            key: the key's handle, such as 0x81000003.
            qualifying: what the quote carries, at most 32 bytes or so.
            indices: the registers.

        Returns:
            TPMS_ATTEST and TPMT_SIGNATURE.
        """
        parameters = (
            struct.pack(">H", len(qualifying))
            + qualifying
            + struct.pack(">H", _NULL)
            + _selection(indices)
        )
        handle = struct.pack(">I", key)
        reader = self._command(_QUOTE, handle, parameters, authorised=True)
        message = reader.sized()
        return message, reader.rest()

    def _command(
        self, code: int, handles: bytes, parameters: bytes, *, authorised: bool = False
    ) -> "_Response":
        body = handles + (_AUTHORISATION if authorised else b"") + parameters
        tag = _SESSIONS if authorised else _NO_SESSIONS
        command = _HEADER.pack(tag, _HEADER.size + len(body), code) + body
        for attempt in range(1, ATTEMPTS + 1):
            response = self._channel.transmit(command)
            if len(response) < _HEADER.size:
                raise AcquisitionError("the TPM's response is too short")
            given, size, status = _HEADER.unpack_from(response)
            if size != len(response):
                raise AcquisitionError("the TPM's response has another length")
            if status:
                if status not in _AGAIN or attempt == ATTEMPTS:
                    raise AcquisitionError(f"the TPM refused: 0x{status:x}")
                self._sleep(RETRY_S)
                continue
            # An error response has the tag of a command without sessions, any other
            # response that of its command: with sessions its parameters begin
            # elsewhere.
            if given != tag:
                raise AcquisitionError("the TPM's response has another tag")
            content = _Response(response[_HEADER.size :])
            return _Response(content.counted()) if authorised else content
        raise AcquisitionError("the TPM was not asked")  # pragma: no cover - returned


def _selection(indices: Sequence[int]) -> bytes:
    """Encode a TPML_PCR_SELECTION of one bank."""
    bits = 0
    for index in indices:
        if not 0 <= index < PCR_COUNT:
            raise AcquisitionError("no such register")
        bits |= 1 << index
    selected = bits.to_bytes(_SELECTION_BYTES, "little")
    return struct.pack(">IHB", 1, _SHA256, _SELECTION_BYTES) + selected


class _Response(Reader):
    """A response's parts from its front; a short one is this process's error."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data, "the TPM's response", byteorder="big")

    @override
    def take(self, count: int) -> bytes:
        try:
            return super().take(count)
        except RefusedError:
            raise AcquisitionError("the TPM's response ends too soon") from None

    def sized(self) -> bytes:
        return self.take(self.number(2))

    def counted(self) -> bytes:
        return self.take(self.number(4))

    def rest(self) -> bytes:
        return self.take(self.left)

    def selection(self) -> list[int]:
        """Read a TPML_PCR_SELECTION of the SHA-256 bank alone."""
        if self.number(4) != 1 or self.number(2) != _SHA256:
            raise AcquisitionError("the TPM gave another bank")
        bits = int.from_bytes(self.take(self.number(1)), "little")
        return [index for index in range(PCR_COUNT) if bits >> index & 1]

    def digests(self) -> list[bytes]:
        """Read a TPML_DIGEST of SHA-256 values."""
        count = self.number(4)
        if count > PCR_COUNT:
            raise AcquisitionError("the TPM gave too many registers")
        values = [self.sized() for _ in range(count)]
        if any(len(value) != PCR_BYTES for value in values):
            raise AcquisitionError("the TPM gave a register of another length")
        return values
