"""The custody list: machines in a custodian's care, signed, with an end.

A signed note (c2sp.org/signed-note) whose lines are ``curtilage/custody/v1``, then
``until`` and Unix seconds, then each machine once, in order: a chip id (SEV-SNP) or a
PPID (TDX) in hex, or a Nitro module id.
"""

import re
from collections.abc import Iterable
from typing import Final

from curtilage.attest.encoding.strict_json import malformed, too_large
from curtilage.attest.expectations import CustodyExpectations
from curtilage.attest.log.note import (
    NoteKey,
    parse_decimal,
    parse_note,
    require_signed,
)

HEADER: Final = "curtilage/custody/v1"
MAX_MACHINES: Final = 4096
MAX_UNTIL: Final = 253_402_300_799  # the end of the year 9999
MACHINE: Final = re.compile(
    r"[0-9a-f]{128}|[0-9a-f]{32}|i-[0-9a-f]{8,32}(-enc[0-9a-f]{1,64})?"
)
"""How evidence names a machine."""
_UNTIL: Final = "until "


def custody_body(machines: Iterable[str], until: int) -> str:
    """Return the text that the custodian signs."""
    lines = [HEADER, f"{_UNTIL}{until}", *sorted(set(machines))]
    return "".join(f"{line}\n" for line in lines)


def parse_custody(text: str, key: NoteKey) -> CustodyExpectations:
    """Verify a custody list's signature, and read it.

    Args:
        text: the signed note.
        key: the custodian's, Ed25519.

    Raises:
        RefusedError: ``malformed``, ``too_large``, ``unsigned`` or ``bad_signature``.
    """
    note = parse_note(text)
    # Before a line is read: an unsigned list says nothing about any machine.
    require_signed(note, key)
    header, *lines = note.body[:-1].split("\n")
    if header != HEADER or not lines or not lines[0].startswith(_UNTIL):
        raise malformed("custody: not a list of version 1")
    until = parse_decimal(lines[0].removeprefix(_UNTIL), "custody: until")
    if until > MAX_UNTIL:
        raise malformed("custody: an end beyond the calendar")
    machines = lines[1:]
    if len(machines) > MAX_MACHINES:
        raise too_large(f"custody: more than {MAX_MACHINES} machines")
    # A hidden id is written as zeros, and counts as naming no machine.
    if not all(MACHINE.fullmatch(each) and each.strip("0") for each in machines):
        raise malformed("custody: not a machine's name")
    # One spelling of one list, so that two lists can be compared as files.
    if machines != sorted(set(machines)):
        raise malformed("custody: not in order, or a machine twice")
    return CustodyExpectations(machines=frozenset(machines), until=until)
