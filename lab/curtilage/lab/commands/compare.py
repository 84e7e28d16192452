"""``curtilage route compare``: compares two models or tiers on your own questions."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Final, Protocol

from curtilage.cli.declared import Arguments
from curtilage.cli.start import config_from, session_from
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
from curtilage.client.audit.export import new_file, refuse_taken
from curtilage.client.chat.answer import AnswerEvent, Delta
from curtilage.client.chat.options import Require, RoutingOptions
from curtilage.client.chat.query import Query, Settings, single_query
from curtilage.client.config import ClientConfig
from curtilage.client.errors import ClientError, ConfigError, UsageError
from curtilage.client.local.model import LocalModel, ModelChoice, resolve
from curtilage.client.local.registry.store import Registry
from curtilage.lab.commands.begun_file import Begun, begun
from curtilage.lab.commands.graded_file import open_line, pair_line
from curtilage.lab.commands.grading import (
    Asked,
    Paired,
    Question,
    compared,
    read_asked,
    read_questions,
)
from curtilage.policy.decision.tiers import Tier, TierKind

TIER: Final = "tier:"
_REQUIRED: Final = {each.kind: each for each in Require}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer of a side.

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
    """A started side, which answers queries."""

    def __call__(self, query: Query) -> AsyncGenerator[AnswerEvent]:
        """Answer a query.

        Raises:
            ClientError: it cannot answer.
        """
        ...


def run(arguments: Arguments) -> int:
    """Compare two sides; exit 1 if B is not accepted."""
    path = None if arguments.out is None else Path(arguments.out)
    refuse_taken(path)
    asked: Sequence[Asked | Question]
    asked = (read_questions if path is None else read_asked)(Path(arguments.data))
    config = config_from(arguments)
    digests = list(arguments.sha256)
    sides = {
        name: _side_of(given, config, digests)
        for name, given in (("A", arguments.a), ("B", arguments.b))
    }
    if digests:
        raise UsageError("--sha256 is for a side that is a GGUF file, once for each")
    settings = Settings(max_tokens=arguments.max_tokens, temperature=0.0)
    replies, pairs = _answered(path, sides, asked, settings)
    results = results_of(asked, replies["A"], replies["B"])
    whole = results[-1]
    accepted = whole.count > 0 and whole.low * 100 >= -arguments.margin
    # If a person grades everything, the pairs to grade are the wanted result.
    by_hand = pairs is not None and pairs.open > 0 and not whole.count
    status = DONE if accepted or by_hand else REFUSED
    if arguments.json:
        out_json(
            {
                "accepted": accepted,
                "pairs": None if pairs is None else asdict(pairs),
                "margin": arguments.margin,
                "tasks": [asdict(each) for each in results],
                "speed": {name: speed_of(each) for name, each in replies.items()},
            }
        )
        return status
    for line in words_of(results, replies, {k: each.name for k, each in sides.items()}):
        out(line)
    if not by_hand:
        said = "accepted" if accepted else "not accepted"
        out(
            f"B is {said}: it may be worse by {arguments.margin:g} points, and with 95 "
            f"% confidence it is no worse than by {max(0.0, -100 * whole.low):.1f}"
        )
    if pairs is not None:
        out(f"{pairs.graded} graded {plural(pairs.graded, 'pair')} written to {path}")
        if pairs.open:
            out(
                f"{pairs.open} more have both answers: give each `weak` and `strong` "
                "there, from 0 to 1, then calibrate"
            )
    return status


def _answered(
    path: Path | None,
    sides: "Mapping[str, _Side]",
    asked: Sequence[Asked | Question],
    settings: Settings,
) -> "tuple[dict[str, list[Reply | None]], Pairs | None]":
    """Ask both sides, and write the pairs if a file is wanted.

    The sides run one after the other: two models at once need the memory of both, and
    slow each other down.
    """
    if path is None:
        return {
            name: asyncio.run(_ask_all(name, side, asked, settings, None))
            for name, side in sides.items()
        }, None
    how = {
        "max_tokens": settings.max_tokens,
        **{name: side.identity for name, side in sides.items()},
    }
    with begun(path, how, _kept_of, lambda kept: (kept.side, kept.text)) as before:
        replies = {
            name: asyncio.run(_ask_all(name, side, asked, settings, before))
            for name, side in sides.items()
        }
        pairs = written_pairs(path, asked, replies)
        before.remove()
    return replies, pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """A reply from an interrupted run.

    Attributes:
        side: ``A`` or ``B``.
        text: the question.
        reply: the answer.
    """

    side: str
    text: str = field(repr=False)
    reply: Reply


def _kept_line(kept: _Kept) -> bytes:
    row = {"side": kept.side, "question": kept.text, **asdict(kept.reply)}
    return json.dumps(row).encode() + b"\n"


def _kept_of(value: dict[str, object]) -> _Kept | None:
    match value:
        case {
            "side": str() as side,
            "question": str() as question,
            "text": str() as text,
            "first_s": float() as first_s,
            "total_s": float() as total_s,
            "tokens": int() as tokens,
        }:
            reply = Reply(text=text, first_s=first_s, total_s=total_s, tokens=tokens)
            return _Kept(side=side, text=question, reply=reply)
        case _:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Counts of the written questions that both sides answered.

    Attributes:
        graded: automatically, by the expected answer.
        open: to be graded by a person.
    """

    graded: int
    open: int


