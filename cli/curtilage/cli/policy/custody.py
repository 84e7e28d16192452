"""``curtilage policy custody``: sign a list of machines in custody."""

from datetime import UTC, datetime
from pathlib import Path

from curtilage.attest.custody import custody_body, parse_custody
from curtilage.attest.errors import RefusedError
from curtilage.attest.log.signers import LogSigner
from curtilage.cli.declared import Arguments
from curtilage.cli.options import file_errors, write_or_print
from curtilage.cli.policy.sign import read_private_key
from curtilage.cli.terminal import DONE, out, unix_text
from curtilage.client.errors import UsageError
from curtilage.transparency.publisher import moment_of


def run(arguments: Arguments) -> int:
    """Sign the list; exit 2 if a machine, the key or the time is invalid."""
    until = moment_of(arguments.until, datetime.now(UTC))
    signer = LogSigner(name=arguments.name, key=read_private_key(arguments.key))
    note = signer.note(custody_body(arguments.machines, until))
    try:
        # Only the reader decides what a list is; this one must be readable.
        found = parse_custody(note, signer.public)
    except RefusedError as error:
        raise UsageError(error.detail) from None
    with file_errors(Path(arguments.out)):
        write_or_print(arguments.out, note.encode())
    out(f"{arguments.out}: {len(found.machines)} machines until {unix_text(until)}")
    out(f"  name  {arguments.name}")
    out(f"  key   {signer.verifier_key.text}")
    return DONE
