"""In-memory counterparts of the kernel's interfaces to a TEE device."""

import errno
import os
import ssl
import struct
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from curtilage.attest.evidence import GpuEvidence
from curtilage_dev.emulated.machines import Gpus
from curtilage_dev.emulated.tpm import EmulatedTpm, QuoteFields, sized

TABLE_END = bytes(24)


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def certificate_table(
    entries: Mapping[uuid.UUID, bytes], *, little_endian: bool = False
) -> bytes:
    """Lay a host's certificates out as the hypervisor does."""
    offset = 24 * (len(entries) + 1)
    head, body = b"", b""
    for name, content in entries.items():
        octets = name.bytes_le if little_endian else name.bytes
        head += struct.pack("<16sII", octets, offset + len(body), len(content))
        body += content
    return head + TABLE_END + body


@dataclass
class TsmEntry:
    """One entry of configfs-tsm."""

    generation: int = 0
    inblob: bytes | None = None
    privlevel: int = 0


@dataclass(kw_only=True)
class FakeTsm:
    """configfs-tsm in memory; each wrong turn can be set.

    ``disturb`` runs before every read of an outblob, as another writer would.
    """

    sign: Callable[[bytes, int], bytes]
    provider: str = "sev_guest"
    auxblob: bytes | None = b""
    floor: int = 0
    outblob_error: int = 0
    mkdir_error: int = 0
    rmdir_error: int = 0
    short_write: bool = False
    drop_writes: bool = False
    generation_word: bytes | None = None
    disturb: Callable[[TsmEntry], None] = field(default=lambda _entry: None)
    entries: dict[str, TsmEntry] = field(default_factory=dict[str, TsmEntry])
    made: list[str] = field(default_factory=list[str])
    written: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])

    def make(self, entry: str) -> None:
        if self.mkdir_error:
            raise os_error(self.mkdir_error)
        if entry in self.entries:
            raise os_error(errno.EEXIST)
        self.entries[entry] = TsmEntry()
        self.made.append(entry)

    def remove(self, entry: str) -> None:
        if self.rmdir_error:
            raise os_error(self.rmdir_error)
        del self.entries[entry]

    def has(self, entry: str, attribute: str) -> bool:
        assert entry in self.entries
        return attribute != "auxblob" or self.auxblob is not None

    def read(self, entry: str, attribute: str, limit: int) -> bytes:
        return self._value(self.entries[entry], attribute)[: limit + 1]

    def write(self, entry: str, attribute: str, data: bytes) -> int:
        self.written.append((attribute, data))
        if self.short_write:
            return len(data) - 1
        if not self.drop_writes:
            self._take(self.entries[entry], attribute, data)
        return len(data)

    def _take(self, entry: TsmEntry, attribute: str, data: bytes) -> None:
        if attribute == "privlevel":
            level = int(data)
            if not self.floor <= level <= 3:
                raise os_error(errno.EINVAL)
            entry.privlevel = level
        else:
            assert attribute == "inblob"
            entry.inblob = data
        entry.generation += 1

    def _value(self, entry: TsmEntry, attribute: str) -> bytes:
        match attribute:
            case "generation":
                return self.generation_word or b"%d\n" % entry.generation
            case "provider":
                return self.provider.encode() + b"\n"
            case "auxblob":
                return self.auxblob or b""
            case _:
                return self._outblob(entry)

    def _outblob(self, entry: TsmEntry) -> bytes:
        self.disturb(entry)
        if self.outblob_error:
            raise os_error(self.outblob_error)
        if entry.inblob is None:
            raise os_error(errno.EINVAL)
        return self.sign(entry.inblob, entry.privlevel)


@dataclass(kw_only=True)
class FakeNsm:
    """/dev/nsm in memory: answers with a document, or as configured."""

    answer: Callable[[bytes], bytes]
    asked: list[bytes] = field(default_factory=list[bytes])

    def request(self, message: bytes) -> bytes:
        self.asked.append(message)
        return self.answer(message)


