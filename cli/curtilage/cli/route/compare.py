"""``curtilage route compare``: two models, or two tiers, on one's own questions."""

import argparse
import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Final, Protocol

from curtilage.cli.route.grading import Paired, Question, compared, read_questions
from curtilage.cli.start import config_from, registry, session_from
from curtilage.cli.terminal import (
    DONE,
    REFUSED,
    HowFar,
    err,
    out,
    out_json,
    plural,
    progress,
)
from curtilage.client.answer import AnswerEvent, Delta
from curtilage.client.config import ClientConfig
from curtilage.client.errors import ClientError, ConfigError, UsageError
from curtilage.client.local.model import LocalModel
from curtilage.client.options import Require, RoutingOptions
from curtilage.client.query import Query, Settings, single_query
from curtilage.policy.decision.tiers import Tier, TierKind

TIER: Final = "tier:"
_REQUIRED: Final = {each.kind: each for each in Require}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a side answered.

    Attributes:
        text: the answer.
        first_s: seconds until its first text.
        total_s: seconds until its end.
        tokens: its length.
    """

    text: str = field(repr=False)
    first_s: float
    total_s: float
    tokens: int


class Answers(Protocol):
    """A side, ready to be asked."""

    def __call__(self, query: Query) -> AsyncGenerator[AnswerEvent]:
        """Answer a query.

        Raises:
            ClientError: it does not.
        """
        ...


def run(arguments: argparse.Namespace) -> int:
    """Compare; exit 1 where B is not accepted."""
    questions = read_questions(Path(arguments.data))
    config = config_from(arguments)
    digests = list(arguments.sha256)
    sides = {
        name: _side_of(given, config, digests)
        for name, given in (("A", arguments.a), ("B", arguments.b))
    }
    if digests:
        raise UsageError("--sha256 is for a side that is a GGUF file, once for each")
    settings = Settings(max_tokens=arguments.max_tokens, temperature=0.0)
    replies = {
        # One after the other: two models at once need the memory of both, and would
        # slow each other down.
        name: asyncio.run(_ask_all(f"{name} ({side.name})", side, questions, settings))
        for name, side in sides.items()
    }
    results = results_of(questions, replies["A"], replies["B"])
    whole = results[-1]
    accepted = whole.count > 0 and whole.low * 100 >= -arguments.margin
    if arguments.json:
        out_json(
            {
                "accepted": accepted,
                "margin": arguments.margin,
                "tasks": [asdict(each) for each in results],
                "speed": {name: speed_of(each) for name, each in replies.items()},
            }
        )
        return DONE if accepted else REFUSED
    for line in words_of(results, replies, {k: each.name for k, each in sides.items()}):
        out(line)
    said = "accepted" if accepted else "not accepted"
    out(
        f"B is {said}: it may be worse by {arguments.margin:g} points, and with 95 % "
        f"confidence it is no worse than by {max(0.0, -100 * whole.low):.1f}"
    )
    return DONE if accepted else REFUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One side, not started yet."""

    name: str
    config: ClientConfig
    model: str | None = None
    sha256: str | None = None
    tier: Tier | None = None  # the local model alone, where there is none

    @asynccontextmanager
    async def started(self) -> AsyncGenerator[Answers]:
        """Start it, and stop it at the end."""
        if self.tier is None:
            model = LocalModel.open(
                self.model, sha256=self.sha256, registry=registry()
            )  # fmt: skip
            with progress(f"loading {self.name}"):
                await model.start()
            try:
                yield model.generate
            finally:
                await model.close()
            return
        wanted = self.tier
        options = RoutingOptions(require=_REQUIRED[wanted.kind])
        async with session_from(self.config) as session:

            async def ask(query: Query) -> AsyncGenerator[AnswerEvent]:
                stream = session.stream(replace(query, options=options))
                # Whatever the policy or a failure sends elsewhere is no answer of this
                # tier.
                if (await stream.begin()).tier != wanted.id:
                    raise ConfigError("answered by another tier")
                async for piece in stream:
                    yield piece
                yield stream.answer.finished

            yield ask


