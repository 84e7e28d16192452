"""The service that a normal client still gets while others attack.

Real processes on loopback, each client at its own address. The victim sends questions
at a steady pace; meanwhile others try to take the model, or every place: nine questions
at a time from one address, each with an answer of maximum length, or with a long
prompt, or to be answered alone (``deterministic``), and 24 dummies of the longest
bucket from each of two addresses. A refused request is repeated at once.

The engine is a script, since speed is not measured, and every time is a tenth of the
shipped one: frames, buckets, turns, the wait for a place, the victim's pace. The
attacker's answers never end by themselves, as on a slow machine. The script takes turns
as the engine does, also while it reads, and writes nothing alone: what the engine's
planner leaves to a short question beside long prompts and ``deterministic`` requests,
tests/inference/test_sharing.py shows. ``make bench ARGS="starve --shipped"`` does the
same with everything as shipped, including the embedded model, in half an hour.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from benchmarks.report import Table, quantile
from curtilage.enclave_server.config import Limits
from curtilage.inference.settings import DEFAULTS
from curtilage.relay.config import Limits as RelayLimits
from curtilage.wire.shaping import PADDED, TransportParameters
from curtilage_dev.crowd import (
    STORY_WORDS,
    Crowd,
    dummy,
    exact_story,
    long_prompt,
    question,
    story,
)
from curtilage_dev.processes import Processes
from curtilage_dev.scripted_enclave import Play
from curtilage_dev.stack import Stack

QUESTIONS: Final = 20
EVERY_S: Final = 12.0
"""From one question of the victim to the next."""
WORDS: Final = 50
"""Of the victim's answer."""
WORD_S: Final = 0.04
READ_S: Final = 0.0015
"""For each character of a prompt: 30 s for a long one."""
VICTIM: Final = "127.0.0.9"
LEAST: Final = 0.9
COLUMNS: Final = ("attack", "asked", "answered", "of those alone", "median, s", "worst")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """By how much time is shortened.

    Attributes:
        factor: of every time.
        transport: whose longest answer takes as much less.
    """

    factor: float
    transport: TransportParameters


TENTH: Final = Scale(
    factor=0.1, transport=TransportParameters(period_ms=40, first_bucket=8)
)
SHIPPED: Final = Scale(factor=1.0, transport=PADDED)


@dataclass(frozen=True, slots=True)
class Attack:
    """The simultaneous load of an attack.

    Attributes:
        streams: addresses, each with nine questions that are answered for long.
        prompts: addresses, each with nine questions that are read for long.
        exact: addresses, each with nine long answers that are written alone.
        dummies: addresses, each with 24 dummies of the longest bucket.
    """

    streams: Sequence[str] = ()
    prompts: Sequence[str] = ()
    exact: Sequence[str] = ()
    dummies: Sequence[str] = ()


ATTACKS: Final[Mapping[str, Attack]] = {
    "none": Attack(),
    "9 long stories, 1 address": Attack(streams=["127.0.0.2"]),
    "9 long prompts, 1 address": Attack(prompts=["127.0.0.2"]),
    "9 deterministic stories, 1 address": Attack(exact=["127.0.0.2"]),
    "24 dummies, 2 addresses each": Attack(dummies=["127.0.0.3", "127.0.0.4"]),
    "stories, prompts and dummies": Attack(
        streams=["127.0.0.2"],
        prompts=["127.0.0.5"],
        dummies=["127.0.0.3", "127.0.0.4"],
    ),
}


@dataclass(slots=True)
class Outcome:
    """The victim's answers.

    Attributes:
        asked: questions.
        times_s: of each answer, to its end.
    """

    asked: int = 0
    times_s: list[float] = field(default_factory=list[float])


def measure_starve(folder: Path, *, shipped: bool = False) -> list[Table]:
    """Measure each attack after the other, and the victim alone.

    Args:
        folder: for the processes.
        shipped: with the embedded model and the shipped times.
    """
    scale = SHIPPED if shipped else TENTH
    return [_table(_outcomes(folder, scale), scale)]


def _outcomes(folder: Path, scale: Scale) -> Mapping[str, Outcome]:
    with Processes(folder) as processes:
        stack = _stack(folder, processes, scale)
        return {
            name: asyncio.run(_measure(stack, attack, scale))
            for name, attack in ATTACKS.items()
        }


def _stack(folder: Path, processes: Processes, scale: Scale) -> Stack:
    wait_s = RelayLimits().place_wait_s * scale.factor
    stack = Stack(
        folder=folder,
        processes=processes,
        record=False,
        play=_play(scale) if scale is TENTH else None,
        transport=scale.transport,
        relay_extra=f"[limits]\nplace_wait_s = {wait_s}\n",
    )
    stack.start_evidence()
    stack.publish()
    stack.start_enclave()
    stack.start_relay()
    return stack


def _play(scale: Scale) -> Play:
    return Play(
        # More than the longest answer has time for.
        pieces=10 * STORY_WORDS,
        delay_ms=round(1000 * WORD_S * scale.factor),
        read_us=round(1e6 * READ_S * scale.factor),
        turn_ms=round(1000 * DEFAULTS.turn_s * scale.factor),
        queue=Limits().max_queue,
        # As shipped.
        sequences=4,
    )


async def _measure(stack: Stack, attack: Attack, scale: Scale) -> Outcome:
    crowd = await asyncio.to_thread(Crowd, stack)
    longest = dummy(scale.transport.buckets - 1)
    outcome = Outcome(asked=QUESTIONS)

    async def ask(number: int) -> None:
        # At its own pace, whatever happened to the previous question.
        await asyncio.sleep((1 + number) * EVERY_S * scale.factor)
        began = monotonic()
        with suppress(OSError, EOFError):
            if await crowd.ask(VICTIM, question(WORDS)):
                outcome.times_s.append(monotonic() - began)

    async with crowd.asking(
        [
            *((address, story()) for address in attack.streams for _ in range(9)),
            *((address, long_prompt()) for address in attack.prompts for _ in range(9)),
            *((address, exact_story()) for address in attack.exact for _ in range(9)),
            *((address, longest) for address in attack.dummies for _ in range(24)),
        ]
    ):
        await asyncio.gather(*(ask(number) for number in range(QUESTIONS)))
    return outcome


def _table(outcomes: Mapping[str, Outcome], scale: Scale) -> Table:
    alone = len(outcomes["none"].times_s)
    rows: list[tuple[str | float, ...]] = []
    for name, outcome in outcomes.items():
        times_s = [each / scale.factor for each in outcome.times_s]
        answered = len(times_s)
        rows.append(
            (
                name,
                str(outcome.asked),
                str(answered),
                f"{answered / max(alone, 1):.0%}",
                quantile(times_s, 0.5) if times_s else "-",
                max(times_s) if times_s else "-",
            )
        )
    kept = _kept(outcomes)
    return Table(
        title=f"a victim that asks every {EVERY_S:.0f} s, under attack",
        columns=COLUMNS,
        rows=tuple(rows),
        note=f"times as shipped (measured x {1 / scale.factor:.0f}); "
        f"{LEAST:.0%} of the answers {'kept' if kept else 'NOT KEPT'}",
        kept=kept,
    )


def _kept(outcomes: Mapping[str, Outcome]) -> bool:
    alone = len(outcomes["none"].times_s)
    answers = [len(each.times_s) for each in outcomes.values()]
    return alone > 0 and min(answers) >= LEAST * alone
