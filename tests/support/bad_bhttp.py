"""Malformed and unusual binary HTTP messages, each with the expected result.

The tests pass every entry to the decoder, and the fuzz harness starts from
them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from curtilage.wire.errors import (
    LimitExceededError,
    MalformedError,
    TruncatedError,
    WireError,
)
from curtilage.wire.fields import Field
from curtilage.wire.varint import encode_varint, encode_vector

LONGEST: Final = encode_varint(2**62 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One entry of the list.

    Attributes:
        name: the line, and which of its cases.
        data: the message.
        error: the exception that it must raise; none if it is valid.
    """

    name: str
    data: bytes = field(repr=False)
    error: type[WireError] | None


def control(
    method: bytes = b"POST",
    scheme: bytes = b"https",
    authority: bytes = b"a.invalid",
    path: bytes = b"/x",
) -> bytes:
    """Return request control data without its framing."""
    return b"".join(map(encode_vector, (method, scheme, authority, path)))


def lines(fields: Iterable[Field]) -> bytes:
    """Return field lines without what delimits them."""
    return b"".join(encode_vector(n) + encode_vector(v) for n, v in fields)


def known(
    *fields: Field, content: bytes = b"c", trailers: Iterable[Field] = ()
) -> bytes:
    """Return a known-length request with this header, right or wrong."""
    section, end = encode_vector(lines(fields)), encode_vector(lines(trailers))
    return b"\0" + control() + section + encode_vector(content) + end


def indeterminate(
    *fields: Field, content: bytes = b"c", trailers: Iterable[Field] = ()
) -> bytes:
    """Return the same in the other framing, its content in one chunk."""
    chunks = encode_vector(content) + b"\0" if content else b"\0"
    return b"\2" + control() + lines(fields) + b"\0" + chunks + lines(trailers) + b"\0"


def requests() -> list[Line]:
    """Return every line that concerns requests."""
    return [*_framing(), *_lengths(), *_control(), *_fields(), *_meaning(), *_ends()]


def _bad(name: str, data: bytes) -> Line:
    return Line(name=name, data=data, error=MalformedError)


def _cut(name: str, data: bytes) -> Line:
    return Line(name=name, data=data, error=TruncatedError)


def _over(name: str, data: bytes) -> Line:
    return Line(name=name, data=data, error=LimitExceededError)


def _fine(name: str, data: bytes) -> Line:
    return Line(name=name, data=data, error=None)


def _framing() -> Iterator[Line]:
    rest = known()[1:]
    for value in (1, 3, 4, 63):
        yield _bad(f"framing {value}", encode_varint(value) + rest)
    yield _bad("framing 4 as 8-byte varint", (4 | 3 << 62).to_bytes(8, "big") + rest)
    yield _fine("framing 0 as 8-byte varint", (3 << 62).to_bytes(8, "big") + rest)


def _lengths() -> Iterator[Line]:
    wide = b"\x80\0\0\4POST" + b"\x40\5https" + b"\xc0" + bytes(7) + b"\x40\2/x"
    yield _fine("non-minimal varints", b"\0" + wide + b"\x40\0" * 3)
    for width, first in ((2, b"\x40"), (4, b"\x80\0"), (8, b"\xc0\0\0")):
        yield _cut(f"truncated varint of {width}", b"\0" + first)
    places = {
        "method": b"\0",
        "path": b"\0\4POST\5https\0",
        "section": b"\0" + control(),
        "content": b"\0" + control() + b"\0",
        "trailers": b"\0" + control() + b"\0\0",
        "name": b"\2" + control(),
        "value": b"\2" + control() + b"\1a",
        "chunk": b"\2" + control() + b"\0",
    }
    for place, before in places.items():
        yield _over(f"length 2^62-1 of {place}", before + LONGEST)
    inside = b"\1a" + LONGEST
    yield _bad("length 2^62-1 in a section", b"\0" + control() + encode_vector(inside))
    chunk = b"\1c" + LONGEST
    yield _over("sum overflow of chunks", b"\2" + control() + b"\0" + chunk)
    value = b"\1a\x3f" + b"v" * 63 + b"\1b" + LONGEST
    yield _over("sum overflow of a section", b"\2" + control() + value)
    yield _fine("section boundary exactly on end", b"\0" + control() + b"\4\1a\1b\0\0")
    yield _bad("line beyond section by one", b"\0" + control() + b"\4\1a\2bc\0")
    yield _bad("name length as last of section", b"\0" + control() + b"\5\1a\1b\1\0\0")
    yield _bad("varint cut by its section", b"\0" + control() + b"\5\1a\1b\x40\0\0")


