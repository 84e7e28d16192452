"""Which programs of this machine the endpoint serves."""

import asyncio
import json
import os
import secrets
import stat
import struct
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import aiohttp
import openai
import pytest
from typing_extensions import override

from curtilage.client.chat import openai_fields
from curtilage.client.chat.answer import AnswerEvent
from curtilage.client.chat.query import Query
from curtilage.client.endpoint import accounts
from curtilage.client.endpoint import server as gateway
from curtilage.client.endpoint.accounts import Callers, stored_token, uid_of
from curtilage.client.errors import ConfigError, ListenError
from curtilage.client.parts import ClientParts
from curtilage.client.session import Session
from curtilage.client.system.fair_queue import ASKER
from curtilage.policy.document.load import load_profile
from support.client_parts import MemoryTrail, ScriptedInspector, ScriptedLocal
from support.memory_enclave import Clock, key_store

CANARY = "canary-3be7"
TOKEN = "T" * 43
STRANGER = 1 + os.geteuid()
ASK = {"messages": [{"role": "user", "content": CANARY}]}
ROW = (
    "   1: {} {} {} 00000000:00000000 00:00000000 00000000  {}        0 {} 1 0000000"
    "000000000 20 4 30 10 -1\n"
)
HERE, THERE = ("127.0.0.1", 8642), ("127.0.0.1", 40000)
V4 = ("0100007F:9C40", "0100007F:21C2")
MAPPED = tuple(f"0000000000000000FFFF0000{end}" for end in V4)
V6 = tuple(f"{'0' * 24}01000000:{port}" for port in ("9C40", "21C2"))
little = pytest.mark.skipif(sys.byteorder != "little", reason="rows of such a machine")


class Named(ScriptedLocal):
    """Notes its callers."""

    def __init__(self) -> None:
        super().__init__()
        self.callers: list[str] = []

    @override
    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        asker = ASKER.get()
        assert asker is not None
        self.callers.append(asker.caller)
        async for event in super().generate(query, signals=signals):
            yield event


class Transport(asyncio.BaseTransport):
    """A connection between two given ends."""

    def __init__(self, own: object, peer: object, socket: object = None) -> None:
        super().__init__()
        self._said = {"sockname": own, "peername": peer, "socket": socket}

    @override
    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._said.get(name, default)


def row(ends: tuple[str, ...], uid: int = 7, state: str = "01", inode: int = 5) -> str:
    return ROW.format(*ends, state, uid, inode)


@asynccontextmanager
async def serving(
    given: Callers | None = None,
    *,
    local: ScriptedLocal | None = None,
    socket: Path | None = None,
    host: str | None = "127.0.0.1",
) -> AsyncGenerator[int]:
    session = Session(
        ClientParts(
            policy=load_profile("default"),
            inspector=ScriptedInspector("financial.pan"),
            local=local or ScriptedLocal(),
            transport=None,
            keys=key_store(),
            audit=MemoryTrail(),
            clock=Clock(),
        )
    )
    served = gateway.serving(session, host, socket=socket, callers=given)
    async with session, served as port:
        yield port


@little
@pytest.mark.parametrize(
    ("rows", "there", "here", "uid"),
    [
        ([row(V4)], THERE, HERE, 7),
        ([row(MAPPED)], THERE, HERE, 7),
        ([row(V4)], ("::ffff:127.0.0.1", 40000), ("::ffff:127.0.0.1", 8642), 7),
        ([row(V6)], ("::1", 40000, 0, 0), ("::1", 8642, 0, 0), 7),
        ([row(V4, state="04")], THERE, HERE, 7),
        ([row(V4, state="05")], THERE, HERE, 7),
        ([row(V4, uid=0)], THERE, HERE, 0),
        (["sl local rem st\n", "\n", "1: x\n", row(V4[::-1], uid=3), row(V4)],
         THERE, HERE, 7),
        # Our own end of it, which we own whatever the other one is.
        ([row(V4[::-1])], THERE, HERE, None),
        # Its program is gone: the zero is no account's number.
        ([row(V4, uid=0, state="06", inode=0)], THERE, HERE, None),
        ([row(V4, uid=0, state="05", inode=0)], THERE, HERE, None),
        ([row(V4, state="02")], THERE, HERE, None),
        ([row(V4), row(MAPPED, uid=8)], THERE, HERE, None),
        ([row(V4)], ("127.0.0.1", 40001), HERE, None),
        ([row(V4)], ("127.0.0.2", 40000), HERE, None),
        ([row(V4)], THERE, ("127.0.0.1", 8643), None),
        ([row(V6)], THERE, HERE, None),
        ([row(V4).replace("  7  ", "  x  ")], THERE, HERE, None),
        ([row(V4)], ("", 40000), HERE, None),
        ([], THERE, HERE, None),
    ],
)  # fmt: skip
def test_the_kernels_table_says_who_owns_the_other_end(
    rows: list[str],
    there: tuple[object, ...],
    here: tuple[object, ...],
    uid: int | None,
) -> None:
    ends = (cast("accounts.End", each[:2]) for each in (there, here))
    assert uid_of(rows, *ends) == uid


