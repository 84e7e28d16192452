"""Chunked Oblivious HTTP (draft-ietf-ohai-chunked-ohttp): messages that stream.

::

    request  = hdr enc { len(ct) ctx.Seal("", p) }* 0 ctx.Seal("final", p)
    response = nonce { len(ct) Seal(key, n XOR i, "", p) }*
               0 Seal(key, n XOR i, "final", p)

``len`` is a QUIC variable-length integer, 0 ahead of the final chunk, which runs
to the end of the HTTP body. The lengths are not authenticated; the order and the
end are: a message is complete only when its final chunk has opened. A body that
ends before that is ``TruncatedError``, never an end.
"""

import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final

from curtilage.wire.cursor import PushParser, ReceiveBuffer
from curtilage.wire.encapsulation import (
    CHUNKED_LABELS,
    HEADER_BYTES,
    MAX_MESSAGE_BYTES,
    GatewayKey,
    ResponseSecret,
    accept_request,
    begin_request,
    reject_implicitly,
    select_key,
)
from curtilage.wire.errors import (
    ConsumedError,
    LimitExceededError,
    MalformedError,
    OpenError,
    TruncatedError,
)
from curtilage.wire.hpke.suite import TAG_BYTES, PrivateKey, Suite
from curtilage.wire.keyconfig import KeyConfig
from curtilage.wire.once import OneShot, Uncopyable
from curtilage.wire.varint import encode_varint, encode_vector, pull_varint

if TYPE_CHECKING:
    from curtilage.wire.hpke.aead import NumberedKey

__all__ = [
    "MAX_CHUNK_BYTES",
    "MAX_SMALL_CHUNKS",
    "ChunkedRequestOpener",
    "ChunkedResponseOpener",
    "ChunkedResponseSealer",
    "GatewayKey",
    "SealedChunkedRequest",
    "open_chunked_request",
    "seal_chunked_request",
    "seal_request_chunks",
]

# The draft has every receiver take chunks of 2^14 bytes of plaintext, and leaves
# larger ones to it. We neither send nor accept them: a chunk is buffered whole before
# a single byte of it is known to be genuine.
MAX_CHUNK_BYTES: Final = 2**14

_MAX_SEALED_BYTES: Final = MAX_CHUNK_BYTES + TAG_BYTES
# Additional data of the final chunk and of no other, so that an end cannot be forged
# by cutting: a middle chunk in the last place does not open as the last.
_FINAL: Final = b"final"

# A chunk costs its sender some bytes and its recipient some microseconds: a request
# may have this many, and one more for every 1024 sealed bytes.
MAX_SMALL_CHUNKS: Final = 64
_OCTETS_OF_A_CHUNK: Final = 1024

_OpenChunk = Callable[[bytes, bytes], bytes]


class ChunkedResponseOpener(Uncopyable):
    """Opens the one response to a chunked request, as it arrives.

    Args:
        secret: from the request.
        limit_bytes: bytes of the encapsulated response accepted in total.
    """

    __slots__ = ("_parser", "_secret")

    def __init__(
        self, secret: ResponseSecret, *, limit_bytes: int = MAX_MESSAGE_BYTES
    ) -> None:
        self._secret = secret
        buffer = ReceiveBuffer(limit_bytes=limit_bytes)
        self._parser = PushParser(buffer, self._steps(buffer))

    def push(self, data: bytes) -> list[bytes]:
        """Take in ``data``; return the plaintexts of the chunks it completes.

        What is returned was sealed by the gateway, in this order, for this
        request. ``finish`` checks that nothing is missing at the end.

        Raises:
            OpenError: a chunk is forged, out of place, or empty but not final.
            LimitExceededError: a chunk or the message is too long.
            ConsumedError: an earlier call raised, or ``finish`` was called.
        """
        return self._parser.push(data)

    def finish(self) -> bytes:
        """Declare the end of the body; return the final chunk's plaintext.

        Raises:
            TruncatedError: the body ended before its final chunk.
            OpenError: the final chunk was cut, extended or forged.
            ConsumedError: an earlier call raised, or this is the second.
        """
        (plaintext,) = self._parser.finish()
        return plaintext

    def _steps(self, buffer: ReceiveBuffer) -> Generator[bytes | None, None, None]:
        nonce = yield from buffer.pull(self._secret.nonce_bytes)
        keys = self._secret.keys(nonce)
        # The counter is in the nonce of each chunk and nowhere on the wire: a chunk
        # that is left out, repeated or moved opens under no nonce that is tried.
        counter = count()

        def open_chunk(ciphertext: bytes, aad: bytes) -> bytes:
            return keys.open(next(counter), ciphertext, aad)

        # How many there are is not bounded: they are the gateway's, whose evidence
        # was verified. ``FrameCheck`` counts them where a number was promised.
        yield from _open_chunks(buffer, open_chunk)


