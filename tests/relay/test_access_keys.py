"""Keys: kept as salted hashes, checked at the door, never passed on."""

import pytest

from curtilage.relay.access_keys import (
    AccessKeys,
    KeyRecord,
    make_key,
    parse_key_record,
    run,
)
from curtilage.relay.config import parse_config
from curtilage.relay.errors import ConfigError
from support.relay_parts import FakeGateway, MakeRelay, Message, raw_answer, say

KEY, RECORD = make_key("hospital-a")
BEARER = f"Bearer {KEY}".encode()


def test_a_key_opens_and_another_does_not() -> None:
    other, _ = make_key("hospital-a")
    keys = AccessKeys([RECORD])
    assert keys.required
    assert keys.admits([BEARER])
    assert keys.admits([b"bearer  " + KEY.encode()])
    assert not keys.admits([f"Bearer {other}".encode()])
    assert not AccessKeys([]).required


@pytest.mark.parametrize(
    "values",
    [
        [],
        [b""],
        [b"Bearer"],
        [b"Bearer "],
        [BEARER, BEARER],
        [BEARER + b" "],
        [BEARER + b"A"],
        [BEARER[:-1]],
        [KEY.encode()],
        [b"Basic " + KEY.encode()],
        [b"Bearer unknown." + KEY.partition(".")[2].encode()],
        [b"Bearer hospital-a." + b"A" * 43],
        [b"Bearer ." + b"A" * 43],
        [BEARER.replace(b"hospital", b"HOSPITAL")],
        [b"Bearer \xff"],
        [BEARER + b"\n"],
    ],
)
def test_anything_else_does_not_open(values: list[bytes]) -> None:
    assert not AccessKeys([RECORD]).admits(values)


def test_nobodys_secret_is_not_a_key() -> None:
    # The stand-in for unknown names holds no digest that a secret has.
    assert not AccessKeys([RECORD]).admits([b"Bearer x." + b"A" * 43])


def test_only_salt_and_hash_are_kept() -> None:
    secret = KEY.partition(".")[2]
    line = RECORD.line()
    assert secret not in line
    assert secret not in repr(RECORD)
    assert RECORD.digest.hex() not in repr(RECORD)
    assert parse_key_record(line) == RECORD
    again, record = make_key("hospital-a")
    assert again != KEY
    assert record.salt != RECORD.salt


def test_a_key_is_made_of_the_randomness_given() -> None:
    key, record = make_key("a", random=bytes)
    assert key == "a." + "A" * 43
    assert record.salt == bytes(16)


@pytest.mark.parametrize("name", ["", "A", "a b", "a:b", "-a", "a" * 33, "a\n", "é"])
def test_odd_names_make_no_key(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        make_key(name)


@pytest.mark.parametrize(
    "line",
    ["", "a", "a:b:c", RECORD.line() + " ", RECORD.line().upper(), KEY, "a::"],
    # Drawn at random, and two processes that share the cases want the same names.
    ids=["empty", "a", "three parts", "a space behind", "capitals", "a key", "colons"],
)
def test_odd_lines_are_no_records(line: str) -> None:
    assert parse_key_record(line) is None


CONFIG = 'listen = "127.0.0.1:0"\n[gateways]\na = "https://a.example"\n[access]\n'


def test_configuration_takes_lines_and_quotes_no_key() -> None:
    config = parse_config(CONFIG + f'keys = ["{RECORD.line()}"]\n', {})
    assert config.keys == (RECORD,)
    for keys in (f'["{KEY}"]', f'["{RECORD.line()}", "{RECORD.line()}"]', "[]", "7"):
        with pytest.raises(ConfigError, match=r"access\.keys") as refused:
            parse_config(f"{CONFIG}keys = {keys}\n", {})
        assert KEY not in str(refused.value)
    with pytest.raises(ConfigError, match=r"access\.x"):
        parse_config(CONFIG + "x = 1\n", {})


def test_command_makes_a_key_that_its_line_opens(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["hospital-b"]) == 0
    key_line, record_line = capsys.readouterr().out.splitlines()
    record = parse_key_record(record_line.removeprefix("line: "))
    assert isinstance(record, KeyRecord)
    key = key_line.removeprefix("key: ")
    assert AccessKeys([record]).admits([f"Bearer {key}".encode()])


def test_command_refuses_odd_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["Hospital B"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "make-key" in output.err


# Through the door


async def test_relay_asks_everything_but_health_for_a_key(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    relay = await make_relay(access={"keys": [RECORD.line()]})
    answers = [
        await relay.post(),
        await relay.post("/demo", "Authorization: Bearer x"),
        await relay.get("/demo/keys"),
        await relay.get("/demo/bundle"),
        await relay.get("/nowhere"),
    ]
    for answer in answers:
        assert answer.status == 401
        assert answer.value("WWW-Authenticate") == "Bearer"
        assert answer.body == answers[0].body
    assert gateway.requests == []
    assert (await relay.get("/healthz")).status == 200


async def test_relay_takes_the_key_and_passes_it_on_to_no_one(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    relay = await make_relay(access={"keys": [RECORD.line()]})
    credentials = f"Authorization: Bearer {KEY}"
    answer = await relay.post("/demo", credentials)
    assert answer.status == 200
    gateway.script = say(raw_answer(b"keys", kind="application/ohttp-keys"))
    assert (await relay.get("/demo/keys", credentials)).body == b"keys"
    seen: list[Message] = gateway.requests
    assert [request.names[0] for request in seen] == ["Host", "Host"]
    for request in seen:
        assert b"uthorization" not in request.head
        assert KEY.encode() not in request.head + request.body
