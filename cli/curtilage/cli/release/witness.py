"""``curtilage release witness``: act as a witness for logs of others."""

from pathlib import Path
from typing import Final

from curtilage.cli.declared import Arguments
from curtilage.cli.options import time_of, write_or_print
from curtilage.cli.release.options import Progress, key_of, refusing
from curtilage.cli.terminal import DONE, err, out
from curtilage.client.system.files import read_text
from curtilage.transparency.log import LogFolder, add_cosignatures
from curtilage.transparency.witness import Witness, create_witness, parse_request

MAX_REQUEST_BYTES: Final = 256 * 1024


def run_init(arguments: Arguments) -> int:
    """Create a witness; exit 2 if there already is one."""
    witness = create_witness(
        Path(arguments.folder), arguments.name, ml_dsa=arguments.ml_dsa
    )
    out(witness.verifier_key.text)
    return DONE


@refusing
def run_cosign(arguments: Arguments) -> int:
    """Cosign; exit 1 if the log is not consistent with its last state."""
    witness = Witness(Path(arguments.folder))
    log = key_of(arguments.log_key)
    now = time_of(arguments.at)
    if arguments.request is not None:
        request = parse_request(read_text(Path(arguments.request), MAX_REQUEST_BYTES))
        line = witness.cosign_request(request, log, now=now)
        return write_or_print(None, line.encode())
    path = Path(arguments.log)
    # The witness remembers the last state that it signed, and refuses one that does not
    # contain it.
    line = witness.cosign_folder(
        LogFolder(path), log, now=now, progress=Progress().leaves
    )
    if arguments.write:
        add_cosignatures(path, log, [witness.verifier_key.key], line)
        err(f"{path}: cosigned by {witness.verifier_key.key.name}")
        return DONE
    return write_or_print(None, line.encode())