@dataclass(kw_only=True)
class FakeNvml:
    """NVIDIA's library in memory, with emulated GPUs; each wrong turn can be set."""

    gpus: Gpus | None = None
    numbered: int | None = None
    change_report: Callable[[bytes], bytes] = field(default=lambda report: report)
    change_chain: Callable[[bytes], bytes] = field(default=lambda pem: pem)
    nonces: list[bytes] = field(default_factory=list[bytes])
    open: int = 0

    @contextmanager
    def opened(self) -> Generator["FakeNvml"]:
        self.open += 1
        try:
            yield self
        finally:
            self.open -= 1

    def count(self) -> int:
        assert self.open == 1
        if self.numbered is not None:
            return self.numbered
        return 0 if self.gpus is None else len(self.gpus.devices)

    def report(self, index: int, nonce: bytes) -> bytes:
        assert self.open == 1
        self.nonces.append(nonce)
        return self.change_report(self._made(index, nonce).report)

    def chain(self, index: int) -> bytes:
        assert self.open == 1
        chain = self._made(index, bytes(32)).chain
        pem = "".join(ssl.DER_cert_to_PEM_cert(each) for each in chain)
        return self.change_chain(pem.encode())

    def _made(self, index: int, nonce: bytes) -> GpuEvidence:
        assert self.gpus is not None
        return self.gpus.devices[index].evidence(nonce)


_HEADER = struct.Struct(">HII")
_NO_SESSIONS, _SESSIONS = 0x8001, 0x8002
_AUTHORISATION = bytes.fromhex("00000009400000090000000000")


@dataclass(kw_only=True)
class FakeTpm:
    """A TPM 2.0 that knows four commands, byte for byte; refuses others.

    ``change`` may alter a response before it goes out.
    """

    tpm: EmulatedTpm
    pcrs: dict[int, bytes]
    indices: dict[int, bytes]
    key: int = 0x81000003
    most_digests: int = 8
    busy: list[int] = field(default_factory=list[int])
    change: Callable[[int, bytes], bytes] = field(default=lambda _code, data: data)
    after_quote: Callable[["FakeTpm"], None] = field(default=lambda _self: None)
    codes: list[int] = field(default_factory=list[int])

    def transmit(self, command: bytes) -> bytes:
        tag, size, code = _HEADER.unpack_from(command)
        assert size == len(command)
        self.codes.append(code)
        if self.busy:
            return _HEADER.pack(_NO_SESSIONS, 10, self.busy.pop(0))
        handled = {
            0x169: (_NO_SESSIONS, self._nv_read_public),
            0x14E: (_SESSIONS, self._nv_read),
            0x17E: (_NO_SESSIONS, self._pcr_read),
            0x158: (_SESSIONS, self._quote),
        }
        wanted, handle = handled[code]
        assert tag == wanted
        content = handle(command[10:])
        if content is None:
            return _HEADER.pack(_NO_SESSIONS, 10, 0x18B)
        if tag == _SESSIONS:
            content = struct.pack(">I", len(content)) + content + b"\0\0\1\0\0"
        response = _HEADER.pack(tag, 10 + len(content), 0) + content
        return self.change(code, response)

    def _nv_read_public(self, body: bytes) -> bytes | None:
        (index,) = struct.unpack(">I", body)
        if index not in self.indices:
            return None
        size = len(self.indices[index])
        public = (
            struct.pack(">IHI", index, 0x0B, 0) + sized(b"") + struct.pack(">H", size)
        )
        return sized(public) + sized(b"\0" * 34)

    def _nv_read(self, body: bytes) -> bytes | None:
        owner, index = struct.unpack_from(">II", body)
        assert owner == 0x40000001
        assert body[8:21] == _AUTHORISATION
        size, offset = struct.unpack(">HH", body[21:])
        assert size <= 1024
        return sized(self.indices[index][offset : offset + size])

    def _pcr_read(self, body: bytes) -> bytes | None:
        chosen = _selected(body)[: self.most_digests]
        digests = b"".join(sized(self.pcrs[index]) for index in chosen)
        count = struct.pack(">I", len(chosen))
        return struct.pack(">I", 7) + _selection(chosen) + count + digests

    def _quote(self, body: bytes) -> bytes | None:
        (key,) = struct.unpack_from(">I", body)
        if key != self.key:
            return None
        assert body[4:17] == _AUTHORISATION
        (length,) = struct.unpack_from(">H", body, 17)
        qualifying = body[19 : 19 + length]
        rest = body[19 + length :]
        assert rest[:2] == b"\0\x10"
        chosen = _selected(rest[2:])
        quote = self.tpm.quote(
            QuoteFields(
                extra_data=qualifying,
                pcrs={index: self.pcrs[index] for index in chosen},
            )
        )
        self.after_quote(self)
        return sized(quote.message) + quote.signature


def _selected(data: bytes) -> list[int]:
    count, bank, size = struct.unpack_from(">IHB", data)
    assert (count, bank, size) == (1, 0x0B, 3)
    assert len(data) == 10
    bits = int.from_bytes(data[7:], "little")
    return [index for index in range(24) if bits >> index & 1]


def _selection(indices: list[int]) -> bytes:
    bits = sum(1 << index for index in indices)
    return struct.pack(">IHB", 1, 0x0B, 3) + bits.to_bytes(3, "little")
