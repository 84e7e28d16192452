"""The Go client asks the real enclave server, over HTTP, in both shapes.

What fills the frames must mean nothing to a client that knows only the RFCs and
the media types: comments in an event stream, spaces around a JSON object.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from conformance.peers.go_client import Address, GoClient, Heard
from conformance.peers.sealed import FORMS, KEMS, NONCE_BYTES, suite_of
from conformance.peers.table import Row, Table

from curtilage.inference.errors import EngineFailedError
from curtilage.wire.frames import answer_bytes
from curtilage.wire.hpke.suite import TAG_BYTES
from curtilage.wire.media import (
    GATEWAY_PATH,
    KEYS_PATH,
    PROBLEM_DATE,
    PROBLEM_JSON,
    PROBLEM_OHTTP_KEY,
)
from curtilage.wire.shaping import UNPADDED, TransportParameters
from curtilage_dev.scripted_engine import Script
from support.enclave_parts import chat_body, make_parts, serving

QUICK = TransportParameters(frame_bytes=512, period_ms=1, first_bucket=8, buckets=16)
"""As many buckets as there may be: no answer is too long on a busy machine."""
SHAPES = {"padded": QUICK, "unpadded": UNPADDED}
TEXT = ("Eine ", "Umfriedung", ", the grünes ground", " around a house", ".\n")
INNER = {"authority": "curtilage.invalid", "path": "/v1/chat/completions"}
STREAM = chat_body(stream=True)
WHOLE = chat_body()
EVENTS, JSON = "text/event-stream", "application/json"


async def ask(table: Table, client: GoClient) -> None:
    """Try every kind of exchange that the enclave knows."""
    for name, parameters in SHAPES.items():
        for kem in KEMS:
            for form in FORMS:
                row = Row("go", f"enclave, {name}", form, kem)
                asked = _Asked(table, client, parameters, row)
                await asked.answers()
                await asked.failures()
                await asked.refusals()
                await asked.covers()


@asynccontextmanager
async def _enclave(
    parameters: TransportParameters, script: Script
) -> AsyncGenerator[tuple[Address, int]]:
    """Serve; give the address, and a key id that this server did not draw."""
    parts = await make_parts(script, now=datetime.now(UTC))
    parts.context = replace(parts.context, transport=parameters)
    unknown = next(each for each in range(256) if each not in parts.key.key_ids)
    async with serving(parts) as address:
        published = Address(
            keys=f"http://{address}{KEYS_PATH}",
            gateway=f"http://{address}{GATEWAY_PATH}",
        )
        yield published, unknown


@dataclass(frozen=True)
class _Asked:
    table: Table
    client: GoClient
    parameters: TransportParameters
    row: Row

    @property
    def padded(self) -> bool:
        return self.parameters != UNPADDED

    async def go(
        self,
        content: bytes,
        flags: Mapping[str, str | int] | None = None,
        script: Script | None = None,
        *,
        unknown_key: bool = False,
    ) -> Heard:
        chosen = {"form": self.row.form, "kem": self.row.kem, **INNER, **(flags or {})}
        serving_script = script or Script(pieces=TEXT)
        async with _enclave(self.parameters, serving_script) as (address, unknown):
            if unknown_key:
                chosen["key_id"] = unknown
            return await self.client.ask(address, content, flags=chosen)

    async def answers(self) -> None:
        for framing in ("known", "indeterminate"):
            with self.table.case(self.row, f"streamed, request {framing}"):
                heard = await self.go(STREAM, {"framing": framing})
                self.check(heard, 200, EVENTS)
                assert text_of(heard.content) == "".join(TEXT)
        with self.table.case(self.row, "whole"):
            heard = await self.go(WHOLE, {"padding": 3000})
            self.check(heard, 200, JSON)
            (choice,) = json.loads(heard.content)["choices"]
            assert choice["message"]["content"] == "".join(TEXT)
        with self.table.case(self.row, "long: a larger bucket"):
            text = ["longer than one bucket "] * 400
            heard = await self.go(STREAM, script=Script(pieces=text))
            self.check(heard, 200, EVENTS)
            assert text_of(heard.content) == "".join(text)

    def check(self, heard: Heard, status: int, kind: str) -> None:
        """Check head and shape."""
        assert heard.event == "answer", heard.error or heard.outside
        assert heard.status == status, heard.status
        assert heard.fields["content-type"] == kind, heard.fields
        if self.padded:
            self._check_shape(heard.chunks)

    def _check_shape(self, chunks: tuple[int, ...]) -> None:
        parameters = self.parameters
        buckets = range(parameters.buckets)
        if self.row.form == "chunked":
            assert set(chunks) == {parameters.frame_bytes}, set(chunks)
            assert len(chunks) in {parameters.frames_of(k) for k in buckets}
            return
        suite = suite_of(self.row.kem)
        sizes = {answer_bytes(parameters, suite, k) for k in buckets}
        assert chunks[0] + NONCE_BYTES + TAG_BYTES in sizes, chunks

    async def failures(self) -> None:
        """An inner error is reported inside the seal."""
        fault = EngineFailedError("x")
        with self.table.case(self.row, "the engine fails, streamed"):
            script = Script(pieces=TEXT, fault=fault, fault_after=2)
            heard = await self.go(STREAM, script=script)
            self.check(heard, 200, EVENTS)
            assert json.loads(events_of(heard.content)[-1])["error"]["status"] >= 500
        with self.table.case(self.row, "the engine fails, whole"):
            script = Script(pieces=TEXT, fault=fault, fault_after=0)
            heard = await self.go(WHOLE, script=script)
            assert json.loads(heard.content)["error"]["status"] >= 500
            self.check(heard, 200 if self.padded else heard.status, JSON)
        for name, flags, status in (
            ("no JSON", {}, 400),
            ("no such path", {"path": "/nowhere"}, 404),
            ("no such method", {"method": "PUT"}, 405),
        ):
            with self.table.case(self.row, name):
                heard = await self.go(b"{", flags)
                self.check(heard, status, JSON)
                assert json.loads(heard.content)["error"]["status"] == status
        with self.table.case(self.row, "an hour late"):
            late = datetime.now(UTC) - timedelta(hours=1)
            heard = await self.go(STREAM, {"date": format_datetime(late, usegmt=True)})
            self.check(heard, 400, PROBLEM_JSON)
            assert json.loads(heard.content)["type"] == PROBLEM_DATE
            assert heard.fields["cache-control"] == "no-store"
            assert "date" in heard.fields

    async def refusals(self) -> None:
        """Before the seal is open: one 422 for all causes but one."""
        pieces = 3 if self.row.form == "plain" else 4
        seen: set[tuple[int, str]] = set()
        for index in range(pieces):
            with self.table.case(self.row, f"bit of piece {index}"):
                seen.add(_refused(await self.go(WHOLE, {"flip": index}), "about:blank"))
        for kept in range(1, pieces):
            with self.table.case(self.row, f"cut behind piece {kept}"):
                seen.add(_refused(await self.go(WHOLE, {"keep": kept}), "about:blank"))
        with self.table.case(self.row, "all of them alike"):
            assert len(seen) == 1, seen
        with self.table.case(self.row, "unknown key id"):
            _refused(await self.go(WHOLE, unknown_key=True), PROBLEM_OHTTP_KEY)

    async def covers(self) -> None:
        """A cover request gets frames and nothing else, where there are frames."""
        for bucket in range(3):
            with self.table.case(self.row, f"cover, bucket {bucket}"):
                asked = json.dumps({"bucket": bucket}).encode()
                heard = await self.go(asked, {"path": "/v1/cover"})
                if not self.padded:
                    self.check(heard, 404, JSON)
                    continue
                self.check(heard, 200, JSON)
                assert json.loads(heard.content) == {}
                frames = self.parameters.frames_of(bucket)
                plain = self.row.form == "plain"
                assert plain or len(heard.chunks) == frames


def events_of(stream: bytes) -> list[str]:
    """Read server-sent events as the HTML standard says: comments are nothing."""
    events: list[str] = []
    data: list[str] = []
    for line in stream.decode().split("\n"):
        if line.startswith("data:"):
            data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and data:
            events.append("\n".join(data))
            data = []
        else:
            assert not line or line.startswith(":"), "a line that is no event's"
    return events


def text_of(stream: bytes) -> str:
    """Put the answer together from its events."""
    *events, last = events_of(stream)
    assert last == "[DONE]"
    choices = [choice for event in events for choice in json.loads(event)["choices"]]
    return "".join(choice["delta"].get("content", "") for choice in choices)


def _refused(heard: Heard, problem: str) -> tuple[int, str]:
    assert heard.event == "refused", heard.error or heard.event
    assert heard.http == 422, heard.http
    assert json.loads(heard.outside)["type"] == problem
    return heard.http, heard.outside