def _side_of(given: str, config: ClientConfig, digests: list[str]) -> _Side:
    if not given.startswith(TIER):
        is_file = given.endswith(".gguf") or "/" in given
        if is_file and not digests:
            raise UsageError(f"{given} is used only with its digest: add --sha256 HEX")
        return _Side(
            name=given,
            config=config,
            model=given,
            sha256=digests.pop(0) if is_file else None,
        )
    tiers = {tier.id: tier for tier in config.policy.rulebook.tiering.tiers}
    name = given.removeprefix(TIER)
    if name not in tiers:
        raise UsageError(f"the policy has no tier {name}; it has {', '.join(tiers)}")
    if tiers[name].kind is TierKind.IN_PROCESS:
        # Not through the client, which may find that another tier does better.
        model, sha256 = config.model, config.model_sha256
        return _Side(name=given, config=config, model=model, sha256=sha256)
    return _Side(name=given, config=config, tier=tiers[name])


async def _ask_all(
    title: str, side: _Side, questions: Sequence[Question], settings: Settings
) -> list[Reply | None]:
    replies: list[Reply | None] = []
    why_not = ""
    async with side.started() as answers:
        far = HowFar()
        for number, question in enumerate(questions, start=1):
            query = replace(single_query(question.text), settings=settings)
            try:
                replies.append(await _ask(answers, query))
            except ClientError as error:
                replies.append(None)
                why_not = str(error)
            far.tell(
                f"{title}: {number} of {len(questions)} questions",
                last=number == len(questions),
            )
    if missing := replies.count(None):
        err(f"{title} left {missing} of {len(questions)} unanswered: {why_not}")
    return replies


async def _ask(answers: Answers, query: Query) -> Reply:
    began = monotonic()
    pieces: list[str] = []
    first_s, tokens = None, 0
    async with aclosing(answers(query)) as events:
        async for event in events:
            if isinstance(event, Delta):
                first_s = monotonic() - began if first_s is None else first_s
                pieces.append(event.text)
            else:
                tokens = event.completion_tokens
    total_s = monotonic() - began
    return Reply(
        text="".join(pieces),
        first_s=total_s if first_s is None else first_s,
        total_s=total_s,
        tokens=tokens,
    )


def results_of(
    questions: Sequence[Question],
    a: Sequence[Reply | None],
    b: Sequence[Reply | None],
) -> list[Paired]:
    """Compare by task, in the file's order, and all of it last.

    What one side left unanswered is left out of both: nobody knows what it would have
    been, and what the policy keeps home says nothing of an enclave.
    """
    tasks: dict[str, list[tuple[bool, bool]]] = {}
    for question, one, other in zip(questions, a, b, strict=True):
        pairs = tasks.setdefault(question.task, [])
        if one is not None and other is not None:
            expected = question.expected
            pairs.append((expected.met_by(one.text), expected.met_by(other.text)))
    every = [pair for pairs in tasks.values() for pair in pairs]
    results = [compared(task, pairs) for task, pairs in tasks.items()]
    return [*(results if len(tasks) > 1 else []), compared("all of it", every)]


def speed_of(replies: Sequence[Reply | None]) -> dict[str, float] | None:
    """Return medians: seconds to the first text, tokens a second behind it."""
    there = [each for each in replies if each is not None]
    if not there:
        return None
    speeds = [
        (each.tokens - 1) / (each.total_s - each.first_s)
        for each in there
        if each.tokens > 1 and each.total_s > each.first_s
    ]
    return {
        "first_s": median(each.first_s for each in there),
        "total_s": median(each.total_s for each in there),
        "tokens_per_s": median(speeds) if speeds else 0.0,
    }


def words_of(
    results: Sequence[Paired],
    replies: Mapping[str, Sequence[Reply | None]],
    names: Mapping[str, str],
) -> Iterator[str]:
    """Yield the comparison in lines."""
    wide = max(len(each.task) for each in results)
    for each in results:
        if not each.count:
            yield f"{each.task:<{wide}}  no question that both answered"
            continue
        yield (
            f"{each.task:<{wide}}  {each.count:4} {plural(each.count, 'question')}: "
            f"A {each.a / each.count:.1%}, B {each.b / each.count:.1%}; "
            f"difference {100 * each.difference:+.1f} points "
            f"({100 * each.low:+.1f} to {100 * each.high:+.1f}; p = {each.p_value:.2g})"
        )
    for side, answers in replies.items():
        speed = speed_of(answers)
        if speed is not None:
            yield (
                f"{side} ({names[side]}): first text after {speed['first_s']:.2f} s, "
                f"{speed['tokens_per_s']:.0f} tokens a second (medians)"
            )
