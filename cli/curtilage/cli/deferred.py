"""``curtilage queue``: the questions queued in the policy's file."""

import asyncio
import time
from collections.abc import Generator
from contextlib import closing, contextmanager

from curtilage.cli.declared import Arguments
from curtilage.cli.provenance import answer_object, provenance_line
from curtilage.cli.start import config_from, session_from
from curtilage.cli.terminal import (
    COULD_NOT,
    DONE,
    REFUSED,
    err,
    out,
    out_json,
    unix_text,
)
from curtilage.client.assemble import queue_of
from curtilage.client.config import ClientConfig
from curtilage.client.errors import UsageError
from curtilage.client.failure_texts import NO_QUEUE
from curtilage.client.queue.deferred import OUT_THERE, Deferred, State
from curtilage.client.queue.deferred_store import DeferredStore
from curtilage.client.queue.deferring import collected


@contextmanager
def _opened(config: ClientConfig) -> Generator[DeferredStore]:
    store = queue_of(config.policy)
    if store is None:
        raise UsageError(NO_QUEUE)
    with closing(store):
        # An empty list would be wrong: the questions are in another process.
        if store.in_memory:
            raise UsageError(
                "the policy's queue is in the memory of `curtilage serve`: see there, "
                "GET /v1/curtilage/queue/TICKET"
            )
        yield store


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def run_list(arguments: Arguments) -> int:
    """List the queued questions, without their texts."""
    with _opened(config_from(arguments)) as store:
        items = store.items(_now_ms())
    if arguments.json:
        out_json([_object(each) for each in items])
        return DONE
    if not items:
        err("nothing is queued")
    for each in items:
        line = "{ticket}  {state}  {class}  {cause}  since {put}  until {until}"
        out(line.format_map(_object(each)))
    return DONE


def _object(item: Deferred) -> dict[str, object]:
    return {
        "ticket": item.ticket,
        "state": item.state.value,
        "class": item.routing_class.value,
        "cause": item.reason,
        "put": unix_text(item.put_ms // 1000),
        "until": unix_text(item.until_ms // 1000),
    }


def run_show(arguments: Arguments) -> int:
    """Print an answer."""
    with _opened(config_from(arguments)) as store:
        answer = collected(store, arguments.ticket, _now_ms())
    if arguments.json:
        out_json(answer_object(answer))
    else:
        err(provenance_line(answer.provenance))
        out(answer.text)
    return DONE


def run_drop(arguments: Arguments) -> int:
    """Delete questions and their answers."""
    tickets: list[str] = arguments.tickets
    # Deleting everything needs its own word: an empty list of tickets may be a fault of
    # a script.
    if tickets and arguments.all:
        raise UsageError("tickets and --all exclude each other")
    if not (tickets or arguments.all):
        raise UsageError("name tickets, or give --all")
    with _opened(config_from(arguments)) as store:
        if arguments.all:
            # By their tickets: a question that is queued in the meantime is kept.
            tickets = [each.ticket for each in store.items(_now_ms())]
        # Each by itself: an unknown ticket must not keep the others from being deleted.
        missing = [each for each in tickets if not store.drop(each)]
    for each in missing:
        err(f"{each}: nothing is queued under this ticket")
    err(f"{len(tickets) - len(missing)} deleted")
    return COULD_NOT if missing else DONE


def run_drain(arguments: Arguments) -> int:
    """Retry all queued questions once."""
    config = config_from(arguments)
    with _opened(config) as store:
        waiting = [
            each for each in store.items(_now_ms()) if each.state is State.WAITING
        ]
    if not waiting:
        err("nothing is queued")
        return DONE
    if config.relay is None and any(each.reason in OUT_THERE for each in waiting):
        # Without a relay, a question that needs an enclave would be refused for good.
        raise UsageError(
            "some questions need an enclave: name the relay, as when they were "
            "asked (--relay, or $CURTILAGE_RELAY)"
        )
    return asyncio.run(_drain(config))


async def _drain(config: ClientConfig) -> int:
    async with session_from(config) as session:
        drained = await session.queue.drain()
    if drained.elsewhere:
        err("another process is retrying them now")
        return COULD_NOT
    err(
        f"{drained.answered} answered, {drained.refused} refused, "
        f"{drained.waiting} still queued"
    )
    # Not done, so that a script retries later.
    if drained.waiting:
        return COULD_NOT
    return REFUSED if drained.refused else DONE
