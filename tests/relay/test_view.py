"""The development view: what an operator could see, and only when asked for."""

import base64
import json
import os
import stat
from pathlib import Path
from typing import cast

import pytest

from support.relay_parts import (
    ANSWER,
    SEALED,
    FakeGateway,
    MakeRelay,
    raw_answer,
    say,
)


def records(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_view_records_what_an_operator_could_see(
    make_relay: MakeRelay, tmp_path: Path
) -> None:
    path = tmp_path / "view.jsonl"
    relay = await make_relay(unsafe_record_view=str(path))
    await relay.post("/demo?query", "User-Agent: someone")
    (record,) = records(path)
    assert record["peer"] == "127.0.0.1"
    assert record["method"] == "POST"
    assert record["path"] == "/demo?query"
    assert record["header_names"] == [
        "Host",
        "Content-Type",
        "User-Agent",
        "Content-Length",
    ]
    assert record["request_bytes"] == len(SEALED)
    assert base64.b64decode(str(record["request_body"])) == SEALED
    assert record["status"] == 200
    assert record["response_bytes"] == len(ANSWER)
    assert base64.b64decode(str(record["response_body"])) == ANSWER
    assert record["response_pieces"] == [len(ANSWER)]
    start, first, end = (record[key] for key in ("start", "first_byte", "end"))
    assert isinstance(start, float)
    assert isinstance(first, float)
    assert isinstance(end, float)
    assert start <= first <= end
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_view_records_pieces_refusals_and_copies(
    make_relay: MakeRelay, gateway: FakeGateway, tmp_path: Path
) -> None:
    path = tmp_path / "view.jsonl"
    relay = await make_relay(unsafe_record_view=str(path))
    await relay.post("/demo", "Incremental: ?1")
    await relay.get("/nothing")
    gateway.script = say(raw_answer(b"keys", kind="application/ohttp-keys"))
    await relay.get("/demo/keys")
    streamed, refused, keys = records(path)
    pieces = cast("list[int]", streamed["response_pieces"])
    assert sum(pieces) == streamed["response_bytes"] == len(ANSWER)
    assert (refused["status"], refused["first_byte"]) == (404, None)
    assert (keys["status"], keys["response_bytes"]) == (200, 4)


async def test_without_the_view_nothing_is_written(
    make_relay: MakeRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    relay = await make_relay()
    await relay.post()
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - pathlib's would be refused here
