"""Options that several commands share, and readers of their values."""

import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from curtilage.cli.declared import Value, ascii_only, number_from
from curtilage.cli.terminal import DONE, err, out_bytes
from curtilage.client.errors import ConfigError, UsageError

# Linux keeps 4,095 bytes of a typed line, the line end included, and silently drops
# the rest. A truncated question must not be asked.
_LONGEST_TYPED: Final = 4094
NO_TEXT: Final = "there is no text; give it as arguments, or `-` to read standard input"
CUT_BY_TERMINAL: Final = (
    "the terminal truncates longer lines; put the text into a file and read it with "
    "`- < FILE`"
)


POLICY: Final = """
Options:
    --policy FILE: policy file, or the name of a shipped profile (default:
        $CURTILAGE_POLICY, else the profile 'default')
    --policy-key FILE: public key (PEM) that must have signed the policy (FILE.sig next
        to it); otherwise everything is kept local (default: $CURTILAGE_POLICY_KEY)"""
RELAY: Final = f"""{POLICY}
    --relay URL: https://host/name of the relay (default: $CURTILAGE_RELAY; without one,
        everything is answered locally)

Options (access to the relay; this identifies your organisation to the relay only):
    --relay-ca FILE: certificates (PEM) of the only authorities to trust for the relay
        (default: $CURTILAGE_RELAY_CA, else the system's)
    --relay-certificate FILE: client certificate (PEM) for the relay (default:
        $CURTILAGE_RELAY_CERTIFICATE)
    --relay-certificate-key FILE: its private key (PEM), if it is not in the same file
        (default: $CURTILAGE_RELAY_CERTIFICATE_KEY)
    --relay-key-file FILE: file with the API key from the relay's operator, mode 0600;
        the key itself is never an argument (default: $CURTILAGE_RELAY_KEY_FILE)"""
MODEL: Final = """
Options:
    --model NAME|FILE: local model: a name of `curtilage models list`, or a GGUF file
        (default: $CURTILAGE_MODEL, else the embedded one)
    --model-sha256 HEX: digest, required for a GGUF file"""
CLIENT: Final = f"""{RELAY}
{MODEL}
    --on-premises-key-file FILE was --house-key-file: file with the API key of the
        policy's on-premises server, mode 0600; of several, TIER=FILE with commas
        between (default: $CURTILAGE_ON_PREMISES_KEY_FILE)
    --context-tokens N: context window of the local model (default:
        $CURTILAGE_CONTEXT_TOKENS, else what it was trained for, at most 32768, as far
        as memory allows)
    --sequences N: how many questions the local model answers at a time (default:
        $CURTILAGE_SEQUENCES, else 2, or 1 if memory is short)
    --threads N: threads of the local model (default: $CURTILAGE_THREADS, else the
        processors that this process may use)
    --kv-type TYPE: how the local model holds a context: f16, q8_0 (half the memory) or
        q4_0 (a quarter; less exact) (default: $CURTILAGE_KV_TYPE, else f16)
    --flash-attention WHEN: auto, on or off (default: $CURTILAGE_FLASH_ATTENTION, else
        auto)
    --gpu-layers N: layers of the local model that a GPU computes, where the engine's
        build can use one (default: $CURTILAGE_GPU_LAYERS, else 0)
    --answer-seconds N: how long the local model may take for one answer (default:
        $CURTILAGE_ANSWER_SECONDS, else 3600)
    --models FILE: local models by name, and aliases (TOML; default: $CURTILAGE_MODELS);
        --model may be one of these names
    --audit DIR: audit log, created with `curtilage audit init` (default:
        $CURTILAGE_AUDIT, else your own, created on first use); a query that cannot be
        recorded there is not sent"""
TEXT: Final = """
Options:
    [TEXT]...: the text; `-`, or nothing, reads it from standard input, where you can
        type it. An argument is visible to every user of this machine (`ps`), and the
        shell keeps it in its history"""
JSON: Final = """
Options:
    --json: one JSON object"""
TRACE: Final = """
Options:
    --trace FILE: the trace (default: your own, written by the client)"""
PRICES: Final = """
Options:
    --prices TIER=USD[,TIER=USD]: dollars per million tokens, read or written (default:
        the policy's, else typical prices)"""


def renamed_value(word: str) -> str:
    """Return the present name of an option's value; version 0.1 had others."""
    return "on_premises" if word == "house" else word


NUMBER: Final = Value("a number", ascii_only(float))
TOKENS: Final = number_from(1)


def time_of(text: str | None) -> datetime:
    """Parse ``--at``; the default is now.

    Raises:
        UsageError: it is not a time with a time zone.
    """
    if text is None:
        return datetime.now(UTC)
    # The first or last day of the calendar may not be representable in UTC.
    with suppress(ValueError, OverflowError):
        # A time without a zone could mean two different hours, and with them valid or
        # expired evidence.
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    raise UsageError("--at needs a time such as 2026-11-21T12:00:00Z")


def text_from(words: list[str]) -> str:
    """Join the words of a command line; none, or a ``-``, reads standard input.

    A terminal shows a prompt. Typed text is echoed for review. It ends with the end of
    input, not with a line: otherwise the rest of a multi-line paste would go to the
    shell.

    Raises:
        UsageError: there is no text, or the terminal truncated it.
    """
    if words[1:] and words[0] == "-":
        raise UsageError("`-` reads standard input: no other text may follow it")
    if words not in ([], ["-"]):
        text = " ".join(words)
    else:
        typed = sys.stdin.isatty()
        if typed:
            err("type the text; end it with Ctrl-D on a line of its own")
        # Bytes, not text: an invalid byte must reach the detectors as one that cannot
        # be read, not end the program.
        data = sys.stdin.buffer.read()
        if typed and any(len(line) >= _LONGEST_TYPED for line in data.splitlines()):
            raise UsageError(CUT_BY_TERMINAL)
        text = data.decode("utf-8", "surrogateescape").strip()
    if not text.strip():
        raise UsageError(NO_TEXT)
    return text


def write_or_print(path: str | None, data: bytes) -> int:
    """Write to a file if one is named, else to standard output."""
    if path is None:
        out_bytes(data)
        return DONE
    with file_errors(path):
        Path(path).write_bytes(data)
    return DONE


@contextmanager
def file_errors(path: Path | str) -> Generator[None]:
    """Name the file in every system error of the body.

    Raises:
        ConfigError: instead of OSError.
    """
    try:
        yield
    except OSError as failure:
        raise ConfigError(f"{path}: {failure.strerror}") from None
