"""Places at the gateways: a share for each client, and a line served in turn."""

import asyncio
from collections.abc import Iterable

import pytest

from curtilage.relay.admission import AdmissionControl, ConnectionSlot
from curtilage.relay.client_limits import ClientCaps, ClientLimits
from curtilage.relay.config import Limits
from curtilage.relay.fair_queue import FairQueue
from curtilage.relay.refusals import Refusal, RefusedError
from support.relay_parts import (
    FakeGateway,
    MakeRelay,
    Message,
    raw_answer,
    raw_request,
    read_message,
)

FOR_EVER_S = 1000.0
ROTATE_S = 60.0
GREEDY, MODEST, THIRD = "192.0.2.1", "192.0.2.2", "192.0.2.3"
POST = ("Content-Type: message/ohttp-req",)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Parts:
    """Admission control and a queue behind it, and who waits there."""

    def __init__(
        self, *, most: int, share: int = 2, wait_s: float = FOR_EVER_S
    ) -> None:
        self.clock = Clock()
        limits = ClientLimits(connections=0, requests_per_s=0, rotate_s=ROTATE_S)
        self.admission = AdmissionControl(
            most=1000, caps=ClientCaps(limits, clock=self.clock)
        )
        self.queue = FairQueue(self.admission, most=most, share=share, wait_s=wait_s)
        self.order: list[str] = []
        self.tasks: list[asyncio.Task[ConnectionSlot]] = []

    async def asks(self, *addresses: str) -> list[str]:
        """Let these ask, one after the other; say who was called since then."""
        before = len(self.order)
        for address in addresses:
            self.tasks.append(asyncio.create_task(self._take(address)))
        await settle()
        return self.order[before:]

    async def ends(self, address: str) -> list[str]:
        """End one exchange of this client's; say who was called since then."""
        before = len(self.order)
        task = next(
            task
            for task in self.tasks
            if task.done() and not task.cancelled() and task.result().address == address
        )
        self.tasks.remove(task)
        self.queue.give_back(task.result())
        self.admission.release(task.result())
        await settle()
        return self.order[before:]

    async def _take(self, address: str) -> ConnectionSlot:
        slot = self.admission.admit(address)
        await self.queue.take(slot)
        self.order.append(address)
        return slot

    async def close(self) -> None:
        await cancelled(self.tasks)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def cancelled(tasks: Iterable["asyncio.Task[ConnectionSlot]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_client_has_its_share_and_others_find_room() -> None:
    parts = Parts(most=48)
    assert await parts.asks(*[GREEDY] * 9) == [GREEDY] * 2
    assert await parts.asks(MODEST, MODEST, MODEST) == [MODEST] * 2
    await parts.close()


@pytest.mark.parametrize("share", [2, 0], ids=["shares", "no shares"])
async def test_who_holds_fewest_is_called_first(share: int) -> None:
    parts = Parts(most=2, share=share)
    assert await parts.asks(GREEDY, THIRD) == [GREEDY, THIRD]
    # Nine of one client stand in line before the other comes.
    assert await parts.asks(*[GREEDY] * 9, MODEST) == []
    assert await parts.ends(THIRD) == [MODEST]
    assert await parts.ends(GREEDY) == [GREEDY]
    await parts.close()


async def test_equals_are_called_in_the_order_in_which_they_came() -> None:
    parts = Parts(most=1)
    await parts.asks(GREEDY)
    assert await parts.asks(MODEST, THIRD) == []
    assert await parts.ends(GREEDY) == [MODEST]
    assert await parts.ends(MODEST) == [THIRD]
    await parts.close()


async def test_the_share_is_smaller_while_few_are_left() -> None:
    parts = Parts(most=6)
    assert await parts.asks(*[GREEDY] * 3) == [GREEDY] * 2
    # Four are left: half of them for one client; then three: one.
    assert await parts.asks(*[MODEST] * 3) == [MODEST]
    assert await parts.asks(*[THIRD] * 3) == [THIRD]
    assert await parts.asks("192.0.2.4", "192.0.2.5") == ["192.0.2.4", "192.0.2.5"]
    await parts.close()


async def test_many_addresses_are_needed_to_take_all_shipped_places() -> None:
    parts = Parts(most=Limits().max_upstream, share=ClientLimits().exchanges)
    addresses = 0
    while await parts.asks(*[f"198.51.100.{addresses}"] * 4):
        addresses += 1
    assert addresses == 19
    await parts.close()


async def test_a_place_that_comes_back_enlarges_the_shares_again() -> None:
    parts = Parts(most=5)
    assert await parts.asks(GREEDY, MODEST, THIRD) == [GREEDY, MODEST, THIRD]
    assert await parts.asks(GREEDY, MODEST) == []
    assert await parts.ends(THIRD) == []
    assert await parts.ends(MODEST) == [MODEST]
    # Four are free: only now a second one is anybody's share.
    assert await parts.ends(MODEST) == [GREEDY]
    await parts.close()


async def test_whose_turn_does_not_come_in_time_is_refused() -> None:
    parts = Parts(most=1, wait_s=0)
    assert await parts.asks(GREEDY) == [GREEDY]
    with pytest.raises(RefusedError) as refused:
        await parts.queue.take(parts.admission.admit(MODEST))
    assert refused.value.refusal is Refusal.BUSY
    assert await parts.ends(GREEDY) == []
    assert await parts.asks(MODEST) == [MODEST]
    await parts.close()


async def test_who_leaves_the_line_is_not_called() -> None:
    parts = Parts(most=1)
    await parts.asks(GREEDY, MODEST, THIRD)
    parts.tasks.pop(1).cancel()
    assert await parts.ends(GREEDY) == [THIRD]
    await parts.close()


async def test_who_leaves_when_called_gives_the_place_to_the_next() -> None:
    parts = Parts(most=1)
    await parts.asks(GREEDY, MODEST, THIRD)
    first, second = parts.tasks[0].result(), parts.tasks.pop(1)
    parts.queue.give_back(first)
    second.cancel()
    await settle()
    assert parts.order == [GREEDY, THIRD]
    await parts.close()


async def test_a_place_given_back_twice_is_one_place() -> None:
    parts = Parts(most=1)
    await parts.asks(GREEDY)
    slot = parts.tasks[0].result()
    parts.queue.give_back(slot)
    parts.queue.give_back(slot)
    assert await parts.asks(MODEST, THIRD) == [MODEST]
    await parts.close()


async def test_a_new_secret_forgets_no_place() -> None:
    parts = Parts(most=48)
    assert await parts.asks(*[GREEDY] * 3) == [GREEDY] * 2
    for _ in range(3):
        parts.clock.now += ROTATE_S
        assert await parts.asks(GREEDY) == []
    parts.clock.now += ROTATE_S
    assert await parts.ends(GREEDY) == [GREEDY]
    await parts.close()


async def test_without_shares_only_the_whole_is_bounded() -> None:
    parts = Parts(most=5, share=0)
    assert await parts.asks(*[GREEDY] * 9) == [GREEDY] * 5
    await parts.close()


async def test_behind_a_unix_socket_no_client_has_a_share() -> None:
    admission = AdmissionControl(most=9, caps=None)
    queue = FairQueue(admission, most=5, share=2, wait_s=0)
    for _ in range(5):
        await queue.take(admission.admit(""))
    with pytest.raises(RefusedError):
        await queue.take(admission.admit(""))


# Through the relay


def hold(gateway: FakeGateway) -> asyncio.Event:
    """Let the gateway answer when the event is set, and not before."""
    answers = asyncio.Event()

    async def script(writer: asyncio.StreamWriter, _: Message) -> None:
        await answers.wait()
        writer.write(raw_answer())

    gateway.script = script
    return answers


async def test_nine_requests_of_one_address_leave_places_to_another(
    make_relay: MakeRelay, gateway: FakeGateway
) -> None:
    answers = hold(gateway)
    relay = await make_relay(clients={"exchanges": 2}, limits={"max_upstream": 8})
    request = raw_request("POST", "/demo", POST, b"x")
    nine = [await relay.connect() for _ in range(9)]
    for _, writer in nine:
        writer.write(request)
    await gateway.arrived(2)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", relay.port, local_addr=("127.0.0.2", 0)
    )
    writer.write(request)
    await gateway.arrived()
    assert len(gateway.requests) == 3
    answers.set()
    assert (await read_message(reader)).status == 200
    # The others had to wait; none was refused.
    assert [(await read_message(each)).status for each, _ in nine] == [200] * 9
    for _, opened in (*nine, (reader, writer)):
        opened.close()


@pytest.mark.parametrize("incremental", [(), ("Incremental: ?1",)])
async def test_a_request_waits_for_its_turn_whole_or_in_pieces(
    make_relay: MakeRelay, gateway: FakeGateway, incremental: tuple[str, ...]
) -> None:
    answers = hold(gateway)
    relay = await make_relay(limits={"max_upstream": 1, "body_timeout_s": 0.2})
    first = asyncio.create_task(relay.post())
    await gateway.arrived()
    reader, writer = await relay.connect()
    fields = (*POST, *incremental, "Content-Length: 4")
    writer.write(
        raw_request("POST", "/demo", fields) + b"abcd"[: 2 if incremental else 4]
    )
    # Longer than content may take: the relay does not read while it waits.
    await asyncio.sleep(0.3)
    writer.write(b"cd" if incremental else b"")
    answers.set()
    assert (await first).status == 200
    assert (await read_message(reader)).status == 200
    assert gateway.requests[-1].body == b"abcd"
    writer.close()