def _control() -> Iterator[Line]:
    def head(**parts: bytes) -> bytes:
        return b"\0" + control(**parts) + b"\0\0\0"

    tunnel = {"scheme": b"", "path": b""}
    yield _bad("method CONNECT with scheme and path", head(method=b"CONNECT"))
    yield _fine("method CONNECT", head(method=b"CONNECT", **tunnel))
    yield _fine("method TRACE", head(method=b"TRACE"))
    yield _bad("method of a request line", head(method=b"GET /x HTTP/1.1\r\n"))
    yield _bad("method empty", head(method=b""))
    for scheme in (b"http", b"ftp", b"file"):
        yield _fine(f"scheme {scheme.decode()}", head(scheme=scheme))
    yield _bad("scheme empty", head(scheme=b""))
    for name, authority in {
        "empty": b"",
        "port 0": b"a:0",
        "IPv6": b"[::1]:443",
        "IDN in ASCII": b"xn--4ca.invalid",
    }.items():
        yield _fine(f"authority {name}", head(authority=authority))
    for name, authority in {
        "userinfo": b"u:p@a",
        "IDN": "ä.invalid".encode(),
        "CRLF": b"a\r\nx: y",
        "path": b"a/b",
    }.items():
        yield _bad(f"authority {name}", head(authority=authority))
    for name, path in {"host": b"//host", "dots": b"/../x", "query": b"/?%00"}.items():
        yield _fine(f"path of {name}", head(path=path))
    for name, path in {
        "empty": b"",
        "no slash": b"x",
        "@host": b"@host",
        "absolute URL": b"https://a/",
        "asterisk": b"*",
        "CRLF": b"/ HTTP/1.1\r\nx: y",
        "fragment": b"/#f",
    }.items():
        yield _bad(f"path {name}", head(path=path))
    yield _fine("path asterisk of OPTIONS", head(method=b"OPTIONS", path=b"*"))
    yield _over("path of 8193 octets", head(path=b"/" * 8193))


# A field line, and whether it is refused.
FIELDS: Final[dict[str, Field]] = {
    "name empty": (b"", b"x"),
    "name upper-case": (b"Accept", b"x"),
    "name with space": (b"a b", b"x"),
    "name with colon": (b"a:b", b"x"),
    "name with NUL": (b"a\0", b"x"),
    "name with CRLF": (b"a\r\nb", b"x"),
    "name with trailing newline": (b"a\n", b"x"),
    "name of a colon": (b":", b"x"),
    "pseudo :method": (b":method", b"GET"),
    "pseudo :scheme": (b":scheme", b"https"),
    "pseudo :authority": (b":authority", b"a"),
    "pseudo :path": (b":path", b"/"),
    "pseudo :status": (b":status", b"200"),
    "value with CR": (b"a", b"x\ry"),
    "value with LF": (b"a", b"x\ny"),
    "value with NUL": (b"a", b"x\0y"),
    "value with trailing newline": (b"a", b"x\n"),
    "value with leading space": (b"a", b" x"),
    "value with trailing space": (b"a", b"x "),
    "value with leading tab": (b"a", b"\tx"),
    "value with trailing tab": (b"a", b"x\t"),
}


def _fields() -> Iterator[Line]:
    for name, line in FIELDS.items():
        yield _bad(name, known(line))
        yield _bad(f"{name}, in trailers", known(trailers=[line]))
        if line[0]:
            yield _bad(f"{name}, indeterminate", indeterminate(line))
    regular, pseudo = (b"a", b"1"), (b":x", b"1")
    for kind, build in (("known", known), ("indeterminate", indeterminate)):
        yield _fine(f"pseudo :x first, {kind}", build(pseudo, regular))
        yield _bad(f"pseudo :x after regular, {kind}", build(regular, pseudo))
        yield _bad(f"pseudo :x in trailers, {kind}", build(trailers=[pseudo]))
        yield _fine(f"value empty, {kind}", build((b"a", b"")))
        yield _over(f"value of 64 KB, {kind}", build((b"a", b"v" * 65536)))
        yield _over(f"10^3 fields, {kind}", build(*[(b"a", b"")] * 1000))
        cookies = [(b"cookie", b"a=1")] * 100
        yield _fine(f"cookie lines, {kind}", build(*cookies))
        yield _fine(f"cookie line empty, {kind}", build(*cookies[:1], (b"cookie", b"")))
    # An empty name ends an indeterminate section, so the value is content.
    yield _over("name empty, indeterminate", b"\2" + control() + b"\0\xff" + bytes(7))


