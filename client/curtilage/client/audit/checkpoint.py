"""Signed checkpoints of an audit log, as C2SP signed notes.

A checkpoint is a tlog-checkpoint: the log's id, its size, the root of the tree over its
lines; then two extension lines, which are signed too: the hash of the last line, and
the time. This format was chosen so that ``attest.tlog`` can verify it, and any witness
of C2SP logs can cosign it. ::

    curtilage.audit/5f2c6f0e9a1b3d47
    1024
    q2k4…=
    head 3f786850e387550fdab836ed7e6dc881de23001b…
    time 2026-11-21T14:50:11.123456Z

    — curtilage.audit/5f2c6f0e9a1b3d47 Vvd2kWq…=
"""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from curtilage.attest.errors import RefusedError
from curtilage.attest.log.note import (
    ED25519,
    PUBLIC_KEY_BYTES,
    NoteKey,
    TrustedLog,
    parse_note,
    verify_checkpoint,
)
from curtilage.client.audit.record import parse_time, time_text
from curtilage.policy.errors import AuditRefusedError, AuditStep

LOG_NAME: Final = re.compile(r"curtilage\.audit/[0-9a-f]{16}", re.ASCII)
MAX_CHECKPOINT_BYTES: Final = 4096
CHECKPOINT_LINES: Final = 64
"""Maximum number of lines on disk that no checkpoint covers yet."""
CHECKPOINT_S: Final = 60.0
"""Once the last checkpoint is this old, no line is added behind an unsigned one."""
_BODY_LINES: Final = 5
_HEAD: Final = "head "
_TIME: Final = "time "
_HASH: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)

Sign = Callable[[bytes], bytes]
"""Signs a message with Ed25519; 64 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHead:
    """The content of a checkpoint.

    Attributes:
        log: the log's id.
        size: number of lines.
        root: root of the tree over them, 32 bytes.
        head: ``chain_hash`` of the last of them, hex.
        time: when it was signed, aware UTC, by the signer's own clock.
    """

    log: str
    size: int
    root: bytes
    head: str
    time: datetime


def log_id(token: bytes) -> str:
    """Return the id of a new log, from 8 random bytes."""
    return f"curtilage.audit/{token.hex()}"


def encode_key(key: NoteKey) -> str:
    """Encode a log's public key as a C2SP verifier key: name, id, key."""
    tagged = base64.b64encode(bytes([ED25519]) + key.public_key).decode()
    return f"{key.name}+{key.key_id(ED25519).hex()}+{tagged}"


def parse_key(text: str) -> NoteKey:
    """Parse a verifier key.

    Raises:
        AuditRefusedError: not the key of an audit log, or its id is wrong.
    """
    # Base64 may hold a plus sign of its own, hence at most two splits.
    name, _, rest = text.strip().partition("+")
    _, _, tagged = rest.partition("+")
    try:
        data = base64.b64decode(tagged, validate=True)
    except (binascii.Error, ValueError):
        raise _refused("not a verifier key") from None
    key = NoteKey(name=name, public_key=data[1:])
    shaped = len(data) == 1 + PUBLIC_KEY_BYTES and data[0] == ED25519
    # Encoded again and compared: some keys have several spellings in base64, and the id
    # between the two plus signs is a hash of name and key.
    if (
        LOG_NAME.fullmatch(name) is None
        or not shaped
        or encode_key(key) != text.strip()
    ):
        raise _refused("not a verifier key of an audit log")
    return key


def sign_head(head: AuditHead, key: NoteKey, sign: Sign) -> str:
    """Return the signed note.

    Args:
        head: the content to be signed.
        key: the public key; its name is the log's id.
        sign: signs with the private key.
    """
    root = base64.b64encode(head.root).decode()
    body = (
        f"{head.log}\n{head.size}\n{root}\n"
        f"{_HEAD}{head.head}\n{_TIME}{time_text(head.time)}\n"
    )
    signature = base64.b64encode(key.key_id(ED25519) + sign(body.encode())).decode()
    return f"{body}\n\u2014 {key.name} {signature}\n"


def verify_head(text: str, key: NoteKey) -> AuditHead:
    """Verify a checkpoint's signature and return its content.

    Raises:
        AuditRefusedError: another log, another key, or not a checkpoint.
    """
    if len(text) > MAX_CHECKPOINT_BYTES:
        raise _refused("checkpoint: too long")
    # A local log has no witnesses; checkpoints kept elsewhere take their place.
    trusted = TrustedLog(origin=key.name, key=key, witnesses=())
    try:
        checkpoint = verify_checkpoint(text, trusted)
        lines = parse_note(text).body[:-1].split("\n")
    except RefusedError as refusal:
        raise _refused(f"checkpoint: {refusal}") from None
    # The three lines of any C2SP checkpoint, then our two extension lines. A sixth
    # would be signed and never read.
    if len(lines) != _BODY_LINES:
        raise _refused("checkpoint: not five lines")
    head, time = lines[3], lines[4]
    if not head.startswith(_HEAD) or _HASH.fullmatch(head[len(_HEAD) :]) is None:
        raise _refused("checkpoint: no head")
    if not time.startswith(_TIME):
        raise _refused("checkpoint: no time")
    try:
        signed_at = parse_time(time.removeprefix(_TIME))
    except ValueError:
        raise _refused("checkpoint: no time") from None
    return AuditHead(
        log=checkpoint.origin,
        size=checkpoint.size,
        root=checkpoint.root,
        head=head.removeprefix(_HEAD),
        time=signed_at,
    )


def _refused(detail: str) -> AuditRefusedError:
    return AuditRefusedError(AuditStep.CHECKPOINTS, detail)
