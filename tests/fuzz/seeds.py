"""The corpus' named inputs: the bad-input lists, and valid messages."""

import re
from collections.abc import Iterator
from typing import Final

from fuzz.fuzz_attest import deployment, fixed_evidence_seeds
from fuzz.fuzz_attest_devices import device_seeds, fixed_device_seeds
from fuzz.fuzz_attest_log import fixed_log_seeds
from fuzz.fuzz_attest_platforms import fixed_seeds, platform_seeds
from fuzz.fuzz_attest_tdx import fixed_tdx_seeds, tdx_seeds
from fuzz.fuzz_foreign import fixed_foreign_seeds
from fuzz.fuzz_wire import KEYS

from curtilage.attest.evidence import SnpEvidence
from curtilage.attest.evidence_json import encode_bundle, encode_cpu_evidence
from curtilage.policy.document.load import profile_text
from curtilage.wire.bhttp import Request, encode_request
from curtilage.wire.keyconfig import encode_key_configs
from curtilage.wire.varint import encode_varint
from support.bad_bhttp import Line, requests, responses

# Longer lines are only for the tests: they only repeat themselves.
LONGEST_BYTES: Final = 2048

Seed = tuple[str, str, bytes]


def every_seed() -> Iterator[Seed]:
    """Yield harness, name and bytes of every seed."""
    yield from _lines("bhttp_request", requests())
    yield from _lines("bhttp_response", responses())
    for name, program in PROGRAMS.items():
        yield "chunked_request_body", name, program
        yield "chunked_response_body", name, program
    yield from _wire()
    yield from _sealed()
    yield from fixed_evidence_seeds()
    yield from fixed_seeds()
    yield from fixed_log_seeds()
    yield from fixed_tdx_seeds()
    yield from fixed_device_seeds()
    yield from fixed_foreign_seeds()
    for harness, seeds in (CLIENT | ENCLAVE | RELAY | TEXTS).items():
        for name, data in seeds.items():
            yield harness, name, data


def _lines(harness: str, lines: list[Line]) -> Iterator[Seed]:
    for line in lines:
        if len(line.data) <= LONGEST_BYTES and "truncation of" not in line.name:
            yield harness, line.name, line.data


def evidence() -> Iterator[Seed]:
    """Yield true evidence, which is other bytes every time it is made."""
    made = deployment()
    bundle = made.bundle()
    yield "bundle", "true", encode_bundle(bundle)
    yield "cpu_evidence", "true", encode_cpu_evidence(bundle.cpu)
    snp = bundle.cpu
    assert isinstance(snp, SnpEvidence)
    yield "report", "true", snp.report
    yield "certificate", "vek", snp.vek
    yield "certificate", "ask", snp.ask
    yield "revocation_list", "true", snp.crl
    yield "manifest", "true", made.manifest
    yield "proof", "nothing", b""
    yield "proof", "one octet", b"\0\x20\0\x41"
    yield "verify", "nothing", b""
    yield "verify", "one octet", b"\0\x20\0\x41"
    yield from platform_seeds()
    yield from tdx_seeds()
    yield from device_seeds()


# Steps of ``fuzz_wire.Body``: what, how much.
PROGRAMS: Final = {
    "no final": b"\0\5",
    "final first": b"\1\5",
    "in order": b"\0\5\0\6\1\7",
    "final empty": b"\0\5\1\0",
    "data after final": b"\1\0\4\2xy",
    "chunk after final": b"\1\0\0\5",
    "empty non-final": b"\0\0\1\0",
    "final with aad empty": b"\3\5",
    "non-final with final": b"\2\5\1\0",
    "dropped": b"\0\5\5\0\1\0",
    "length 15": b"\4\1\x0f\0",
    "length over 16400": b"\6\x80",
    "length 2^62-1": b"\4\x08" + b"\xff" * 8,
    "final mark alone": b"\4\1\0\0",
    "half a length": b"\0\5\4\1\x40\0",
}


def _wire() -> Iterator[Seed]:
    for value in (0, 63, 64, 16383, 16384, 2**30 - 1, 2**30, 2**62 - 1):
        yield "varint", str(value), encode_varint(value)
    for width, first in ((2, b"\x40"), (4, b"\x80\0\0"), (8, b"\xc0" + bytes(6))):
        yield "varint", f"non-minimal of {width}", first + b"\1"
        yield "varint", f"truncated of {width}", first
    parameters = {
        "default": "0101020000320040 07",
        "unpadded": "01020000000000000 0",
        "version 0": "0001020000320040 07",
        "shape 3": "0103020000320040 07",
        "frame of 63": "0101003f00320040 07",
        "no bucket": "0101020000320040 00",
        "unpadded with numbers": "0102020000320040 07",
        "too long": "01014000003200ff 10",
        "short": "0101020000320040",
    }
    for name, digits in parameters.items():
        yield "transport_parameters", name, bytes.fromhex(digits.replace(" ", ""))
    yield "frames", "an answer", bytes([40, 200, 1, 1, 250, 250, 250, 1, 129])
    yield "frames", "nothing", b""
    yield "frames", "idle to the end", bytes(64)
    yield "frames", "head of a frame but one", bytes([54, 200, 1])
    yield "frame_check", "a bucket", b"\1" * 31
    yield "frame_check", "no bucket", b"\1" * 30
    yield "frame_check", "a short frame", b"\1\1\x30\1"


