"""``curtilage ask``: one question, answered where the policy permits."""

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
from curtilage.cli.declared import Arguments
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
from curtilage.client.answering.answer_stream import AnswerStream
from curtilage.client.audit.export import new_file
from curtilage.client.audit.recorder import SaveTranscript
from curtilage.client.chat.answer import Delta, Phase, Progress
from curtilage.client.chat.openai_chat import MAX_REQUEST_BYTES, query_from
from curtilage.client.chat.query import Query
from curtilage.client.chat.receipt import Transcript
from curtilage.client.config import ClientConfig
from curtilage.client.consent import Outbound, Stays
from curtilage.client.conversation.excerpt import BOUNDARY
from curtilage.client.errors import ClientError, ConfigError, UsageError
from curtilage.client.system.files import open_named, read_text

WAITING: Final = {
    Phase.CLASSIFYING: "classifying the question",
    Phase.ASKING_HERE: "waiting for the local model",
    Phase.ASKING_ON_PREMISES: "waiting for the on-premises server",
    Phase.ASKING_ENCLAVE: "waiting for the enclave",
    Phase.CHECKING: "checking the local model's draft",
    Phase.WAITING: "busy; will be retried",
}
"""Progress message for each phase, shown after a second."""
NAMED: Final = (
    *("max_tokens", "temperature", "seed"),
    *("require", "mode", "floor", "preset"),
)
PARALLEL: Final = 4
"""Default for ``--parallel``."""


def run(arguments: Arguments) -> int:
    """Answer."""
    if arguments.jsonl is not None:
        return asyncio.run(_ask_lines(arguments))
    if arguments.out is not None or arguments.parallel is not None:
        raise UsageError("--out and --parallel need --jsonl")
    turns = [{"role": "user", "content": text_from(arguments.text)}]
    if system := _system(arguments):
        turns.insert(0, {"role": "system", "content": system})
    options = {name: getattr(arguments, name) for name in (*NAMED, "defer")}
    query = query_from(turns, options, stream=not arguments.json)
    # Before the client starts: a missing directory must not be found after the question
    # was sent.
    save_transcript = None if arguments.keep is None else keeping(Path(arguments.keep))
    config = config_from(arguments)
    plan = config.policy.routing
    if query.options.defer and plan is not None and plan.queue.store == "memory":
        raise UsageError(
            "--defer: the policy's queue is in memory, which ends with this command; "
            "use a file (routing.queue)"
        )
    if arguments.show_outbound:
        return asyncio.run(_show_outbound(config, query, as_json=arguments.json))
    asyncio.run(_ask(config, query, save_transcript, as_json=arguments.json))
    return DONE


def _system(arguments: Arguments) -> str | None:
    system: str | None = arguments.system
    if arguments.system_file is None:
        return system or None
    if system:
        raise UsageError("--system and --system-file exclude each other")
    return read_text(Path(arguments.system_file), MAX_REQUEST_BYTES) or None


async def _ask_lines(arguments: Arguments) -> int:
    alone = ("text", "json", "show_outbound", "keep", "defer")
    if arguments.out is None or any(getattr(arguments, each) for each in alone):
        raise UsageError(
            "--jsonl FILE needs --out FILE, and excludes a text, --json, "
            "--show-outbound, --keep and --defer"
        )
    usual = {name: getattr(arguments, name) for name in NAMED}
    # A batch is not interactive unless the options say so.
    usual["preset"] = usual["preset"] or "batch"
    with ExitStack() as opened:
        file: BinaryIO = sys.stdin.buffer
        if arguments.jsonl != "-":
            file = opened.enter_context(open_named(Path(arguments.jsonl)))
        # Read all before the detectors start, so that an error is reported at once.
        questions = tuple(read_questions(file, usual, system=_system(arguments)))
    config = config_from(arguments)
    with results(Path(arguments.out)) as lines:
        known = [lines.known[each.id] for each in questions if each.id in lines.known]
        before, refused = len(known), sum(known)
        if before:
            also = f", {refused} of them refused" if refused else ""
            err(f"{before} of {len(questions)} already have a line{also}")
        # Without starting the client: the detectors and the model would be loaded for
        # nothing.
        if before == len(questions):
            return REFUSED if refused else DONE
        tally = await _asked(
            config, questions, lines, parallel=arguments.parallel or PARALLEL
        )
    err(f"[{tally.summary()}]")
    if tally.failed:
        err("run the same command again to ask the rest")
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

    def show(tally: Tally) -> None:
        if shown:
            err_again(f"{tally.done} of {tally.asked}: {tally.summary()}")

    interrupted = False
    try:
        # A spare set of detectors: after a crash, a batch goes on without waiting for a
        # new process to start.
        async with session_from(config, spare=True) as session:
            return await ask_lines(
                questions, session.ask, lines, parallel=parallel, progress=show
            )
    except asyncio.CancelledError:
        # Ctrl-C: every answer so far has its line.
        interrupted = True
        raise
    finally:
        if shown:
            err("")
        if interrupted:
            err("interrupted: run the same command again to continue")