def written_pairs(
    path: Path,
    asked: Sequence[Asked | Question],
    replies: Mapping[str, Sequence[Reply | None]],
) -> Pairs:
    """Write the pairs; A is the weak side and B the strong one."""
    graded = left = 0
    with new_file(path) as file:
        for each, weak, strong in zip(asked, replies["A"], replies["B"], strict=True):
            if weak is None or strong is None:
                continue
            if each.expected is None:
                left += 1
                file.write(
                    open_line(
                        each.text, weak_answer=weak.text, strong_answer=strong.text
                    )
                )
                continue
            graded += 1
            right = [each.expected.met_by(side.text) for side in (weak, strong)]
            file.write(
                pair_line(each.text, weak=float(right[0]), strong=float(right[1]))
            )
    return Pairs(graded=graded, open=left)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One side before it is started."""

    name: str
    config: ClientConfig
    answers: Tier | ModelChoice

    @property
    def identity(self) -> list[str]:
        """Return what determines its answers, as far as known before it starts."""
        if isinstance(self.answers, Tier):
            return [self.name, self.config.policy.digest]
        # The name may refer to another file by the time an interrupted run continues.
        return [self.name, self.answers.sha256, self.answers.adapter_sha256]

    @asynccontextmanager
    async def started(self) -> AsyncGenerator[Answers]:
        """Start the side, and stop it at the end."""
        wanted = self.answers
        if isinstance(wanted, ModelChoice):
            model = LocalModel.of(wanted)
            with progress(f"loading {self.name}"):
                await model.start()
            try:
                yield model.generate
            finally:
                await model.close()
            return
        options = RoutingOptions(require=_REQUIRED[wanted.kind])
        async with session_from(self.config) as session:

            async def ask(query: Query) -> AsyncGenerator[AnswerEvent]:
                stream = session.stream(replace(query, options=options))
                # If the policy or a failure routes the query elsewhere, it is not this
                # tier's answer.
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
        sha256 = digests.pop(0) if is_file else None
        chosen = resolve(given, sha256=sha256, registry=Registry())
        return _Side(name=given, config=config, answers=chosen)
    tiers = {tier.id: tier for tier in config.policy.rulebook.tiering.tiers}
    name = given.removeprefix(TIER)
    if name not in tiers:
        raise UsageError(f"the policy has no tier {name}; it has {', '.join(tiers)}")
    if tiers[name].kind is TierKind.IN_PROCESS:
        # Not through the client, which might prefer another tier.
        chosen = resolve(config.model, sha256=config.model_sha256, registry=Registry())
        return _Side(name=given, config=config, answers=chosen)
    return _Side(name=given, config=config, answers=tiers[name])


async def _ask_all(
    name: str,
    side: _Side,
    questions: Sequence[Asked | Question],
    settings: Settings,
    before: Begun[_Kept] | None,
) -> list[Reply | None]:
    """Ask a side the questions that an earlier run has not asked."""
    kept = [
        None if before is None else before.take((name, each.text)) for each in questions
    ]
    replies = [None if each is None else each.reply for each in kept]
    if None not in replies:
        return replies
    title, why_not = f"{name} ({side.name})", ""
    async with side.started() as answers:
        far = HowFar(logged=True)
        for at, question in enumerate(questions):
            query = replace(single_query(question.text), settings=settings)
            if replies[at] is None:
                try:
                    reply = await _ask(answers, query)
                except ClientError as error:
                    why_not = str(error)
                else:
                    replies[at] = reply
                    row = _Kept(side=name, text=question.text, reply=reply)
                    if before is not None:
                        before.append(_kept_line(row))
            far.show(
                f"{title}: {at + 1} of {len(questions)} questions",
                last=at + 1 == len(questions),
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
    questions: Sequence[Asked | Question],
    a: Sequence[Reply | None],
    b: Sequence[Reply | None],
) -> list[Paired]:
    """Compare the sides by task in the file's order; all questions together come last.

    A question that one side left unanswered is excluded for both, since that answer is
    unknown, and a query that the policy keeps local says nothing about an enclave.
    Questions for a person to grade are excluded, too.
    """
    tasks: dict[str, list[tuple[bool, bool]]] = {}
    for question, one, other in zip(questions, a, b, strict=True):
        expected = question.expected
        if expected is None:
            continue
        pairs = tasks.setdefault(question.task, [])
        if one is not None and other is not None:
            pairs.append((expected.met_by(one.text), expected.met_by(other.text)))
    every = [pair for pairs in tasks.values() for pair in pairs]
    results = [compared(task, pairs) for task, pairs in tasks.items()]
    return [*(results if len(tasks) > 1 else []), compared("all of it", every)]


def speed_of(replies: Sequence[Reply | None]) -> dict[str, float] | None:
    """Return medians: seconds to the first text, and tokens a second after it."""
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
    """Yield the comparison as lines of text."""
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