def _sealed() -> Iterator[Seed]:
    for key in KEYS.values():
        encoded = key.config.encode()
        kem = f"{key.config.kem_id:04x}"
        yield "key_configs", f"bare {kem}", encoded
        yield "key_configs", f"one {kem}", encode_key_configs([key.config])
        yield "chunked_request", f"head {kem}", encoded[:1] + encoded[1:3] + b"\0\1\0\1"
        yield "plain_request", f"head {kem}", encoded[:3] + b"\0\1\0\1" + bytes(48)
    both = encode_key_configs([KEYS[2].config, KEYS[1].config])
    twice = encode_key_configs([KEYS[1].config]) * 2
    yield "key_configs", "two", both
    yield "key_configs", "duplicate id", twice
    yield "key_configs", "prefix past the end", both[:-1]
    yield "key_configs", "trailing garbage", both + b"\0"
    yield "key_configs", "entry of nothing", b"\0\0"
    yield "key_configs", "unknown KEM", b"\0\x0d\5\0\x30xxxx\0\4\0\1\0\1"
    for count in (0, 2, 6, 255):
        ends = KEYS[1].config.encode()[:35] + count.to_bytes(2, "big") + b"\0\1\0\1"
        listed = len(ends).to_bytes(2, "big") + ends
        yield "key_configs", f"algorithms of {count}", listed
    yield "plain_response", "nonce and tag", bytes(32)
    yield "plain_response", "nonce alone", bytes(16)
    yield "encapsulated", "unknown key", b"\xff\0\x20\0\1\0\1" + bytes(64)


CHUNK: Final = (
    b'data: {"id":"a","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}\n\n'
)
LAST: Final = (
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
)
DONE: Final = b"data: [DONE]\n\n"
COMPLETION: Final = (
    b'{"id":"a","object":"chat.completion","created":1,"model":"m","choices":[{'
    b'"index":0,"message":{"role":"assistant","content":"hi {\\"}"},'
    b'"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}'
)
ERROR: Final = b'{"error":{"message":"m","type":"t","code":"busy","status":503}}'
CLIENT: Final = {
    "sealed_answer": {
        "whole": b"\0\0" + CHUNK + LAST + DONE,
        "frame missing": b"\1\0" + CHUNK + LAST + DONE,
        "frame too short": b"\2\1" + CHUNK + LAST + DONE,
        "no final frame": b"\3\0" + CHUNK + LAST + DONE,
        "no done": b"\0\0" + CHUNK + LAST,
        "nothing": b"\0\0",
    },
    "event_stream": {
        "whole": CHUNK + LAST + DONE,
        "filled": b":   \n\n" + CHUNK + b"\n" + LAST + b":\n\n" + DONE + b":  \n\n",
        "no done": CHUNK + LAST,
        "error": b"data: " + ERROR + b"\n\n",
        "error after a delta": CHUNK + b"data: " + ERROR + b"\n\n",
        "line ends": b"data: {}\r\ndata\rid: 1\nevent: x\n\r\n" + DONE,
        "after done": CHUNK + LAST + DONE + CHUNK,
        "logprobs": b'data: {"choices":[{"delta":{"content":"a"},"logprobs":{"content"'
        b':[{"token":"a","logprob":-0.5}]}}]}\n\n',
    },
    "completion": {
        "whole": COMPLETION,
        "filled": b"   " + COMPLETION + b"  \n",
        "error": ERROR,
        "two": COMPLETION + COMPLETION,
        "cut": COMPLETION[:-1],
    },
    "problem": {
        "date": b'{"type":"https://iana.org/assignments/http-problem-types#date"}',
        "replayed": b'{"type":"about:blank","code":"replayed","status":400}  ',
    },
    "nothing": {"nothing": b"{}", "filled": b"{}   ", "something": b'{"a":1}'},
    "answer_head": {
        "ok": b"\0application/json",
        "redirect": b"\x2etext/event-stream",
        "parameters": b"\0text/event-stream; charset=utf-8",
        "date": b"\xc8Sat, 21 Nov 2026 00:00:00 GMT",
    },
    "chat_request": {
        "plain": b'{"messages":[{"role":"user","content":"hi"}],"stream":true}',
        "all": b'{"model":"curtilage","messages":[{"role":"system","content":"s"},'
        b'{"role":"user","content":[{"type":"text","text":"hi"}],"name":"n"}],'
        b'"max_tokens":4,"temperature":0.5,"top_p":1,"seed":1,"stop":["x"],'
        b'"stream_options":{"include_usage":true},"logprobs":false,"n":1}',
        "duplicate": b'{"messages":[],"messages":[]}',
        "surrogate": b'{"messages":[{"role":"user","content":"\\ud800"}]}',
        "deep": b"[" * 200,
        "nan": b'{"messages":[],"temperature":NaN}',
    },
    "client_date": {
        "now": b"Sat, 21 Nov 2026 12:34:56 GMT",
        "wrong day": b"Sun, 21 Nov 2026 12:34:56 GMT",
        "year 9999": b"Fri, 31 Dec 9999 23:59:59 GMT",
        "second 60": b"Sat, 21 Nov 2026 12:34:60 GMT",
    },
}
BODY: Final = (
    b'{"messages":[{"role":"user","content":"hi","name":"a"}],"max_tokens":4,'
    b'"temperature":0.5,"top_p":1,"seed":-1,"stop":["x"],"stream":true,'
    b'"logprobs":false}'
)


