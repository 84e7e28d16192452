"""``curtilage ask``: one question, answered where the policy permits."""

import argparse
import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Final

from curtilage.cli.options import text_from
from curtilage.cli.start import config_from, session_from
from curtilage.cli.terminal import (
    DONE,
    REFUSED,
    err,
    out,
    out_bytes,
    out_json,
)
from curtilage.client.answer import Answer, Answerer, Provenance
from curtilage.client.audit.export import new_file
from curtilage.client.audit.recorder import SaveTranscript
from curtilage.client.boundary.ladder import BOUNDARY
from curtilage.client.config import ClientConfig
from curtilage.client.consent import Outbound, Stays
from curtilage.client.errors import (
    EXPLAINED,
    ClientError,
    ConfigError,
    FailureReason,
    UsageError,
)
from curtilage.client.files import read_text
from curtilage.client.openai_chat import MAX_REQUEST_BYTES, query_from
from curtilage.client.pseudonyms.obstacles import WHY_NOT_REPLACED
from curtilage.client.query import Query
from curtilage.client.receipt import Transcript
from curtilage.client.routing.router import CHOSEN
from curtilage.client.routing.utility import Reason

ROUTING: Final = ("require", "mode", "floor", "preset")


def run(arguments: argparse.Namespace) -> int:
    """Answer."""
    turns = [{"role": "user", "content": text_from(arguments.text)}]
    system: str | None = arguments.system
    if arguments.system_file is not None:
        if system:
            raise UsageError("--system and --system-file are two messages: give one")
        system = read_text(Path(arguments.system_file), MAX_REQUEST_BYTES)
    if system:
        turns.insert(0, {"role": "system", "content": system})
    named = ("max_tokens", "temperature", "seed", *ROUTING)
    options = {name: getattr(arguments, name) for name in named}
    query = query_from(turns, options, stream=not arguments.json)
    save_transcript = None if arguments.keep is None else keeping(Path(arguments.keep))
    config = config_from(arguments)
    if arguments.show_outbound:
        return asyncio.run(_show_outbound(config, query, as_json=arguments.json))
    asyncio.run(_ask(config, query, save_transcript, as_json=arguments.json))
    return DONE


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
        started = monotonic()
        stream = session.stream(query)
        # Who answers is told before a word of the answer.
        err(provenance_line(await stream.begin()))
        first_s = monotonic() - started
        async for piece in stream:
            out(piece.text, end="")
        out("")
        err(
            f"[{stream.answer.finished.completion_tokens} tokens, "
            f"first after {first_s:.2f} s, all after {monotonic() - started:.2f} s]"
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


def provenance_line(provenance: Provenance) -> str:
    """Say in one line who answers and why."""
    found = ", ".join(provenance.classes + provenance.uncertain) or "nothing"
    why = f"rule {provenance.rule}: {provenance.reason.rstrip('.')}"
    if provenance.why:
        why += f"; {provenance.tier} was chosen: {CHOSEN[Reason(provenance.why)]}"
    if provenance.fallback is not None:
        why += f"; {_might(provenance.fallback)}, but {EXPLAINED[provenance.fallback]}"
    if provenance.deidentified:
        many = sum(count for _, count in provenance.deidentified)
        why += f"; {many} left as pseudonyms only"
    if provenance.obstacle is not None:
        why += f"; it did not leave: {WHY_NOT_REPLACED[provenance.obstacle]}"
    if provenance.boundary:
        why += f"; {BOUNDARY[provenance.boundary]}"
    if not provenance.recorded:
        why += "; NOT in the audit trail, which cannot be written"
    return f"[{_who(provenance)}; found: {found}; {why}]"


def _might(reason: FailureReason) -> str:
    """Say where it would have been answered, had that one not failed."""
    if reason.value.startswith("local_"):
        return "it might have been answered here"
    if reason.value.startswith("house_"):
        return "it might have been answered in the house"
    return "it might have left"


def _who(provenance: Provenance) -> str:
    if provenance.route is Answerer.LOCAL:
        return "answered here, by the local model"
    if provenance.route is Answerer.HOUSE:
        return f"answered in the house, by {provenance.tier} ({provenance.model})"
    if (provenance.evidence or "").startswith("emulated-"):
        return "answered by an enclave whose evidence is EMULATED and proves nothing"
    return "answered by the attested enclave"


def answer_object(answer: Answer) -> dict[str, object]:
    """Build the JSON object of an answer."""
    provenance = answer.provenance
    fallback, obstacle = provenance.fallback, provenance.obstacle
    return {
        "text": answer.text,
        "route": provenance.route.value,
        "tier": provenance.tier,
        "why": provenance.why or None,
        "model": provenance.model,
        "classes": list(provenance.classes),
        "uncertain": list(provenance.uncertain),
        "rule": provenance.rule,
        "reason": provenance.reason,
        "policy": provenance.policy_digest,
        "verdict": provenance.verdict_id,
        "evidence": provenance.evidence,
        "fallback": None if fallback is None else fallback.value,
        "recorded": provenance.recorded,
        "deidentified": dict(provenance.deidentified),
        "boundary": provenance.boundary or None,
        "obstacle": None if obstacle is None else obstacle.value,
        "receipt": answer.finished.receipted,
        "finish_reason": answer.finished.finish_reason,
        "usage": {
            "prompt_tokens": answer.finished.prompt_tokens,
            "completion_tokens": answer.finished.completion_tokens,
        },
    }
