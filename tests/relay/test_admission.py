"""Connections are counted while they last, whatever happens to the secret."""

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.relay.admission import AdmissionControl, ConnectionSlot
from curtilage.relay.client_limits import ClientCaps, ClientLimits
from curtilage.relay.refusals import Refusal, RefusedError
from support.relay_parts import FakeGateway, MakeRelay, raw_request, read_message

ROTATE_S = 60.0
CHUNKED = "Transfer-Encoding: chunked"
UPLOAD = ("Content-Type: message/ohttp-req", "Incremental: ?1")
HEALTH = raw_request("GET", "/healthz")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make(
    clock: Clock, *, most: int = 100, connections: int = 2, rate: float = 0.0
) -> AdmissionControl:
    limits = ClientLimits(
        connections=connections, requests_per_s=rate, burst=1, rotate_s=ROTATE_S
    )
    return AdmissionControl(most=most, caps=ClientCaps(limits, clock=clock))


def refusal(admission: AdmissionControl, address: str) -> Refusal:
    with pytest.raises(RefusedError) as refused:
        admission.admit(address)
    return refused.value.refusal


def test_connections_are_bounded_in_all_and_for_each_client() -> None:
    admission = make(Clock(), most=3)
    first, _ = admission.admit("192.0.2.1"), admission.admit("192.0.2.1")
    assert refusal(admission, "192.0.2.1") is Refusal.CLIENT_CONNECTIONS
    admission.admit("192.0.2.2")
    assert refusal(admission, "192.0.2.3") is Refusal.CONNECTIONS
    admission.release(first)
    admission.release(first)
    admission.admit("192.0.2.1")
    assert refusal(admission, "192.0.2.4") is Refusal.CONNECTIONS


def test_without_caps_only_the_whole_is_bounded() -> None:
    admission = AdmissionControl(most=2, caps=None)
    slots = [admission.admit("") for _ in range(2)]
    assert refusal(admission, "") is Refusal.CONNECTIONS
    assert all(admission.may_ask(slots[0]) for _ in range(1000))
    admission.release(slots[0])
    admission.admit("")


def test_a_new_secret_forgets_no_connection() -> None:
    clock = Clock()
    admission = make(clock)
    slots = [admission.admit("192.0.2.1") for _ in range(2)]
    for _ in range(6):
        clock.now += ROTATE_S
        assert refusal(admission, "192.0.2.1") is Refusal.CLIENT_CONNECTIONS
    admission.release(slots.pop())
    slots.append(admission.admit("192.0.2.1"))
    assert refusal(admission, "192.0.2.1") is Refusal.CLIENT_CONNECTIONS
    # Also one that ends before anybody noticed that time is over.
    clock.now += ROTATE_S
    admission.release(slots.pop())
    admission.admit("192.0.2.1")
    assert refusal(admission, "192.0.2.1") is Refusal.CLIENT_CONNECTIONS


def test_requests_are_counted_with_the_new_secret() -> None:
    clock = Clock()
    admission = make(clock, rate=0.001)
    slot = admission.admit("192.0.2.1")
    old = slot.client
    assert [admission.may_ask(slot) for _ in range(2)] == [True, False]
    clock.now += ROTATE_S
    assert [admission.may_ask(slot) for _ in range(2)] == [True, False]
    assert slot.client != old
    assert refusal_after(admission, "192.0.2.1") is Refusal.CLIENT_CONNECTIONS


def refusal_after(admission: AdmissionControl, address: str) -> Refusal:
    admission.admit(address)
    return refusal(admission, address)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["enter", "leave", "ask", "wait"]),
            st.sampled_from(["192.0.2.1", "2001:db8::1"]),
        ),
        max_size=40,
    )
)
def test_a_client_holds_its_cap_and_no_more(steps: list[tuple[str, str]]) -> None:
    clock = Clock()
    admission = make(clock, connections=3)
    held: dict[str, list[ConnectionSlot]] = {"192.0.2.1": [], "2001:db8::1": []}
    for step, address in steps:
        slots = held[address]
        if step == "wait":
            clock.now += ROTATE_S
        elif step == "enter" and len(slots) == 3:
            assert refusal(admission, address) is Refusal.CLIENT_CONNECTIONS
        elif step == "enter":
            slots.append(admission.admit(address))
        elif slots and step == "ask":
            assert admission.may_ask(slots[0])
        elif slots:
            admission.release(slots.pop())


def test_a_client_has_its_share_of_uploads_and_no_more() -> None:
    clock = Clock()
    limits = ClientLimits(connections=4, rotate_s=ROTATE_S)
    admission = AdmissionControl(
        most=9, caps=ClientCaps(limits, uploads=2, clock=clock)
    )
    slots = [admission.admit("192.0.2.1") for _ in range(4)]
    assert [admission.begin_upload(slot) for slot in slots] == [
        True,
        True,
        False,
        False,
    ]
    assert not admission.begin_upload(slots[0])
    other = admission.admit("192.0.2.2")
    assert admission.begin_upload(other)
    clock.now += ROTATE_S
    assert not admission.begin_upload(slots[2])
    for _ in range(2):
        admission.end_upload(slots[0])
    assert [admission.begin_upload(slot) for slot in slots[2:]] == [True, False]
    admission.release(slots[1])
    admission.release(slots[2])
    assert [admission.begin_upload(slots[0]), admission.begin_upload(slots[3])] == [
        True,
        True,
    ]
    clock.now += ROTATE_S
    admission.end_upload(slots[2])
    fifth = admission.admit("192.0.2.1")
    assert not admission.begin_upload(fifth)
    assert admission.begin_upload(slots[1])
    assert not slots[1].uploads  # a closed connection is not counted


