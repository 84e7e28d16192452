"""A gateway on loopback with certificate, keys and an enclave in memory."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import aiohttp
from typing_extensions import override

from curtilage.client.chat.answer import AnswerEvent
from curtilage.client.chat.query import Query
from curtilage.client.endpoint.gateway import Gateway, serving
from curtilage.client.endpoint.gateway_file import GatewayFile, TLSFiles
from curtilage.client.endpoint.keys import make_key
from curtilage.client.parts import AnswersLocally, ClientParts
from curtilage.client.queue.deferred_store import KEY_BYTES, DeferredStore
from curtilage.client.session import Session
from curtilage.policy.document.load import load_policy
from support.client_parts import PLAIN, MemoryTrail, ScriptedLocal, WordInspector
from support.memory_enclave import Clock, MemoryEnclave, key_store
from support.tls_files import write_tls_files

# Not random: they are in the names of the tests, which every process must know.
LETTERS, LETTERS_ROW = make_key("letters", random=lambda size: bytes([1]) * size)
LETTERS_TOO, LETTERS_TOO_ROW = make_key(
    "letters", random=lambda size: bytes([2]) * size
)
TRIAGE, TRIAGE_ROW = make_key("triage", random=lambda size: bytes([3]) * size)
ROWS = (LETTERS_ROW, LETTERS_TOO_ROW, TRIAGE_ROW)
PATIENCE_S = 60


class Waiting(ScriptedLocal):
    """Answers when the test wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.begun = asyncio.Semaphore(0)

    @override
    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        self.begun.release()
        await self.go.wait()
        async for event in super().generate(query, signals=signals):
            yield event


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A running gateway and what trusts its certificate."""

    gateway: Gateway
    session: Session
    file: GatewayFile
    enclave: MemoryEnclave
    trail: MemoryTrail

    @property
    def port(self) -> int:
        return int(self.gateway.url.rpartition(":")[2].removesuffix("/v1"))

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    @property
    def trust(self) -> ssl.SSLContext:
        assert self.file.tls is not None
        return ssl.create_default_context(cafile=str(self.file.tls.certificate))

    async def asks(
        self,
        key: str | None,
        *texts: str,
        path: str = "/v1/chat/completions",
        fields: Mapping[str, str] | None = None,
        **options: object,
    ) -> tuple[int, dict[str, object], Mapping[str, str]]:
        """Ask on a connection of its own; return status, body and header fields."""
        messages = [
            {"role": ("user", "assistant")[at % 2], "content": text}
            for at, text in enumerate(texts)
        ]
        given = {} if key is None else {"Authorization": f"Bearer {key}"}
        body = {"messages": messages, "curtilage": options}
        async with (
            aiohttp.ClientSession() as http,
            http.request(
                "POST" if texts else "GET",
                f"{self.url}{path}",
                json=body if texts else None,
                headers={**given, **(fields or {})},
                ssl=self.trust,
            ) as response,
        ):
            said = {
                name.lower().removeprefix("x-curtilage-"): value
                for name, value in response.headers.items()
            }
            return response.status, await response.json(), said


@asynccontextmanager
async def served(
    folder: Path,
    *,
    policy: str = PLAIN,
    local: AnswersLocally | None = None,
    in_progress: int = 8,
    queue: bool = False,
) -> AsyncGenerator[Served]:
    certificate, key = write_tls_files(folder)
    file = GatewayFile(
        path=folder / "gateway.toml",
        host="127.0.0.1",
        port=0,
        names=frozenset({"localhost"}),
        records=ROWS,
        tls=TLSFiles(certificate=certificate, key=key),
        in_progress=in_progress,
    )
    loaded, enclave, trail = load_policy(policy), MemoryEnclave(), MemoryTrail()
    parts = ClientParts(
        policy=loaded,
        inspector=WordInspector({"4111": "financial.pan"}),
        local=local or ScriptedLocal(),
        transport=enclave,
        keys=key_store(policy=loaded),
        audit=trail,
        clock=Clock(),
    )
    if queue:
        store = DeferredStore(None, bytes(KEY_BYTES), max_items=9, max_bytes=99_999)
        parts = replace(parts, queue=store)
    session = Session(parts)
    async with session, serving(session, file) as gateway:
        yield Served(
            gateway=gateway,
            session=session,
            file=file,
            enclave=enclave,
            trail=trail,
        )


def code_of(body: Mapping[str, object]) -> object:
    error = body["error"]
    assert isinstance(error, dict)
    return cast("dict[str, object]", error)["code"]
