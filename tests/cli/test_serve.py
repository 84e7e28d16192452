"""What ``serve`` says when it starts."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from curtilage.cli import main as cli
from curtilage.cli import serve
from curtilage.client.parts import ClientParts
from curtilage.client.session import Session
from curtilage.inference.default_model import DEFAULT_SHA256
from curtilage.policy.document.load import load_profile
from support.client_parts import MemoryTrail, ScriptedInspector, ScriptedLocal
from support.memory_enclave import key_store


@pytest.mark.parametrize("embedded", [True, False])
def test_the_embedded_model_is_said_to_be_for_demonstration(
    *,
    embedded: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    local = ScriptedLocal()
    if embedded:
        local.digests = (DEFAULT_SHA256, None)
    parts = ClientParts(
        policy=load_profile("default"),
        inspector=ScriptedInspector(),
        local=local,
        transport=None,
        keys=key_store(),
        audit=MemoryTrail(),
    )

    @asynccontextmanager
    async def session_from(
        *_config: object, **_more: object
    ) -> AsyncGenerator[Session]:
        async with Session(parts) as session:
            yield session

    async def at_once(*_stop: object) -> bool:
        return True

    monkeypatch.setattr(serve, "session_from", session_from)
    monkeypatch.setattr(serve, "_stopped", at_once)
    assert cli.main(["serve", "--port", "0"]) == 0
    shown = capsys.readouterr()
    assert '"ready": true' in shown.out
    assert ("answered by the embedded DEMONSTRATION model" in shown.err) is embedded
