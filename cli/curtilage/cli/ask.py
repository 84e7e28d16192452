"""``curtilage ask``: one question, answered where the policy permits."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack, aclosing
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import BinaryIO, Final

from curtilage.cli.ask_lines import (
    Question,
    Results,
    Tally,
    ask_lines,
    read_questions,
    results,
)
from curtilage.cli.options import text_from
from curtilage.cli.provenance import (
    answer_object,
    provenance_line,
    warnings_of,
    was_cut,
)
from curtilage.cli.start import config_from, session_from
from curtilage.cli.terminal import (
    COULD_NOT,
    DONE,
    REFUSED,
    err,
    err_again,
    out,
    out_bytes,
    out_json,
    plural,
)
from curtilage.client.answer import (
    Delta,
    Phase,
    Progress,
)
from curtilage.client.answering.answer_stream import AnswerStream
from curtilage.client.audit.export import new_file
from curtilage.client.audit.recorder import SaveTranscript
from curtilage.client.config import ClientConfig
from curtilage.client.consent import Outbound, Stays
from curtilage.client.conversation.excerpt import BOUNDARY
from curtilage.client.errors import (
    ClientError,
    ConfigError,
    UsageError,
)
from curtilage.client.files import open_named, read_text
from curtilage.client.openai_chat import MAX_REQUEST_BYTES, query_from
from curtilage.client.query import Query
from curtilage.client.receipt import Transcript

WAITING: Final = {
    Phase.CLASSIFYING: "looking at what the question holds",
    Phase.ASKING_HERE: "the local model is at work",
    Phase.ASKING_ON_PREMISES: "the on-premises server is at work",
    Phase.ASKING_ENCLAVE: "the enclave is at work",
    Phase.CHECKING: "the local model's draft is being judged",
    Phase.WAITING: "whoever was asked is busy, and will be asked again",
}
"""What is waited for, where that takes longer than a second."""
NAMED: Final = (
    *("max_tokens", "temperature", "seed"),
    *("require", "mode", "floor", "preset"),
)
PARALLEL: Final = 4
"""So many questions of a file are asked side by side, if nobody says."""


def run(arguments: argparse.Namespace) -> int:
    """Answer."""
    if arguments.jsonl is not None:
        return asyncio.run(_ask_lines(arguments))
    if arguments.out is not None or arguments.parallel is not None:
        raise UsageError("--out and --parallel are of --jsonl")
    turns = [{"role": "user", "content": text_from(arguments.text)}]
    if system := _system(arguments):
        turns.insert(0, {"role": "system", "content": system})
    options = {name: getattr(arguments, name) for name in (*NAMED, "defer")}
    query = query_from(turns, options, stream=not arguments.json)
    save_transcript = None if arguments.keep is None else keeping(Path(arguments.keep))
    config = config_from(arguments)
    plan = config.policy.routing
    if query.options.defer and plan is not None and plan.queue.store == "memory":
        raise UsageError(
            "--defer: the policy's queue is in memory, which ends with this command; "
            "it has to be in a file (routing.queue)"
        )
    if arguments.show_outbound:
        return asyncio.run(_show_outbound(config, query, as_json=arguments.json))
    asyncio.run(_ask(config, query, save_transcript, as_json=arguments.json))
    return DONE


def _system(arguments: argparse.Namespace) -> str | None:
    system: str | None = arguments.system
    if arguments.system_file is None:
        return system or None
    if system:
        raise UsageError("--system and --system-file are two messages: give one")
    return read_text(Path(arguments.system_file), MAX_REQUEST_BYTES) or None


async def _ask_lines(arguments: argparse.Namespace) -> int:
    alone = ("text", "json", "show_outbound", "keep", "defer")
    if arguments.out is None or any(getattr(arguments, each) for each in alone):
        raise UsageError(
            "--jsonl FILE goes with --out FILE, and without a text, --json, "
            "--show-outbound, --keep or --defer"
        )
    usual = {name: getattr(arguments, name) for name in NAMED}
    # Nobody sits before it; who does says so.
    usual["preset"] = usual["preset"] or "batch"
    with ExitStack() as opened:
        file: BinaryIO = sys.stdin.buffer
        if arguments.jsonl != "-":
            file = opened.enter_context(open_named(Path(arguments.jsonl)))
        # All of them, before the detectors are started: an error is told at once.
        questions = tuple(read_questions(file, usual, system=_system(arguments)))
    config = config_from(arguments)
    with results(Path(arguments.out)) as lines:
        known = [lines.known[each.id] for each in questions if each.id in lines.known]
        before, refused = len(known), sum(known)
        if before:
            also = f", {refused} of them refused" if refused else ""
            err(f"{before} of {len(questions)} have a line already{also}")
        if before == len(questions):
            return REFUSED if refused else DONE
        tally = await _asked(
            config, questions, lines, parallel=arguments.parallel or PARALLEL
        )
    err(f"[{tally.told()}]")
    if tally.failed:
        err("ask the rest with the same command")
        return COULD_NOT
    return REFUSED if tally.refused or refused else DONE


async def _asked(
    config: ClientConfig,
    questions: Sequence[Question],
    lines: Results,
    *,
    parallel: int,
) -> Tally:
    shown = sys.stderr.isatty()

    def told(tally: Tally) -> None:
        if shown:
            err_again(f"{tally.done} of {tally.asked}: {tally.told()}")

    interrupted = False
    try:
        async with session_from(config, spare=True) as session:
            return await ask_lines(
                questions, session.ask, lines, parallel=parallel, told=told
            )
    except asyncio.CancelledError:
        # Ctrl-C; what was answered until then has its line.
        interrupted = True
        raise
    finally:
        if shown:
            err("")
        if interrupted:
            err("interrupted: the same command goes on where this one ended")


def keeping(directory: Path) -> SaveTranscript:
    """Return what writes an exchange to two new files of a directory, 0600.

    Raises:
        ConfigError: there is no such directory.
    """
    if not directory.is_dir():
        raise ConfigError(f"{directory}: no such directory")

    def keep(query: str, transcript: Transcript) -> None:
        parts = {"question": transcript.question, "answer": bytes(transcript.answer)}
        try:
            for name, content in parts.items():
                with new_file(directory / f"{query}.{name}") as file:
                    file.write(content)
        except (ClientError, OSError) as failure:
            # Told and not raised: the answer is there, and its record as well.
            err(f"not kept: {failure}")
        else:
            err(f"kept as {directory / query}.question and .answer")

    return keep


async def _ask(
    config: ClientConfig,
    query: Query,
    save_transcript: SaveTranscript | None,
    *,
    as_json: bool,
) -> None:
    async with session_from(
        config, save_transcript=save_transcript, consents=consents_at_terminal
    ) as session:
        if as_json:
            out_json(answer_object(await session.ask(query)))
            return
        await show(session.stream(query), query.settings.max_tokens)


async def show(stream: AnswerStream, max_tokens: int) -> None:
    """Write an answer as it comes: who gives it first, and what is waited for."""
    started, first_s, waited = monotonic(), 0.0, set[Phase]()
    # What was written cannot be taken back, so text waits until it is settled.
    async with aclosing(stream.events(retract=False)) as events:
        async for event in events:
            if isinstance(event, Progress):
                if event.phase not in waited and not first_s:
                    err(f"[{WAITING[event.phase]} …]")
                waited.add(event.phase)
                continue
            if not first_s:
                # Who answers is told before a word of the answer.
                first_s = monotonic() - started
                err(provenance_line(stream.provenance))
            if isinstance(event, Delta):
                out(event.text, end="")
    out("")
    tokens = stream.answer.finished.completion_tokens
    for line in warnings_of(stream.answer):
        err(line)
    cut = ""
    if was_cut(stream.answer, max_tokens):
        cut = "; the answer was CUT at its limit of tokens: --max-tokens sets another"
    err(
        f"[{tokens} {plural(tokens, 'token')}, "
        f"first after {first_s:.2f} s, all after {monotonic() - started:.2f} s{cut}]"
    )


async def _show_outbound(config: ClientConfig, query: Query, *, as_json: bool) -> int:
    async with session_from(config) as session:
        shown = await session.outbound(query)
    if isinstance(shown, Stays):
        if as_json:
            out_json({"leaves": False, **asdict(shown)})
        else:
            why = f"; {BOUNDARY[shown.boundary]}" if shown.boundary else ""
            err(f"[nothing would leave; rule {shown.rule}: {shown.reason}{why}]")
        return REFUSED
    if as_json:
        out_json(shown.value())
        return DONE
    err(outbound_lines(shown))
    # Nothing else goes to that stream: what a program reads there is what is sealed.
    out_bytes(shown.payload)
    err("")
    return DONE


def outbound_lines(shown: Outbound) -> str:
    """Say for people what would leave, turn by turn, and for whom."""
    body = json.loads(shown.payload)
    turns = [f"  {each['role']}: {each['content']}" for each in body.pop("messages")]
    rest = ", ".join(f"{name} {json.dumps(value)}" for name, value in body.items())
    said = f"would leave, as {shown.routing_class}, sealed for {shown.tier}"
    if shown.deidentified:
        many = sum(count for _, count in shown.deidentified)
        said += f"; {many} as pseudonyms only"
    if shown.boundary:
        said += f"; {BOUNDARY[shown.boundary]}"
    who = f"{shown.release}, evidence {shown.evidence}, verdict {shown.verdict_id}"
    digest = shown.payload_digest.hex()
    octets = f"[the {len(shown.payload)} octets themselves, SHA-256 {digest}:]"
    return "\n".join((f"[{said}]", f"[read by {who}]", *turns, f"  {rest}", octets))


async def consents_at_terminal(shown: Outbound) -> bool:
    """Show a person what would leave, and ask; where nobody sits, it stays."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    err(outbound_lines(shown))
    err(shown.payload.decode())
    err("May this leave? [y/N] ", end="")
    said = await asyncio.to_thread(sys.stdin.readline)
    return said.strip().lower() in {"y", "yes"}