def inner(
    path: bytes = b"/v1/chat/completions",
    content: bytes = BODY,
    method: bytes = b"POST",
    date: bytes = b"Sat, 21 Nov 2026 00:00:30 GMT",
    more: tuple[tuple[bytes, bytes], ...] = (),
) -> bytes:
    """Return a request as it is inside the seal."""
    fields = ((b"content-type", b"application/json"), (b"date", date), *more)
    return encode_request(
        Request(
            method=method,
            scheme=b"https",
            authority=b"curtilage.invalid",
            path=path,
            fields=fields,
            content=content,
        )
    )


ENCLAVE: Final = {
    "dispatch": {
        "chat": inner(),
        "cover": inner(b"/v1/cover", b'{"bucket":1}'),
        "challenge": inner(b"/v1/challenge", b'{"nonce":"' + b"0a" * 32 + b'"}'),
        "receipt": inner(more=((b"curtilage-receipt-key", b"A" * 43),)),
        "two receipts": inner(more=((b"curtilage-receipt-key", b"A" * 43),) * 2),
        "elsewhere": inner(b"/v1/models"),
        "another method": inner(method=b"GET"),
        "early": inner(date=b"Fri, 20 Nov 2026 23:58:59 GMT"),
        "late": inner(date=b"Sat, 21 Nov 2026 00:01:01 GMT"),
        "garbage": inner(date=b"now"),
        "year 9999": inner(date=b"Fri, 31 Dec 9999 23:59:59 GMT"),
        "not json": inner(content=b"hi"),
        "not bhttp": b"\0\4POST",
    },
    "chat_json": {
        "all": BODY,
        "duplicate": b'{"messages":[],"messages":[]}',
        "infinity": b'{"messages":[{"role":"user","content":"a"}],"top_p":Infinity}',
        "deep": b'{"messages":' + b"[" * 300,
        "surrogate": b'{"messages":[{"role":"user","content":"\\udc00"}]}',
    },
    "cover_json": {
        "bucket": b'{"bucket":1}',
        "none": b"{}",
        "too high": b'{"bucket":7}',
        "true": b'{"bucket":true}',
        "more": b'{"bucket":1,"n":1}',
    },
    "challenge_json": {
        "nonce": b'{"nonce":"' + b"0a" * 32 + b'"}',
        "base": b'{"nonce":"' + b"0a" * 32 + b'","b0":"' + b"1f" * 64 + b'"}',
        "short": b'{"nonce":"0a"}',
        "number": b'{"nonce":10}',
        "more": b'{"nonce":"' + b"0a" * 32 + b'","n":1}',
    },
    "tsm_table": {
        "one": bytes(range(16)) + b"\x30\0\0\0\1\0\0\0" + bytes(24) + b"c",
        "outside": bytes(range(16)) + b"\xff\xff\xff\xff\1\0\0\0" + bytes(24),
        "no end": bytes(range(24)) * 3,
        "none": bytes(24),
    },
    "nsm_response": {
        "document": b"\xa1\x6bAttestation\xa1\x68document\x43abc",
        "error": b"\xa1\x65Error\x6fInvalidArgument",
        "other": b"\xa1\x6bAttestation\xa0",
        "array": b"\x81\1",
    },
    "tpm_response": {
        "pcr": bytes.fromhex("8001000000400000000000000007 00000001 000b 03 010000")
        + b"\0\0\0\1\0\x20"
        + bytes(32),
        "refused": bytes.fromhex("80010000000a00000922"),
        "quote": bytes.fromhex(
            "80020000001600000000 00000006 0002 abcd 0014 0000010000"
        ),
        "short": b"\x80",
    },
    "enclave_config": {
        "some": b'environment = "development"\nlisten = "127.0.0.1:0"\n'
        b'[limits]\nbody_s = 1\n[tls]\ncertificate = "/c"\nkey = "/k"\n',
    },
    "media_type": {
        "chunked": b"message/ohttp-chunked-req",
        "upper-case": b"Message/OHTTP-Req",
        "parameters": b"message/ohttp-req; a=b",
        "twice": b"message/ohttp-req\nmessage/ohttp-req",
    },
    "enclave_date": CLIENT["client_date"],
}
RELAY: Final = {
    "relay_head": {
        "request": b"POST /enclave HTTP/1.1\nHost: relay.test\nContent-Type: message/"
        b"ohttp-chunked-req\nContent-Length: 4096\nIncremental: ?1",
        "keys": b"GET /enclave/keys HTTP/1.1\nHost: relay.test",
        "query": b"POST /enclave?a=1 HTTP/1.1\nHost: relay.test\nContent-Type: "
        b"message/ohttp-req\nContent-Length: 1",
        "absolute form": b"POST http://relay.test/enclave HTTP/1.1\nHost: relay.test",
        "tracking": b"POST /enclave HTTP/1.1\nhost: relay.test\ncontent-type: message/"
        b"ohttp-req\ntraceparent: 00-1\nvia: x\ncookie: a=b\ncontent-length: 1",
        "early data": b"POST /enclave HTTP/1.1\nhost: relay.test\nearly-data: 1",
        "endless length": b"POST /enclave x\nhost: relay.test\ncontent-length: "
        + b"9" * 5000
        + b"\ncontent-type: message/ohttp-req",
        "connect": b"CONNECT relay.test:443 HTTP/1.1",
        "both lengths": b"POST /enclave x\nhost: relay.test\ncontent-length: 1\n"
        b"transfer-encoding: chunked\ncontent-type: message/ohttp-req",
    },
    "relay_answer": {
        "endless length": b"200\ncontent-type: message/ohttp-res\ncontent-length: "
        + b"9" * 5000,
        "ok": b"200\ncontent-type: message/ohttp-chunked-res\ntransfer-encoding: "
        b"chunked\nincremental: ?1",
        "problem": b"422\ncontent-type: application/problem+json\ncontent-length: 9",
        "redirect": b"302\nlocation: /x\ncontent-length: 0",
        "other type": b"200\ncontent-type: text/html\ncontent-length: 1",
    },
    "relay_config": {
        "some": b'listen = "127.0.0.1:0"\nenvironment = "development"\n[gateways]\n'
        b'enclave = "http://127.0.0.1:1"\n[access]\nkeys = ["a:0:0"]\n',
    },
    "relay_access": {
        "record": b"a:" + b"0" * 32 + b":" + b"0" * 64,
        "bearer": b"Bearer a." + b"A" * 43,
        "no bearer": b"Basic YTpi",
    },
}
TEXTS: Final = {
    "policy": {
        "default": profile_text("default").encode()[:2000],
        "uncertain": b'version: 1\nrules: [{id: any-uncertain, when: "uncertain.*", '
        b"then: local}]\n",
        "anchors": b"? [a]\n: &b *b\n--- !!x\n%TAG ! !\n<<: {a: |\n  1:30}\n",
        "transport": b"version: 1\ntransport:\n  accept: [{frame_bytes: 512, "
        b"period_ms: 50, first_bucket: 64, buckets: 7}]\n  cover: {delay_s: [0, 10], "
        b"share: 100}\n  mirror: https://m.test/keys\n",
    },
    "scan": {
        "identifiers": b"my ssn 536-22-1234, card 4111 1111 1111 1111, bob@corp.com",
        "hidden": b"\xef\xbc\x91 \xe2\x80\x8b\xe2\x80\xae\xf0\x9f\x98\x80 &#98; %62",
        "encoded": b"aGVsbG8gd29ybGQgaGVsbG8= five at dot IBAN GB82",
        "lines": b"4111\n1111\t\t\t\x1e\x00Dr John o'Neil-",
    },
    "worker_frame": {
        "span": b'[[0,"financial.pan","x",0,1,5,false,"raw"]]',
        "nothing": b"[]",
    },
}


def file_name(name: str) -> str:
    """Return the name of a line as one that a file may have."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "empty"
