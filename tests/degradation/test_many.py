"""Many at once, in one process: no storm at a dead enclave, no character lost."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from random import Random

from end_to_end.conftest import patient_profile

from curtilage.cli.deploy.sections import unrouted
from curtilage.client.chat.answer import (
    Answerer,
    AnswerEvent,
    Delta,
    Finished,
    Retract,
)
from curtilage.client.chat.options import Mode, RoutingOptions
from curtilage.client.chat.query import Message, Query
from curtilage.client.errors import (
    ClientError,
    EnclaveError,
    OnPremisesUnavailableError,
)
from curtilage.client.on_premises.reasons import OnPremisesFailure
from curtilage.client.parts import ClientParts, OnPremises
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.routing.estimate import RulesEstimator
from curtilage.client.routing.router import Router
from curtilage.client.session import Session
from curtilage.policy.decision.permit import OnPremisesPermit
from curtilage.policy.document.load import load_policy
from curtilage.policy.document.model import Policy
from support.client_parts import MemoryTrail, ScriptedInspector, ScriptedLocal
from support.memory_enclave import Clock, MemoryEnclave, key_store

CLIENTS = 200
QUESTIONS = 5
HOME = ("Written ", "at ", "home", ".")
AFAR = ("Far ", "", "away ", "a ", "question ", "is ", "answered", ".", " Once", ".")
ANSWERS = 10_000
TIERS = """
routing:
  tiers:
  - {id: device, kind: in_process}
  - {id: enclave, kind: attested}
"""
ON_PREMISES = """
routing:
  tiers:
  - id: ward
    kind: on_premises
    address: unix:/run/ward.sock
    model: large
    priors: {quality_permille: 1000}
  - {id: device, kind: in_process}
"""
QUESTION = Query(
    messages=(Message(role="user", content="What is a virus?"),), stream=True
)
ABROAD = replace(QUESTION, options=RoutingOptions(mode=Mode.ENCLAVE_IF_ALLOWED))


def policy_of(section: str) -> Policy:
    return load_policy(unrouted(patient_profile()) + section)


class CutOnPremises:
    """Writes some pieces of an answer, then breaks off."""

    model_id = "cut"
    digest = bytes(32)
    pieces = 0

    async def generate(
        self, permit: OnPremisesPermit, query: Query
    ) -> AsyncGenerator[AnswerEvent]:
        del permit, query
        for piece in AFAR[: self.pieces]:
            yield Delta(text=piece)
        if self.pieces < len(AFAR):
            raise OnPremisesUnavailableError(OnPremisesFailure.ANSWER_INCOMPLETE)
        yield Finished(finish_reason="stop", prompt_tokens=1, completion_tokens=1)

    async def close(self) -> None:
        """Close nothing."""


def client(
    policy: Policy,
    enclave: MemoryEnclave,
    clock: list[float],
    servers: Mapping[str, OnPremises],
) -> Session:
    assert policy.routing is not None
    return Session(
        ClientParts(
            policy=policy,
            inspector=ScriptedInspector(),
            local=ScriptedLocal(HOME),
            transport=enclave,
            keys=key_store(policy=policy),
            audit=MemoryTrail(),
            clock=Clock(),
            on_premises=servers,
            router=Router(policy.routing, RulesEstimator(), clock=lambda: clock[0]),
        )
    )


async def test_200_clients_do_not_storm_a_dead_enclave() -> None:
    """Each detects it once, and retries once in half a minute."""
    enclave, clock = MemoryEnclave(), [0.0]
    enclave.fetch_fails = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
    policy = policy_of(TIERS)
    sessions = [client(policy, enclave, clock, {}) for _ in range(CLIENTS)]

    async def ask(session: Session) -> None:
        for _ in range(QUESTIONS):
            answer = await session.ask(ABROAD)
            assert answer.route is Answerer.LOCAL
            assert answer.provenance.fallback is EnclaveFailure.RELAY_UNREACHABLE

    await asyncio.gather(*map(ask, sessions))
    assert enclave.fetched == CLIENTS
    assert enclave.sealed == []
    # A minute later: one fetch each in parallel, and no question waits for it.
    clock[0] = 31.0
    await asyncio.gather(*map(ask, sessions))
    await asyncio.gather(*(session.settle() for session in sessions))
    assert enclave.fetched <= 2 * CLIENTS
    for session in sessions:
        await session.close()


async def read(session: Session, *, retract: bool) -> tuple[str, str | None]:
    """Return a reader's final text, and the answer's, if it is complete."""
    stream = session.stream(QUESTION)
    shown = ""
    try:
        async with aclosing(stream.events(retract=retract)) as events:
            async for event in events:
                match event:
                    case Delta():
                        shown += event.text
                    case Retract():
                        shown = shown[: event.from_char]
                    case _:
                        pass
    except ClientError:
        return shown, None
    return shown, stream.answer.text


async def test_of_10_000_answers_cut_anywhere_no_character_is_lost_or_doubled() -> None:
    """Half of the readers can withdraw what they showed; the others cannot."""
    random, ward, clock = Random(7), CutOnPremises(), [0.0]  # noqa: S311
    servers: dict[str, OnPremises] = {"ward": lambda _desk, _now: ward}
    session = client(policy_of(ON_PREMISES), MemoryEnclave(), clock, servers)
    left = 0
    for at in range(ANSWERS):
        clock[0] += 61  # a server that failed is tried again
        ward.pieces = random.randrange(len(AFAR) + 1)
        shown, answer = await read(session, retract=bool(at % 2))
        afar = "".join(AFAR)
        if answer is None:
            # Never as a whole one; and what was shown is what had been written.
            assert not at % 2
            assert shown == "".join(AFAR[: ward.pieces])
            left += 1
        elif ward.pieces == len(AFAR):
            assert shown == answer == afar
        else:
            assert shown == answer == "".join(HOME)
    assert left > ANSWERS // 4
    await session.close()