class ChunkedResponseSealer(Uncopyable):
    """Seals the one response to a chunked request, chunk by chunk.

    ``begin`` once, ``seal`` any number of times, ``finish`` once; what each
    returns goes out in that order. An error ends the response.
    """

    __slots__ = ("_bytes", "_counter", "_keys", "_over", "_secret")

    def __init__(self, secret: ResponseSecret) -> None:
        self._secret = secret
        self._keys: NumberedKey | None = None
        self._counter = 0
        self._bytes = 0
        self._over = False

    def begin(self, *, random: Callable[[int], bytes] = secrets.token_bytes) -> bytes:
        """Return the response nonce, which opens the response.

        Raises:
            ConsumedError: the second call.
        """
        # A second nonce would begin a second response under the same secret.
        if self._keys is not None:
            raise ConsumedError("this response has begun")
        nonce = self._secret.draw_nonce(random)
        self._keys = self._secret.keys(nonce)
        return nonce

    def seal(self, plaintext: bytes) -> bytes:
        """Seal a chunk that is not the last, 1..16384 bytes.

        Raises:
            MalformedError: the chunk is empty, which receivers must refuse.
            LimitExceededError: it is too long, or the whole response is.
            ConsumedError: before ``begin`` or after ``finish``.
        """
        # The draft counts an empty chunk that is not final as a failed decryption.
        if not plaintext:
            raise MalformedError("empty chunk that is not the last")
        return encode_vector(self._seal(plaintext, b""))

    def finish(self, plaintext: bytes = b"") -> bytes:
        """Seal the final chunk, 0..16384 bytes; the body ends behind it.

        Raises:
            LimitExceededError: it is too long, or the whole response is.
            ConsumedError: before ``begin``, or the second call.
        """
        # A length of 0 announces it; it runs to the end of the body, whose length the
        # HTTP below knows. Only the tag makes it an end.
        sealed = encode_varint(0) + self._seal(plaintext, _FINAL)
        self._over = True
        return sealed

    def _seal(self, plaintext: bytes, aad: bytes) -> bytes:
        if self._keys is None or self._over:
            raise ConsumedError("this response has not begun or is over")
        _check_chunk(plaintext)
        # Of the whole response: its chunks are sealed under one key.
        self._bytes += len(plaintext)
        if self._bytes > MAX_MESSAGE_BYTES:
            raise LimitExceededError(f"message longer than {MAX_MESSAGE_BYTES} bytes")
        sealed = self._keys.seal(self._counter, plaintext, aad)
        self._counter += 1
        return sealed


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedChunkedRequest:
    """An encapsulated request and the only thing that opens its response.

    Attributes:
        message: ``message/ohttp-chunked-req``, to be sent at most once.
        opener: for the response.
    """

    message: bytes = field(repr=False)
    opener: ChunkedResponseOpener


