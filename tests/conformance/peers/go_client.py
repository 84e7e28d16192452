"""Runs the Go client for one exchange; reads its output line by line."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

OnChunk = Callable[[int], Awaitable[None]]
TIMEOUT_S = 90.0


@dataclass(frozen=True, kw_only=True)
class Address:
    """The address of a gateway of ours.

    Attributes:
        keys: URL of the key configurations.
        gateway: URL that takes requests.
    """

    keys: str
    gateway: str


@dataclass(frozen=True, kw_only=True)
class Heard:
    """The Go client's result.

    Attributes:
        event: ``answer``, ``refused`` (outside the seal) or ``error``.
        http: the outer status, when there was one.
        outside: the body outside the seal.
        framing: the answer's framing indicator.
        status: the inner status.
        fields: the inner fields.
        content: the inner content.
        error: why nothing was understood.
        chunks: plaintext bytes of each chunk of the answer.
    """

    event: str
    http: int = 0
    outside: str = ""
    framing: int = 0
    status: int = 0
    fields: dict[str, str] = field(default_factory=dict[str, str])
    content: bytes = b""
    error: str = ""
    chunks: tuple[int, ...] = ()


async def _ignore(count: int) -> None:
    del count


@dataclass(frozen=True, kw_only=True)
class GoClient:
    """The program."""

    program: Path

    async def ask(
        self,
        address: Address,
        content: bytes = b"",
        *,
        flags: Mapping[str, str | int],
        on_chunk: OnChunk = _ignore,
    ) -> Heard:
        """Run one exchange.

        Args:
            address: whom to ask.
            content: of the inner request.
            flags: the program's; an underscore becomes a hyphen.
            on_chunk: awaited at every chunk of the answer, with their number.
        """
        words = [f"-{name.replace('_', '-')}={value}" for name, value in flags.items()]
        process = await asyncio.create_subprocess_exec(
            str(self.program),
            "ask",
            f"-keys={address.keys}",
            f"-gateway={address.gateway}",
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=64 * 1024 * 1024,
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                heard = await _listen(process, content, on_chunk)
                await process.wait()
        except BaseException:
            process.kill()
            raise
        return heard


async def _listen(
    process: asyncio.subprocess.Process, content: bytes, on_chunk: OnChunk
) -> Heard:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(content)
    process.stdin.close()
    chunks: list[int] = []
    async for line in process.stdout:
        said = json.loads(line)
        if said["event"] != "chunk":
            said["content"] = base64.b64decode(said.get("content", ""))
            await process.stdout.read()
            return Heard(**said, chunks=tuple(chunks))
        chunks.append(said.get("bytes", 0))
        await on_chunk(len(chunks))
    raise AssertionError(f"the client said nothing: {await process.wait()}")