def keeping(directory: Path) -> SaveTranscript:
    """Return a function that saves an exchange in two new files (mode 0600).

    Raises:
        ConfigError: the directory does not exist.
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
            # Not raised: the answer and its audit record already exist.
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
    """Print an answer as it arrives: first its source, and progress while waiting."""
    started, first_s, waited = monotonic(), 0.0, set[Phase]()
    # Printed text cannot be retracted, so it is held until the tier is settled.
    async with aclosing(stream.events(retract=False)) as events:
        async for event in events:
            if isinstance(event, Progress):
                if event.phase not in waited and not first_s:
                    err(f"[{WAITING[event.phase]} …]")
                waited.add(event.phase)
                continue
            if not first_s:
                # The source comes before the first word of the answer.
                first_s = monotonic() - started
                # To standard error: standard output has the answer only, for programs
                # that read it.
                err(provenance_line(stream.provenance))
            if isinstance(event, Delta):
                out(event.text, end="")
    out("")
    tokens = stream.answer.finished.completion_tokens
    for line in warnings_of(stream.answer):
        err(line)
    cut = ""
    if was_cut(stream.answer, max_tokens):
        cut = "; the answer was CUT at the token limit: raise --max-tokens"
    err(
        f"[{tokens} {plural(tokens, 'token')}, "
        f"first after {first_s:.2f} s, last after {monotonic() - started:.2f} s{cut}]"
    )


async def _show_outbound(config: ClientConfig, query: Query, *, as_json: bool) -> int:
    async with session_from(config) as session:
        shown = await session.outbound(query)
    if isinstance(shown, Stays):
        if as_json:
            out_json({"leaves": False, **asdict(shown)})
        else:
            why = f"; {BOUNDARY[shown.boundary]}" if shown.boundary else ""
            err(f"[nothing would be sent; rule {shown.rule}: {shown.reason}{why}]")
        return REFUSED
    if as_json:
        out_json(shown.value())
        return DONE
    err(outbound_lines(shown))
    # Only the sealed bytes go to standard output, for programs that read it.
    out_bytes(shown.payload)
    err("")
    return DONE


def outbound_lines(shown: Outbound) -> str:
    """Return a readable account of what would be sent, turn by turn, and to whom."""
    body = json.loads(shown.payload)
    turns = [f"  {each['role']}: {each['content']}" for each in body.pop("messages")]
    rest = ", ".join(f"{name} {json.dumps(value)}" for name, value in body.items())
    said = f"would be sent, as {shown.routing_class}, sealed for {shown.tier}"
    if shown.deidentified:
        many = sum(count for _, count in shown.deidentified)
        said += f"; {many} sent only as pseudonyms"
    if shown.boundary:
        said += f"; {BOUNDARY[shown.boundary]}"
    who = f"{shown.release}, evidence {shown.evidence}, verdict {shown.verdict_id}"
    digest = shown.payload_digest.hex()
    raw = f"[the {len(shown.payload)} bytes, SHA-256 {digest}:]"
    return "\n".join((f"[{said}]", f"[read by {who}]", *turns, f"  {rest}", raw))


async def consents_at_terminal(shown: Outbound) -> bool:
    """Show a person what would be sent, and ask; not interactive: it is not sent."""
    # Fail closed: a "y" from a pipe is not consent, and without a terminal the person
    # has not seen the text.
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    err(outbound_lines(shown))
    # The exact bytes as well, since consent is for these.
    err(shown.payload.decode())
    err("Send this? [y/N] ", end="")
    # In a thread: a person takes time, and the key's renewal and open connections must
    # go on.
    said = await asyncio.to_thread(sys.stdin.readline)
    # Anything else is a no, also an empty line or the end of the input.
    return said.strip().lower() in {"y", "yes"}