@little
async def test_a_row_that_one_reading_missed_is_found_by_the_next() -> None:
    readings = iter([list[str](), list[str](), [row(V4)]])
    given = Callers(tables=[lambda: next(readings)])
    assert await given.account(Transport(HERE, THERE)) == 7


@little
async def test_an_account_of_another_user_namespace_is_not_known() -> None:
    """The kernel writes one number for them all, which may be our own as well."""
    number = accounts.overflow_uid()
    given = Callers(own=number, tables=[lambda: [row(V4, uid=number)]])
    assert await given.account(Transport(HERE, THERE)) is None


@pytest.mark.parametrize("text", [None, "", "many\n"])
def test_without_the_kernels_word_that_number_is_the_usual_one(
    text: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "overflowuid"
    if text is not None:
        path.write_text(text)
    assert accounts.overflow_uid(path) == 65534
    path.write_text("99\n")
    assert accounts.overflow_uid(path) == 99


class Answering:
    """A socket whose kernel gives one answer to every question."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def getsockopt(self, *_: object) -> object:
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "uid"),
    [
        (struct.pack("3i", 1, 7, 8), 7),
        (struct.pack("3i", 0, -1, -1), -1),
        (struct.pack("1i", 7), None),  # another option, where the numbers are others
        (7, None),
        (OSError(92, "no such option"), None),
    ],
)
async def test_credentials_of_another_size_are_none(
    answer: object, uid: int | None
) -> None:
    assert await Callers().account(Transport("", "", Answering(answer))) == uid


@pytest.mark.parametrize("socket", [None, object()])
async def test_a_connection_without_ends_has_no_known_account(
    socket: object,
) -> None:
    assert await Callers().account(Transport(None, None, socket)) is None


@pytest.mark.parametrize(
    ("uid", "given", "caller"),
    [
        (7, [], "uid:7"),
        (7, ["Bearer unused"], "uid:7"),
        (8, [f"Bearer {TOKEN}"], "uid:8"),
        (0, [f"bearer {TOKEN}"], "uid:0"),
        (None, [f"Bearer  {TOKEN} "], "token"),
        # The superuser is another account: its processes may act for other users.
        (0, [], None),
        (8, [], None),
        (None, [], None),
        (None, [TOKEN], None),
        (None, [f"Basic {TOKEN}"], None),
        (None, [f"Bearer {TOKEN}", f"Bearer {TOKEN}"], None),
        (None, [f"Bearer {TOKEN}, Bearer x"], None),
        (None, [f"Bearer {TOKEN.lower()}"], None),
        (None, [f"Bearer {TOKEN[1:]}"], None),
        (None, ["Bearer "], None),
        (None, ["Bearer \udcfftoken"], None),
    ],
)
def test_a_caller_is_our_account_or_holds_the_token(
    uid: int | None, given: list[str], caller: str | None
) -> None:
    assert Callers(TOKEN, own=7).caller(uid, given) == caller


@pytest.mark.parametrize("given", [[], ["Bearer "], ["Bearer None"], ["Bearer"]])
def test_without_a_token_nothing_opens(given: list[str]) -> None:
    assert Callers(own=7).caller(8, given) is None


def test_the_token_is_made_once_and_kept_for_its_owner(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    token = stored_token(folder, secrets.token_urlsafe)
    assert len(token) == 43
    assert stored_token(folder, secrets.token_urlsafe) == token
    file = folder / accounts.TOKEN_NAME
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    file.unlink()
    assert stored_token(folder, secrets.token_urlsafe) != token


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_a_token_that_others_may_know_is_not_used(tmp_path: Path, mode: int) -> None:
    token = stored_token(tmp_path, secrets.token_urlsafe)
    (tmp_path / accounts.TOKEN_NAME).chmod(mode)
    with pytest.raises(ConfigError, match="delete it") as refused:
        stored_token(tmp_path, secrets.token_urlsafe)
    assert token not in str(refused.value)


@pytest.mark.parametrize("content", ["", "short", "x" * 44, "x" * 42 + "é", "x" * 1000])
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: str) -> None:
    stored_token(tmp_path, secrets.token_urlsafe)
    (tmp_path / accounts.TOKEN_NAME).write_text(content, "utf-8")
    with pytest.raises(ConfigError, match="not a token"):
        stored_token(tmp_path, secrets.token_urlsafe)


def test_a_token_is_read_through_no_link_and_from_no_pipe(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    stored_token(elsewhere, secrets.token_urlsafe)
    link = tmp_path / accounts.TOKEN_NAME
    link.symlink_to(elsewhere / accounts.TOKEN_NAME)
    with pytest.raises(OSError, match="symbolic links"):
        stored_token(tmp_path, secrets.token_urlsafe)
    link.unlink()
    os.mkfifo(link, 0o600)
    with pytest.raises(ConfigError, match="delete it"):
        stored_token(tmp_path, secrets.token_urlsafe)


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o1777])
def test_no_token_is_put_where_others_may_write(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(ConfigError, match="may write to"):
        stored_token(tmp_path, secrets.token_urlsafe)


ROUTES = [
    ("POST", openai_fields.CHAT_PATH),
    ("GET", openai_fields.MODELS_PATH),
    ("GET", f"{openai_fields.MODELS_PATH}/curtilage"),
    ("POST", openai_fields.FEEDBACK_PATH),
    ("GET", f"{openai_fields.QUEUE_PATH}{'0' * 32}"),
    ("DELETE", f"{openai_fields.QUEUE_PATH}{'0' * 32}"),
    ("POST", openai_fields.HEALTH_PATH),
    ("GET", "/"),
    ("GET", "/v1/embeddings"),
    ("PUT", openai_fields.CHAT_PATH),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_a_stranger_gets_nothing_of_any_route(method: str, path: str) -> None:
    local = ScriptedLocal()
    async with (
        serving(Callers(TOKEN, own=STRANGER), local=local) as port,
        aiohttp.ClientSession() as client,
        client.request(method, f"http://127.0.0.1:{port}{path}", json=ASK) as answer,
    ):
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        error = (await answer.json())["error"]
    assert error["code"] == "invalid_api_key"
    assert accounts.TOKEN_NAME in error["message"]
    assert TOKEN not in error["message"]
    assert local.asked == []


async def test_every_route_is_among_those_that_a_stranger_is_refused() -> None:
    """A route that is added is to be tried above."""
    session = cast("Session", None)
    endpoint = gateway.Endpoint(session, Callers())
    known = set(endpoint._routes)  # pyright: ignore[reportPrivateUsage]
    assert known <= {path for _, path in ROUTES}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_stranger_may_know_whether_the_endpoint_is_well(method: str) -> None:
    async with (
        serving(Callers(TOKEN, own=STRANGER)) as port,
        aiohttp.ClientSession() as client,
    ):
        url = f"http://127.0.0.1:{port}{openai_fields.HEALTH_PATH}"
        async with client.request(method, url) as answer:
            assert answer.status == 200
            reported = await answer.read()
        if method == "GET":
            assert set(json.loads(reported)) == {"status"}
        known = {"Authorization": f"Bearer {TOKEN}"}
        async with client.get(url, headers=known) as answer:
            assert {"status", "policy", "tiers"} <= set(await answer.json())


async def test_a_page_of_a_web_site_is_refused_with_the_token_too() -> None:
    async with (
        serving(Callers(TOKEN)) as port,
        aiohttp.ClientSession() as client,
        client.get(
            f"http://127.0.0.1:{port}{openai_fields.HEALTH_PATH}",
            headers={
                "Authorization": f"Bearer {TOKEN}",
                "Origin": "https://evil.example",
            },
        ) as answer,
    ):
        assert answer.status == 403


async def test_the_token_is_an_api_key_of_the_openai_package() -> None:
    local = Named()
    async with serving(Callers(TOKEN, own=STRANGER), local=local) as port:
        url = f"http://127.0.0.1:{port}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="unused") as stranger:
            with pytest.raises(openai.AuthenticationError, match="endpoint-token"):
                await stranger.models.list()
        async with openai.AsyncOpenAI(base_url=url, api_key=TOKEN) as client:
            await client.chat.completions.create(
                model="curtilage", messages=[{"role": "user", "content": "hello"}]
            )
    assert local.callers == [f"uid:{os.geteuid()}"]


async def test_each_request_of_a_connection_has_to_show_the_token() -> None:
    async with (
        serving(Callers(TOKEN, own=STRANGER)) as port,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as client,
    ):
        url = f"http://127.0.0.1:{port}{openai_fields.MODELS_PATH}"
        known = {"Authorization": f"Bearer {TOKEN}"}
        for headers, status in (({}, 401), (known, 200), ({}, 401)):
            async with client.get(url, headers=headers) as answer:
                await answer.read()
                assert answer.status == status


@asynccontextmanager
async def unix_client(socket: Path) -> AsyncGenerator[aiohttp.ClientSession]:
    connector = aiohttp.UnixConnector(str(socket))
    async with aiohttp.ClientSession(connector=connector) as client:
        yield client


@pytest.mark.parametrize("host", [None, "127.0.0.1"])
async def test_a_unix_socket_is_served_too(tmp_path: Path, host: str | None) -> None:
    local, socket = Named(), tmp_path / "endpoint.sock"
    async with (
        serving(local=local, socket=socket, host=host) as port,
        unix_client(socket) as client,
    ):
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        assert (port == 0) is (host is None)
        url = f"http://localhost{openai_fields.CHAT_PATH}"
        async with client.post(url, json=ASK) as answer:
            assert answer.status == 200
    assert local.callers == [f"uid:{os.geteuid()}"]
    assert not socket.exists()


async def test_another_account_at_the_socket_needs_the_token(tmp_path: Path) -> None:
    socket = tmp_path / "endpoint.sock"
    async with (
        serving(Callers(TOKEN, own=STRANGER), socket=socket, host=None),
        unix_client(socket) as client,
    ):
        url = f"http://localhost{openai_fields.MODELS_PATH}"
        for headers, status in (
            ({}, 401),
            ({"Authorization": f"Bearer {TOKEN}"}, 200),
        ):
            async with client.get(url, headers=headers) as answer:
                assert answer.status == status


async def test_a_socket_that_is_in_use_is_not_replaced(tmp_path: Path) -> None:
    socket = tmp_path / "endpoint.sock"
    async with serving(socket=socket, host=None):
        with pytest.raises(ListenError, match="in use"):
            async with serving(socket=socket, host=None):
                pass
        async with unix_client(socket) as client:
            url = f"http://localhost{openai_fields.HEALTH_PATH}"
            async with client.get(url) as answer:
                assert answer.status == 200


async def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    socket = tmp_path / "endpoint.sock"
    server = await asyncio.start_unix_server(lambda _r, _w: None, str(socket))
    kept = tmp_path / "kept"
    os.link(socket, kept)
    server.close()
    if not socket.exists():
        os.link(kept, socket)
    async with serving(socket=socket, host=None), unix_client(socket) as client:
        url = f"http://localhost{openai_fields.HEALTH_PATH}"
        async with client.get(url) as answer:
            assert answer.status == 200


async def test_a_file_in_the_sockets_place_is_kept(tmp_path: Path) -> None:
    place = tmp_path / "endpoint.sock"
    place.write_text("mine")
    with pytest.raises(ListenError, match=f"unix:{place}: "):
        async with serving(socket=place, host=None):
            pass
    assert place.read_text() == "mine"


async def test_a_name_too_long_for_a_socket_is_said(tmp_path: Path) -> None:
    with pytest.raises(ListenError, match="too long"):
        async with serving(socket=tmp_path / ("x" * 120), host=None):
            pass


def shared_places(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    for mode in (0o770, 0o707, 0o1777):
        folder = tmp_path / f"{mode:o}"
        folder.mkdir()
        yield folder, mode


async def test_no_socket_is_made_where_others_may_write(tmp_path: Path) -> None:
    for folder, mode in shared_places(tmp_path):
        inner = folder / "inner"
        inner.mkdir(mode=0o700)
        folder.chmod(mode)
        places = [folder / "s"]
        # Below a sticky folder our own is safe.
        places += [inner / "s"] if mode != 0o1777 else []
        for place in places:
            with pytest.raises(ConfigError, match="others may write"):
                async with serving(socket=place, host=None):
                    pass
        assert [*folder.iterdir()] == [inner]


async def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        async with serving(socket=tmp_path / "nowhere" / "s", host=None):
            pass


AS_ANOTHER = """
import http.client, json, os, socket, sys
uid, port, token, path, host, family = json.loads(sys.argv[1])
os.setgroups([]); os.setgid(uid); os.setuid(uid)
kept = socket.socket(getattr(socket, family))
if family == "AF_INET6" and host.startswith("::ffff:"):
    kept.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
kept.connect((host, port))
client = http.client.HTTPConnection("localhost")
client.sock = kept
fields = {"Content-Type": "application/json"}
if token:
    fields["Authorization"] = f"Bearer {token}"
body = json.dumps({"messages": [{"role": "user", "content": "hello"}]})
client.request("POST" if "chat" in path else "GET", path, body, fields)
answer = client.getresponse()
print(json.dumps([answer.status, answer.read().decode()]))
"""
ROOT_ONLY = pytest.mark.skipif(
    os.geteuid() != 0, reason="SKIPPED LOUDLY: only root can try another account"
)


async def as_another(
    uid: int,
    port: int,
    path: str = openai_fields.CHAT_PATH,
    *,
    token: str = "",
    host: str = "127.0.0.1",
    family: str = "AF_INET",
) -> tuple[int, str]:
    """Ask from a process of another account."""
    given = json.dumps([uid, port, token, path, host, family])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", AS_ANOTHER, given, stdout=subprocess.PIPE
    )
    reported, _ = await process.communicate()
    status, text = json.loads(reported)
    return int(status), str(text)


@ROOT_ONLY
@pytest.mark.parametrize("uid", [12345, 65534])
@pytest.mark.parametrize(
    ("listening", "host", "family"),
    [
        ("127.0.0.1", "127.0.0.1", "AF_INET"),
        ("127.0.0.1", "::ffff:127.0.0.1", "AF_INET6"),
        ("::1", "::1", "AF_INET6"),
    ],
)
async def test_another_account_is_refused(
    uid: int, listening: str, host: str, family: str
) -> None:
    """Of a kernel's own table, with a process that has that account."""
    local = Named()
    async with serving(Callers(TOKEN), local=local, host=listening) as port:
        refused = await as_another(uid, port, host=host, family=family)
        assert refused[0] == 401
        assert "endpoint-token" in refused[1]
        reported = await as_another(uid, port, openai_fields.FEEDBACK_PATH, host=host,
                                family=family)  # fmt: skip
        assert reported[0] == 401
        health = await as_another(uid, port, openai_fields.HEALTH_PATH, host=host,
                                  family=family)  # fmt: skip
        assert (health[0], set(json.loads(health[1]))) == (200, {"status"})
        assert local.callers == []
        served = await as_another(uid, port, host=host, family=family, token=TOKEN)
        assert served[0] == 200
        own = await as_another(os.geteuid(), port, host=host, family=family)
        assert own[0] == 200
    named = "token" if uid == accounts.overflow_uid() else f"uid:{uid}"
    assert local.callers == [named, f"uid:{os.geteuid()}"]
