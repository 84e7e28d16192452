"""Our side of an exchange: seal, split, damage, open."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from curtilage.wire import bhttp, chunked, ohttp, padding
from curtilage.wire.cursor import Cursor
from curtilage.wire.encapsulation import HEADER_BYTES
from curtilage.wire.hpke.suite import (
    AEAD_AES_128_GCM,
    KDF_HKDF_SHA256,
    KEM_X25519,
    KEM_XWING,
    Suite,
)
from curtilage.wire.keyconfig import KeyConfig
from curtilage.wire.media import (
    OHTTP_CHUNKED_REQUEST,
    OHTTP_CHUNKED_RESPONSE,
    OHTTP_REQUEST,
    OHTTP_RESPONSE,
)
from curtilage.wire.varint import read_varint

KEMS = {"x25519": KEM_X25519, "xwing": KEM_XWING}
FORMS = ("plain", "chunked")
FRAMINGS = ("known", "indeterminate")
REQUEST_TYPES = {"plain": OHTTP_REQUEST, "chunked": OHTTP_CHUNKED_REQUEST}
RESPONSE_TYPES = {"plain": OHTTP_RESPONSE, "chunked": OHTTP_CHUNKED_RESPONSE}
NONCE_BYTES = 16


def suite_of(kem: str) -> Suite:
    """The one suite of a KEM that all peers have."""
    return Suite(kem_id=KEMS[kem], kdf_id=KDF_HKDF_SHA256, aead_id=AEAD_AES_128_GCM)


@dataclass(frozen=True, kw_only=True)
class Sealed:
    """A request, its pieces and the opener of its answer.

    Attributes:
        pieces: header, ``enc``, then ciphertext, or lengths and chunks in turn.
        open: opens a whole answer; once.
        opener: of a chunked answer as it arrives.
    """

    pieces: tuple[bytes, ...] = field(repr=False)
    open: Callable[[bytes], bytes] = field(repr=False)
    opener: chunked.ChunkedResponseOpener | None = None

    @property
    def message(self) -> bytes:
        return b"".join(self.pieces)


def inner(
    content: bytes, framing: str = "known", *, path: str = "/echo", piece: int = 1000
) -> bytes:
    """Encode a request for a peer's gateway in either framing."""
    head = bhttp.RequestHead(
        method=b"POST",
        scheme=b"https",
        authority=b"peer.invalid",
        path=path.encode(),
        fields=((b"content-type", b"application/octet-stream"),),
    )
    if framing == "indeterminate":
        pieces = [content[i : i + piece] for i in range(0, len(content), piece)]
        chunks = map(bhttp.encode_content_chunk, pieces)
        return bhttp.encode_request_head(head) + b"".join(chunks) + bytes(2)
    return bhttp.encode_request(
        bhttp.Request(
            method=head.method,
            scheme=head.scheme,
            authority=head.authority,
            path=head.path,
            fields=head.fields,
            content=content,
        )
    )


def seal(config: KeyConfig, form: str, kem: str, message: bytes) -> Sealed:
    """Seal in the form and with the KEM that are tried."""
    if form == "plain":
        plain = ohttp.seal_request(config, message, suite=suite_of(kem))
        return Sealed(
            pieces=request_pieces(plain.message, form, kem), open=plain.opener.open
        )
    sealed = chunked.seal_chunked_request(config, message, suite=suite_of(kem))
    return _chunked(sealed, kem)


def seal_padded(config: KeyConfig, kem: str, message: bytes) -> Sealed:
    """Seal as our own client does: padded to a class."""
    return _chunked(
        padding.seal_padded_request(config, message, suite=suite_of(kem)), kem
    )


def _chunked(sealed: chunked.SealedChunkedRequest, kem: str) -> Sealed:
    def open_whole(data: bytes) -> bytes:
        opened = sealed.opener.push(data)
        return b"".join(opened) + sealed.opener.finish()

    return Sealed(
        pieces=request_pieces(sealed.message, "chunked", kem),
        open=open_whole,
        opener=sealed.opener,
    )


def request_pieces(message: bytes, form: str, kem: str) -> tuple[bytes, ...]:
    """Split a sealed request at its format's boundaries."""
    return _pieces(message, (HEADER_BYTES, suite_of(kem).nenc), form)


def response_pieces(message: bytes, form: str) -> tuple[bytes, ...]:
    """Split a sealed response at its format's boundaries."""
    return _pieces(message, (NONCE_BYTES,), form)


def _pieces(message: bytes, head: Sequence[int], form: str) -> tuple[bytes, ...]:
    cursor = Cursor(message)
    pieces = [cursor.take(count) for count in head]
    while form == "chunked":
        start = len(message) - cursor.remaining
        length = read_varint(cursor)
        pieces.append(message[start : len(message) - cursor.remaining])
        if not length:
            break
        pieces.append(cursor.take(length))
    return (*pieces, cursor.take(cursor.remaining))


def flipped(pieces: Sequence[bytes], index: int, at: int) -> bytes:
    """Flip the lowest bit of one byte of one piece."""
    spoilt = bytearray(pieces[index])
    spoilt[at] ^= 1
    return b"".join([*pieces[:index], bytes(spoilt), *pieces[index + 1 :]])
