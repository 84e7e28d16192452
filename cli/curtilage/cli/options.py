"""Flags that several commands share, and readers of their values."""

import argparse
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from typing_extensions import override

from curtilage.cli.terminal import DONE, Commands, add_command, err, out_bytes
from curtilage.client.errors import ConfigError, UsageError

# Linux keeps 4,095 bytes of a typed line, the line end included, and silently drops
# the rest. A truncated question must not be asked.
_LONGEST_TYPED: Final = 4094


def add_policy_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--policy``."""
    parser.add_argument(
        "--policy",
        metavar="FILE",
        help="policy file, or the name of a shipped profile (default: "
        "$CURTILAGE_POLICY, else the profile 'default')",
    )
    parser.add_argument(
        "--policy-key",
        metavar="FILE",
        help="public key (PEM) that must have signed the policy (FILE.sig next to "
        "it); otherwise everything is kept local (default: $CURTILAGE_POLICY_KEY)",
    )


def add_relay_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every command that may send questions to an enclave."""
    add_policy_flag(parser)
    parser.add_argument(
        "--relay",
        metavar="URL",
        help="https://host/name of the relay (default: $CURTILAGE_RELAY; without "
        "one, everything is answered locally)",
    )
    access = parser.add_argument_group(
        "access to the relay",
        "The relay's operator specifies which of these it requires. They identify "
        "your\norganisation to the relay, which sees the sender anyway, and to no "
        "other party.",
    )
    access.add_argument(
        "--relay-ca",
        metavar="FILE",
        help="certificates (PEM) of the only authorities to trust for the relay "
        "(default: $CURTILAGE_RELAY_CA, else the system's)",
    )
    access.add_argument(
        "--relay-certificate",
        metavar="FILE",
        help="client certificate (PEM) for the relay "
        "(default: $CURTILAGE_RELAY_CERTIFICATE)",
    )
    access.add_argument(
        "--relay-certificate-key",
        metavar="FILE",
        help="its private key (PEM), if it is not in the same file "
        "(default: $CURTILAGE_RELAY_CERTIFICATE_KEY)",
    )
    access.add_argument(
        "--relay-key-file",
        metavar="FILE",
        help="file with the API key from the relay's operator, mode 0600; the key "
        "itself is never an argument (default: $CURTILAGE_RELAY_KEY_FILE)",
    )


class _Renamed(argparse.Action):
    """A flag's name of version 0.1; accepted with a notice."""

    @override
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        err(renamed(str(option_string), "--on-premises-key-file"))
        setattr(namespace, self.dest, values)


def renamed(old: str, new: str) -> str:
    """Return the notice about a renamed flag or value."""
    return f"{old} is now {new}; version 0.2 will not accept the old name"


def new_name(word: str) -> str:
    """Return the present name of a flag's value; version 0.1 had others."""
    return "on_premises" if word == "house" else word


def add_client_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every command that answers."""
    add_relay_flags(parser)
    parser.add_argument(
        "--on-premises-key-file",
        metavar="FILE",
        help="file with the API key of the policy's on-premises server, mode "
        "0600; of several, TIER=FILE with commas between (default: "
        "$CURTILAGE_ON_PREMISES_KEY_FILE)",
    )
    parser.add_argument(
        "--house-key-file",
        dest="on_premises_key_file",
        action=_Renamed,
        default=argparse.SUPPRESS,
        help=argparse.SUPPRESS,
    )
    add_model_flags(parser)
    parser.add_argument(
        "--context-tokens",
        type=int,
        metavar="N",
        help="context window of the local model (default: "
        "$CURTILAGE_CONTEXT_TOKENS, else 4096, or what it was trained for)",
    )
    parser.add_argument(
        "--audit",
        metavar="DIR",
        help="audit log, created with `curtilage audit init` (default: "
        "$CURTILAGE_AUDIT, else your own, created on first use); a query that cannot "
        "be recorded there is not sent",
    )


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name the local model."""
    parser.add_argument(
        "--model",
        metavar="NAME|FILE",
        help="local model: a name of `curtilage models list`, or a GGUF file "
        "(default: $CURTILAGE_MODEL, else the embedded one)",
    )
    parser.add_argument(
        "--model-sha256", metavar="HEX", help="digest, required for a GGUF file"
    )


def time_of(text: str | None) -> datetime:
    """Parse ``--at``; the default is now.

    Raises:
        UsageError: it is not a time with a time zone.
    """
    if text is None:
        return datetime.now(UTC)
    # The first or last day of the calendar may not be representable in UTC.
    with suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    raise UsageError("--at needs a time such as 2026-11-21T12:00:00Z")


def add_text(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the positional text of a command; ``text_from`` reads it."""
    parser.add_argument(
        "text",
        nargs="*",
        help=f"{what}; `-`, or nothing, reads it from standard input, where you can "
        "type it. An argument is visible to every user of this machine (`ps`), and "
        "the shell keeps it in its history",
    )


def text_from(words: list[str]) -> str:
    """Join the words of a command line; none, or a ``-``, reads standard input.

    A terminal shows a prompt. Typed text is echoed for review. It ends with the end of
    input, not with a line: otherwise the rest of a multi-line paste would go to the
    shell.

    Raises:
        UsageError: there is no text, or the terminal truncated it.
    """
    if words not in ([], ["-"]):
        text = " ".join(words)
    else:
        typed = sys.stdin.isatty()
        if typed:
            err("type the text; end it with Ctrl-D on a line of its own")
        data = sys.stdin.buffer.read()
        if typed and any(len(line) >= _LONGEST_TYPED for line in data.splitlines()):
            raise UsageError(
                "the terminal truncates longer lines; put the text into a file and "
                "read it with `- < FILE`"
            )
        text = data.decode("utf-8", "surrogateescape").strip()
    if not text.strip():
        raise UsageError(
            "there is no text; give it as arguments, or `-` to read standard input"
        )
    return text


def write_or_print(path: str | None, data: bytes) -> int:
    """Write to a file if one is named, else to standard output."""
    if path is None:
        out_bytes(data)
        return DONE
    try:
        Path(path).write_bytes(data)
    except OSError as failure:
        raise ConfigError(f"{path}: {failure.strerror}") from None
    return DONE


def add_explain(
    commands: "Commands[argparse.ArgumentParser]", *, path: str = "curtilage explain"
) -> None:
    """Add the command; ``path`` is its full name in the help text."""
    parser = add_command(
        commands,
        "explain",
        summary="show what is found in a text and which rule decides",
        text="Show where a text may be sent and why: the data classes found and their "
        "positions,\nthe rule that decides, and the smallest change that would permit "
        "a less private route.\nThe text itself is never printed.\n\n"
        "Offsets count characters from 0. All detectors run, even if the policy ends "
        "a scan\nearly.",
        example=f"{path}\n{path} --policy clinic --json - < letter.txt\n"
        f'{path} "What is HIV?"',
    )
    add_text(parser, "the text")
    add_policy_flag(parser)
    parser.add_argument(
        "--messages",
        action="store_true",
        help='the text is a conversation: {"messages": [{"role": …, "content": …}]}',
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