def _meaning() -> Iterator[Line]:
    yield _bad("authority differing from Host", known((b"host", b"b.invalid")))
    yield _bad("Host twice", known((b"host", b"a.invalid"), (b"host", b"a.invalid")))
    for name in (b"connection", b"upgrade", b"te", b"transfer-encoding"):
        yield _fine(f"{name.decode()} inside", known((name, b"trailers")))
    for value in (b"0", b"2", b"+1", b"1, 1", b"", b"\xb9"):
        line = (b"content-length", value)
        yield _bad(f"wrong Content-Length {value!r}", known(line))
        yield _bad(f"wrong Content-Length {value!r}, chunks", indeterminate(line))
    # The gateway refuses these two; as binary HTTP they are well-formed.
    yield _fine("Expect inside", known((b"expect", b"100-continue")))
    yield _fine("Content-Encoding inside", known((b"content-encoding", b"gzip")))
    yield _fine("trailers", known(trailers=[(b"a", b"1")]))
    yield _fine("trailers, indeterminate", indeterminate(trailers=[(b"a", b"1")]))


def _ends() -> Iterator[Line]:
    yield _bad("non-zero padding", known() + b"\1")
    yield _bad("non-zero padding behind zeros", known() + bytes(99) + b"\1")
    yield _over("padding beyond the limit", known() + bytes(4 * 1024 * 1024 + 1))
    head = b"\2" + control() + b"\0\1c"
    yield _bad("zero-length content chunk, then data", head + b"\0\4Data\1x\0")
    yield _cut("content chunks without an end", head)
    yield _over("content chunks without number", head[:-2] + b"\1c" * 65537)
    # In this format, a message cut at one of the two legal points cannot be
    # distinguished from a complete one; the seal can detect it.
    start = len(b"\2" + control() + b"\0")
    for name, whole, legal in (
        ("known", b"\0" + control() + bytes(3), {start, start + 1}),
        ("indeterminate", b"\2" + control() + bytes(3), {start, start + 1}),
        ("known with content", known(), {start, start + 2}),
        ("indeterminate with content", indeterminate(), {start, start + 3}),
        ("known with trailers", known(trailers=[(b"a", b"1")]), {start, start + 2}),
    ):
        for cut in range(len(whole)):
            line = _fine if cut in legal else _cut
            yield line(f"truncation of {name} to {cut}", whole[:cut])


def responses() -> list[Line]:
    """Return every line that concerns responses."""
    rest = encode_vector(lines([(b"a", b"1")])) + b"\1c\0"
    interim = encode_varint(199) + b"\0"
    final = encode_varint(200) + rest
    return [
        *(_bad(f"status {n}", b"\1" + encode_varint(n) + rest) for n in (0, 99, 600)),
        _bad("status 2^62-1", b"\1" + LONGEST + rest),
        *(_bad(f"framing {n}", encode_varint(n) + final) for n in (0, 2, 4, 63)),
        _fine("status 101", b"\1" + encode_varint(101) + b"\0" + final),
        _fine("status 199 x 16", b"\1" + interim * 16 + final),
        _over("status 199 x 10^4", b"\1" + interim * 10_000 + final),
        _cut("status 199 alone", b"\1" + interim),
        _cut("status without a section", b"\1" + encode_varint(200)),
        _bad("non-zero padding", b"\1" + final + b"\0\1"),
        _bad("zero-length chunk, then data", b"\3\x40\xc8\0\1c\0\4Data\1x\0"),
        _bad(
            "pseudo :status", b"\1\x40\xc8" + encode_vector(b"\7:status\3200") + b"\0"
        ),
        _bad("pseudo in trailers", b"\3\x40\xc8\0\0\2:x\0011\0"),
        _fine("content-length not checked", b"\1\x40\xc8" + _length_7() + b"\0\0"),
        _fine("empty value, indeterminate", b"\3\x40\xc8\1a\0\0\0\0"),
    ]


def _length_7() -> bytes:
    # A response to HEAD has the length of the omitted content.
    return encode_vector(lines([(b"content-length", b"7")]))