def seal_chunked_request(
    config: KeyConfig,
    bhttp: bytes,
    *,
    suite: Suite | None = None,
    ephemeral: PrivateKey | None = None,
    chunk_bytes: int = MAX_CHUNK_BYTES,
) -> SealedChunkedRequest:
    """Encapsulate one request, whole, before any of it leaves.

    Args:
        config: the gateway's; that it is the right one was settled before.
        bhttp: a binary HTTP request.
        suite: one that ``config`` offers; by default its first that we support.
        ephemeral: only for known-answer tests; see ``setup_sender``.
        chunk_bytes: plaintext of each chunk but the last, 1..16384.

    Raises:
        UnsupportedError: no suite in common, or ``suite`` is not offered.
        MalformedError: the gateway's public key is no usable point, or
            ``chunk_bytes`` is out of range.
        LimitExceededError: ``bhttp`` is longer than 2^30 bytes.
    """
    if not 1 <= chunk_bytes <= MAX_CHUNK_BYTES:
        raise MalformedError(f"chunk size outside 1..{MAX_CHUNK_BYTES}")
    # At least one, also of nothing: what has no final chunk never ends.
    starts = range(0, max(len(bhttp), 1), chunk_bytes)
    chunks = [bhttp[start : start + chunk_bytes] for start in starts]
    return seal_request_chunks(config, chunks, suite=suite, ephemeral=ephemeral)


def seal_request_chunks(
    config: KeyConfig,
    chunks: Sequence[bytes],
    *,
    suite: Suite | None = None,
    ephemeral: PrivateKey | None = None,
) -> SealedChunkedRequest:
    """Encapsulate one request that is already cut into chunks, whole.

    Args:
        config: the gateway's.
        chunks: 1..16384 bytes each; the last may be empty.
        suite: one that ``config`` offers.
        ephemeral: only for known-answer tests.

    Raises:
        MalformedError: there is no chunk, or one but the last is empty.
    """
    # All checks before the first seal: a context that has sealed half of a request
    # must not be left behind with a sequence number that somebody could go on from.
    if not chunks or not all(chunks[:-1]):
        raise MalformedError("a request has a final chunk, and no other is empty")
    if sum(map(len, chunks)) > MAX_MESSAGE_BYTES:
        raise LimitExceededError(f"message longer than {MAX_MESSAGE_BYTES} bytes")
    for chunk in chunks:
        _check_chunk(chunk)
    prefix, context, secret = begin_request(
        config, CHUNKED_LABELS, suite=suite, ephemeral=ephemeral
    )
    # HPKE counts the chunks of a request; only the final one has additional data.
    parts = [prefix]
    parts += [encode_vector(context.seal(chunk, b"")) for chunk in chunks[:-1]]
    parts += [encode_varint(0), context.seal(chunks[-1], _FINAL)]
    message = b"".join(parts)
    return SealedChunkedRequest(message=message, opener=ChunkedResponseOpener(secret))


class ChunkedRequestOpener(OneShot):
    """Opens one chunked request as it arrives.

    Trusts nothing in it and knows no replays. A gateway answers every error
    but ``UnknownKeyError`` alike.

    Args:
        keys: the live keys by key identifier.
        limit_bytes: bytes of the encapsulated request accepted in total.
    """

    __slots__ = ("_keys", "_parser", "_secret", "_verified")

    def __init__(self, keys: Mapping[int, GatewayKey], *, limit_bytes: int) -> None:
        super().__init__()
        self._keys = keys
        # Twice: the secret is available with the encapsulated key, but must not be
        # used for an answer before the final chunk has opened.
        self._secret: ResponseSecret | None = None
        self._verified: ResponseSecret | None = None
        buffer = ReceiveBuffer(limit_bytes=limit_bytes)
        self._parser = PushParser(buffer, self._steps(buffer))

    def push(self, data: bytes) -> list[bytes]:
        """Take in ``data``; return the plaintexts of the chunks it completes.

        They are not to be acted upon before ``finish`` has returned: until then
        the request is not complete.

        Raises:
            UnknownKeyError: the client holds an old key configuration.
            OpenError: the request was not sealed to the key, or was altered.
            LimitExceededError: a chunk or the message is too long, or there are
                too many small chunks.
            ConsumedError: an earlier call raised, or ``finish`` was called.
        """
        return self._parser.push(data)

    def finish(self) -> bytes:
        """Declare the end of the body; return the final chunk's plaintext.

        Raises:
            TruncatedError: the body ended before its final chunk.
            OpenError: the final chunk was cut, extended or forged.
            ConsumedError: an earlier call raised, or this is the second.
        """
        (plaintext,) = self._parser.finish()
        self._verified = self._secret
        return plaintext

    def sealer(self) -> ChunkedResponseSealer:
        """Return the only thing that seals the response.

        Raises:
            ConsumedError: ``finish`` has not returned, or the second call.
        """
        if self._verified is None:
            raise ConsumedError("the request is not complete")
        self._spend()
        return ChunkedResponseSealer(self._verified)

    def _steps(self, buffer: ReceiveBuffer) -> Generator[bytes | None, None, None]:
        header = yield from buffer.pull(HEADER_BYTES)
        key = select_key(self._keys, header)
        try:
            enc = yield from buffer.pull(key.nenc)
        except TruncatedError:
            # If it were refused at once, the time would distinguish a body that ends
            # inside ``enc`` from a forged one. It costs a decapsulation like any other.
            reject_implicitly(key, header, CHUNKED_LABELS)
            raise
        context, self._secret = accept_request(key, header, enc, CHUNKED_LABELS)
        yield from _open_chunks(buffer, context.open, small_chunks=MAX_SMALL_CHUNKS)