def test_what_costs_more_is_charged() -> None:
    clock = Clock()
    limits = ClientLimits(requests_per_s=1.0, burst=10, rotate_s=ROTATE_S)
    admission = AdmissionControl(most=9, caps=ClientCaps(limits, clock=clock))
    slot = admission.admit("192.0.2.1")
    admission.charge(slot, 8.0)
    assert [admission.may_ask(slot) for _ in range(3)] == [True, True, False]
    admission.charge(slot, 100.0)  # never more than all
    clock.now += 2
    assert [admission.may_ask(slot) for _ in range(3)] == [True, True, False]
    open_door = AdmissionControl(most=9, caps=None)
    open_door.charge(open_door.admit(""), 8.0)


async def test_one_client_does_not_take_all_places_for_uploads(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    relay = await make_relay(
        clients={"connections": 32, "requests_per_s": 0}, limits={"max_uploads": 8}
    )
    fields = (*UPLOAD, "Content-Length: 100")
    held = [await relay.connect() for _ in range(2)]
    for _, writer in held:
        writer.write(raw_request("POST", "/demo", fields) + b"x")
        await gateway.greeted()
    answer = await relay.send(raw_request("POST", "/demo", fields) + b"x")
    assert (answer.status, answer.names[2]) == (429, "Proxy-Status")
    held[0][1].write(b"x" * 99)
    assert (await read_message(held[0][0])).status == 200
    answer = await relay.send(raw_request("POST", "/demo", fields) + b"x" * 100)
    assert answer.status == 200
    for _, writer in held:
        writer.close()


def tiny_chunks(content: bytes, size: int) -> bytes:
    pieces = (content[at : at + size] for at in range(0, len(content), size))
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


@pytest.mark.parametrize("incremental", [(), ("Incremental: ?1",)])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("end", [b"", b"0\r\n\r\n"])
async def test_far_more_framing_than_content_is_refused(
    make_relay: MakeRelay,
    gateway: FakeGateway,
    incremental: tuple[str, ...],
    end: bytes,
    *,
    apart: bool,
) -> None:
    clients = {"connections": 0, "requests_per_s": 0.001, "burst": 30}
    relay = await make_relay(clients=clients)
    fields = ("Content-Type: message/ohttp-chunked-req", *incremental, CHUNKED)
    head = raw_request("POST", "/demo", fields)
    content = tiny_chunks(bytes(4500), 1) + end
    reader, writer = await relay.connect()
    writer.write(head + (tiny_chunks(b"x", 1) if apart else content))
    if apart:
        await asyncio.sleep(0.05)
        writer.write(content)
    assert (await read_message(reader)).status == 400
    writer.close()
    assert not any(request.complete for request in gateway.requests)
    # It counts as many requests: this client soon has none left.
    for _ in range(9):
        assert (await relay.get("/nowhere")).status == 404
    assert (await relay.get("/nowhere")).status == 429


async def test_framing_is_weighed_in_content_that_came_at_once(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    relay = await make_relay()
    fields = ("Content-Type: message/ohttp-chunked-req", CHUNKED)
    content = b"1;" + b"a" * 20000 + b"\r\nx\r\n0\r\n\r\n"
    answer = await relay.send(raw_request("POST", "/demo", fields) + content)
    assert (answer.status, gateway.requests) == (400, [])


async def test_framing_is_weighed_after_an_early_refusal_too(
    make_relay: MakeRelay,
) -> None:
    clients = {"connections": 0, "requests_per_s": 0.001, "burst": 30}
    relay = await make_relay(clients=clients)
    reader, writer = await relay.connect()
    writer.write(raw_request("POST", "/nowhere", (CHUNKED,)))
    assert (await read_message(reader)).status == 404
    writer.write(tiny_chunks(bytes(8000), 1))
    # The end, or a reset: reading has stopped.
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(20):
            assert await reader.read() == b""
    writer.close()
    for _ in range(9):
        assert (await relay.get("/nowhere")).status == 404
    assert (await relay.get("/nowhere")).status == 429


@pytest.mark.parametrize("incremental", [(), ("Incremental: ?1",)])
@pytest.mark.parametrize("size", [10, 100, 16384])
async def test_chunks_of_a_sensible_size_pass(
    make_relay: MakeRelay,
    gateway: FakeGateway,
    incremental: tuple[str, ...],
    size: int,
) -> None:
    relay = await make_relay()
    content = bytes(range(256)) * 1024
    fields = ("Content-Type: message/ohttp-chunked-req", *incremental, CHUNKED)
    request = raw_request("POST", "/demo", fields) + tiny_chunks(content, size)
    answer = await relay.send(request + b"0\r\n\r\n")
    assert answer.status == 200
    assert gateway.requests[0].body == content


async def test_a_client_keeps_no_uncounted_connections(
    make_relay: MakeRelay,
) -> None:
    caps = {"connections": 2, "requests_per_s": 0, "rotate_s": 0.1}
    relay = await make_relay(clients=caps)
    held = [await relay.connect() for _ in range(2)]
    async with asyncio.timeout(60):
        for _ in range(3):
            for reader, writer in held:
                writer.write(HEALTH)
                assert (await read_message(reader)).status == 200
            await asyncio.sleep(0.15)
            assert (await relay.get("/healthz")).status == 429
    for _, writer in held:
        writer.close()
