"""Flags that several commands share, and the plain values that they give."""

import argparse
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from typing_extensions import override

from curtilage.cli.terminal import DONE, Commands, add_command, err, out_bytes
from curtilage.client.errors import ConfigError, UsageError

# Linux keeps 4,095 bytes of a line that is typed, its end among them, and drops
# the rest without a word: half a question must not be asked.
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
        help="public key (PEM) that must have signed the policy, as FILE.sig beside "
        "it; while it has not, everything stays (default: $CURTILAGE_POLICY_KEY)",
    )


def add_relay_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every command that may ask an enclave something."""
    add_policy_flag(parser)
    parser.add_argument(
        "--relay",
        metavar="URL",
        help="https://host/name of the relay (default: $CURTILAGE_RELAY; without "
        "one, everything is answered here)",
    )
    access = parser.add_argument_group(
        "access to the relay",
        "The relay's operator says which of these it wants. They name your "
        "organisation\nto the relay, which sees who asks anyway, and to nobody "
        "behind it.",
    )
    access.add_argument(
        "--relay-ca",
        metavar="FILE",
        help="certificates (PEM) of the only authorities to trust for the relay "
        "(default: $CURTILAGE_RELAY_CA, else those that this system trusts)",
    )
    access.add_argument(
        "--relay-certificate",
        metavar="FILE",
        help="certificate (PEM) to show the relay "
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
        help="file that holds the API key of the relay's operator, mode 0600; the "
        "key itself is never an argument (default: $CURTILAGE_RELAY_KEY_FILE)",
    )


class _Renamed(argparse.Action):
    """The name that a flag has in version 0.1: it works, with a notice."""

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
    """Return the notice that a name has changed."""
    return f"{old} is now {new}; version 0.2 will not accept the old name"


def new_name(word: str) -> str:
    """Return a word of a flag by its present name; version 0.1 has another."""
    return "on_premises" if word == "house" else word


def add_client_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every command that answers."""
    add_relay_flags(parser)
    parser.add_argument(
        "--on-premises-key-file",
        metavar="FILE",
        help="file that holds the API key of the policy's on-premises server, mode "
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
        help="what the local model reads and writes at once (default: "
        "$CURTILAGE_CONTEXT_TOKENS, else 4096, or what it was trained for)",
    )
    parser.add_argument(
        "--audit",
        metavar="DIR",
        help="audit log, made with `curtilage audit init` (default: $CURTILAGE_AUDIT, "
        "else one of your own, made when first used); what cannot be recorded there "
        "does not leave",
    )


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """Add which local model is meant."""
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
    """Read ``--at``; now, where it was not given.

    Raises:
        UsageError: it is no time with a zone.
    """
    if text is None:
        return datetime.now(UTC)
    # The first and the last day of the calendar may have no such time.
    with suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    raise UsageError("--at needs a time such as 2026-11-21T12:00:00Z")


def add_text(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the text that a command is about; ``text_from`` reads it."""
    parser.add_argument(
        "text",
        nargs="*",
        help=f"{what}; `-`, or nothing, reads it from standard input, where one may "
        "type it. As an argument every user of this machine can read it (`ps`), and "
        "the shell keeps it",
    )


def text_from(words: list[str]) -> str:
    """Join the words of a command line; none, or a ``-``, reads standard input.

    Somebody at a terminal is told what is awaited. What is typed is shown, so that
    it can be read over; it ends with the end of the input and not with the line,
    or what is pasted behind a line would go to the shell.

    Raises:
        UsageError: there is no text, or the terminal cut it.
    """
    if words not in ([], ["-"]):
        text = " ".join(words)
    else:
        typed = sys.stdin.isatty()
        if typed:
            err("type the text; Ctrl-D in a line of its own ends it")
        data = sys.stdin.buffer.read()
        if typed and any(len(line) >= _LONGEST_TYPED for line in data.splitlines()):
            raise UsageError(
                "a terminal cuts longer lines; put the text into a file, and read it "
                "with `- < FILE`"
            )
        text = data.decode("utf-8", "surrogateescape").strip()
    if not text.strip():
        raise UsageError("there is no text; give `-` to read it, or give it as words")
    return text


def write_or_print(path: str | None, data: bytes) -> int:
    """Write to the file that was asked for, else to standard output."""
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
    """Add the command; ``path`` is how it is called there."""
    parser = add_command(
        commands,
        "explain",
        summary="say what was found in a text and which rule decides",
        text="Say where a text may go and why: the data classes found and their "
        "places, the rule\nthat decides, and the smallest change after which the text "
        "could go a less private\nway. The text itself is never printed.\n\n"
        "Offsets count characters from 0. Everything is looked for, even where the "
        "policy\nends a scan early.",
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