def open_chunked_request(
    keys: Mapping[int, GatewayKey], message: bytes
) -> tuple[bytes, ChunkedResponseSealer]:
    """Open one chunked request that is here in full.

    Returns:
        What the client sealed, and the sealer of the response.

    Raises:
        UnknownKeyError: the client holds an old key configuration.
        TruncatedError: the message ends before its final chunk.
        OpenError: it was not sealed to the key, or was altered.
        LimitExceededError: a chunk is too long, or there are too many small ones.
    """
    opener = ChunkedRequestOpener(keys, limit_bytes=MAX_MESSAGE_BYTES)
    plaintexts = opener.push(message)
    plaintexts.append(opener.finish())
    return b"".join(plaintexts), opener.sealer()


def _open_chunks(
    buffer: ReceiveBuffer, open_chunk: _OpenChunk, *, small_chunks: int | None = None
) -> Generator[bytes | None, None, None]:
    """Open chunks up to the final one, which the end of the body ends.

    Args:
        buffer: the body, behind what comes before its first chunk.
        open_chunk: opens a ciphertext with its additional data, in order.
        small_chunks: how many a stranger may send whatever their size, or None.
    """
    chunks = octets = 0
    final = False
    while not final:
        # The length is authenticated only by the tag behind it. A wrong one makes the
        # chunk fail to open or the body end too soon, and moves no byte.
        length = yield from pull_varint(buffer)
        final = length == 0
        if final:
            # All that is left is the final chunk, and it is not opened before the
            # body has ended: bytes could follow that it does not cover.
            ciphertext = yield from _pull_rest(buffer)
        else:
            # Held against the bound before any of it is waited for: a length costs
            # its sender eight bytes, and must not cost us that much memory.
            if length > _MAX_SEALED_BYTES:
                raise LimitExceededError(f"chunk longer than {_MAX_SEALED_BYTES} bytes")
            if length <= TAG_BYTES:
                # An empty chunk that is not final counts as a failed decryption: it
                # would let a stream run on without ever saying anything.
                raise OpenError
            ciphertext = yield from buffer.pull(length)
        chunks += 1
        octets += len(ciphertext)
        if (
            small_chunks is not None
            and chunks > small_chunks + octets // _OCTETS_OF_A_CHUNK
        ):
            raise LimitExceededError("too many small chunks")
        yield open_chunk(ciphertext, _FINAL if final else b"")


def _pull_rest(buffer: ReceiveBuffer) -> Generator[None, None, bytes]:
    """Wait for the end of the body; take what precedes it."""
    while not buffer.ended:
        if len(buffer) > _MAX_SEALED_BYTES:
            raise LimitExceededError(f"chunk longer than {_MAX_SEALED_BYTES} bytes")
        yield from buffer.wait()
    # The end of a body is what a cut looks like, too. Too few bytes for a tag are
    # surely that; enough of them, and it is for the tag to say.
    if len(buffer) < TAG_BYTES:
        raise TruncatedError("the message ends inside its final chunk")
    return buffer.take_at_most(_MAX_SEALED_BYTES)


def _check_chunk(plaintext: bytes) -> None:
    if len(plaintext) > MAX_CHUNK_BYTES:
        raise LimitExceededError(f"chunk longer than {MAX_CHUNK_BYTES} bytes")
