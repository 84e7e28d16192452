"""``curtilage ask``: one question, answered where the policy permits."""

import argparse
import asyncio
from pathlib import Path
from time import monotonic

from curtilage.cli.options import text_from
from curtilage.cli.start import config_from, session_from
from curtilage.cli.terminal import (
    DONE,
    err,
    out,
    out_json,
)
from curtilage.client.answer import Answer, Answerer, Provenance
from curtilage.client.audit.export import new_file
from curtilage.client.audit.recorder import SaveTranscript
from curtilage.client.config import ClientConfig
from curtilage.client.errors import EXPLAINED, ClientError, ConfigError, UsageError
from curtilage.client.files import read_text
from curtilage.client.openai_chat import MAX_REQUEST_BYTES, query_from
from curtilage.client.pseudonyms.obstacles import WHY_NOT_REPLACED
from curtilage.client.query import Query
from curtilage.client.receipt import Transcript


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
    options = {
        name: getattr(arguments, name) for name in ("max_tokens", "temperature", "seed")
    }
    query = query_from(turns, options, stream=not arguments.json)
    save_transcript = None if arguments.keep is None else keeping(Path(arguments.keep))
    config = config_from(arguments)
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
    async with session_from(config, save_transcript=save_transcript) as session:
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


def provenance_line(provenance: Provenance) -> str:
    """Say in one line who answers and why."""
    found = ", ".join(provenance.classes + provenance.uncertain) or "nothing"
    why = f"rule {provenance.rule}: {provenance.reason}"
    if provenance.fallback is not None:
        why += f"; it might have left, but {EXPLAINED[provenance.fallback]}"
    if provenance.deidentified:
        many = sum(count for _, count in provenance.deidentified)
        why += f"; {many} left as pseudonyms only"
    if provenance.obstacle is not None:
        why += f"; it did not leave: {WHY_NOT_REPLACED[provenance.obstacle]}"
    if not provenance.recorded:
        why += "; NOT in the audit trail, which cannot be written"
    return f"[{_who(provenance)}; found: {found}; {why}]"


def _who(provenance: Provenance) -> str:
    if provenance.route is Answerer.LOCAL:
        return "answered here, by the local model"
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
        "obstacle": None if obstacle is None else obstacle.value,
        "receipt": answer.finished.receipted,
        "finish_reason": answer.finished.finish_reason,
        "usage": {
            "prompt_tokens": answer.finished.prompt_tokens,
            "completion_tokens": answer.finished.completion_tokens,
        },
    }
