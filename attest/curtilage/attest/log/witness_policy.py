"""Trusted logs and the cosignatures that suffice: C2SP tlog-policy.

::

    log <vkey> [<url>]
    witness <name> <vkey> [<url>]
    group <name> all|any|<k> <name>...
    quorum <name>|none

Names are opaque bytes, as the document requires: no two spellings of a name
are one. Two lines with one public key are refused, whatever their names say: a
witness would count twice, and a log that is its own witness vouches for nothing.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from curtilage.attest.encoding.strict_json import too_large
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.log.note import (
    COSIGNATURE_V1,
    ED25519,
    SUBTREE_V1,
    Checkpoint,
    Inclusion,
    NoteKey,
    TrustedLog,
    cosignature_time,
    parse_checkpoint,
    parse_proof,
    verify_checkpoint,
)
from curtilage.attest.log.vkeys import parse_verifier_key

MAX_POLICY_BYTES: Final = 256 * 1024
MAX_NAMES: Final = 64
"""Logs, witnesses and groups, each; the document requires at least 32."""
NO_QUORUM: Final = b"none"
# A name that no file can spell, because it holds spaces.
_SIMPLE: Final = b"so many witnesses"
_ALLOWED: Final = re.compile(rb"[\t\n\x20-\x7e\x80-\xff]*")
_SPACE: Final = re.compile(rb"[ \t]+")
_DECIMAL: Final = re.compile(rb"[1-9][0-9]{0,4}")
_LOG_TYPES: Final = frozenset({ED25519, SUBTREE_V1})
_WITNESS_TYPES: Final = frozenset({COSIGNATURE_V1, SUBTREE_V1})


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group: how many of these members must have cosigned.

    Attributes:
        threshold: 1 to the number of members.
        members: names of witnesses and of groups.
    """

    threshold: int
    members: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPolicy:
    """Logs, witnesses, and the quorum.

    Attributes:
        logs: each trusted for checkpoints whose origin is its key's name.
        witnesses: keys by the policy's own names.
        groups: by name; members are named before the group.
        quorum: a witness's or a group's name; ``none``: cosignatures are not
            asked for.
    """

    logs: tuple[NoteKey, ...]
    witnesses: Mapping[bytes, NoteKey]
    groups: Mapping[bytes, Group]
    quorum: bytes

    def __post_init__(self) -> None:
        """Make the mappings immutable."""
        for name in ("witnesses", "groups"):
            frozen = MappingProxyType(dict(getattr(self, name)))
            object.__setattr__(self, name, frozen)

    def verify_checkpoint(self, text: str) -> "Witnessed":
        """Verify a checkpoint of any of the logs, and that the quorum is met.

        Raises:
            RefusedError: ``untrusted_root`` for another log's, ``quorum_not_met``,
                and whatever ``note.verify_checkpoint`` raises.
        """
        note, head = parse_checkpoint(text)
        # The log first; see ``log.note``.
        checkpoint = self._signed(text, head.origin)
        times = {
            name: time
            for name, key in self.witnesses.items()
            if (time := cosignature_time(note, head, key)) is not None
        }
        # Must be requested by name in the file, never by leaving out a line.
        if self.quorum == NO_QUORUM:
            return Witnessed(checkpoint=checkpoint, times=times, vouched_time=None)
        reached = self._time_of(self.quorum, times)
        if reached is None:
            raise RefusedError(
                RefusalCode.QUORUM_NOT_MET,
                f"{len(times)} of {len(self.witnesses)} witnesses have cosigned",
            )
        return Witnessed(checkpoint=checkpoint, times=times, vouched_time=reached)

    def verify_proof(self, text: str, *, leaf: bytes) -> tuple[Inclusion, "Witnessed"]:
        """Verify a tlog-proof and its checkpoint; see ``verify_checkpoint``."""
        proof = parse_proof(text)
        witnessed = self.verify_checkpoint(proof.checkpoint)
        return proof.inclusion_of(leaf, witnessed.checkpoint), witnessed

    def without_quorum(self) -> "LogPolicy":
        """Return the same logs and witnesses, without a quorum."""
        return replace(self, quorum=NO_QUORUM)

    def _signed(self, text: str, origin: str) -> Checkpoint:
        # Several keys for one log while its operator changes from one to the next.
        keys = [key for key in self.logs if key.name == origin]
        if not keys:
            raise RefusedError(RefusalCode.UNTRUSTED_ROOT, "checkpoint of another log")
        for key in keys:
            # Witnesses are checked once, above, and by the policy's own names.
            log = TrustedLog(origin=origin, key=key, witnesses=())
            try:
                return verify_checkpoint(text, log)
            except RefusedError as refusal:
                # Another key of this log may have signed; a bad signature of one
                # that did sign refuses the note.
                if refusal.code is not RefusalCode.UNSIGNED:
                    raise
        raise RefusedError(RefusalCode.UNSIGNED, "no key of the log has signed")

    def _time_of(self, name: bytes, times: Mapping[bytes, int]) -> int | None:
        """Return the latest time that a witness or a group has reached."""
        group = self.groups.get(name)
        if group is None:
            return times.get(name)
        reached = [
            time
            for member in group.members
            if (time := self._time_of(member, times)) is not None
        ]
        # A group that is short of its threshold has reached no time at all, though some
        # of its members have.
        if len(reached) < group.threshold:
            return None
        # The latest time that so many have reached: one clock that runs ahead moves
        # nothing where more than one is asked.
        return sorted(reached, reverse=True)[group.threshold - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnessed:
    """A checkpoint that a log policy accepts.

    Attributes:
        checkpoint: the tree head; its ``cosigned`` is empty, for a policy has
            names of its own.
        times: by the policy's names, the latest time of each that cosigned.
        vouched_time: Unix time that a whole quorum has reached; None under
            ``quorum none``, where no time is vouched for.
    """

    checkpoint: Checkpoint
    times: Mapping[bytes, int]
    vouched_time: int | None


def simple_policy(
    *, log: NoteKey, witnesses: Sequence[NoteKey], quorum: int
) -> LogPolicy:
    """Return the policy of one log and a quorum of some witnesses.

    Args:
        log: its name is the origin.
        witnesses: each under its key's name.
        quorum: how many; 0 asks for none.

    Raises:
        RefusedError: ``policy_invalid``.
    """
    draft = _Draft()
    draft.add_log(log)
    for witness in witnesses:
        draft.add_witness(witness.name.encode(), witness)
    if quorum == 0:
        return draft.finish(NO_QUORUM)
    names = tuple(draft.witnesses)
    draft.groups[_SIMPLE] = Group(threshold=quorum, members=names)
    if not 1 <= quorum <= len(names):
        raise _invalid("the quorum is not between 1 and the number of witnesses")
    return draft.finish(_SIMPLE)


def parse_policy(data: bytes) -> LogPolicy:
    """Read a tlog-policy file.

    Raises:
        RefusedError: ``policy_invalid`` with the line; ``too_large``.
    """
    if len(data) > MAX_POLICY_BYTES:
        raise too_large(f"log policy: more than {MAX_POLICY_BYTES} bytes")
    draft = _Draft()
    # Before lines are split: a carriage return would make one line of two for a person,
    # and two of one for a program.
    if _ALLOWED.fullmatch(data) is None:
        raise _invalid("control character")
    # A file that was cut off in its last line could ask for less.
    if not data.endswith(b"\n"):
        raise _invalid("bytes after the last newline")
    for number, line in enumerate(data.split(b"\n"), start=1):
        words = [word for word in _SPACE.split(line) if word]
        if not words or words[0].startswith(b"#"):
            continue
        try:
            draft.take(words)
        except RefusedError as refusal:
            raise _invalid(f"line {number}: {refusal.detail}") from None
    # A missing line is not "none": that must be written explicitly.
    if draft.quorum is None:
        raise _invalid("there is no quorum line")
    return draft.finish(draft.quorum)


@dataclass(slots=True)
class _Draft:
    """Builds a policy from its lines."""

    logs: list[NoteKey] = field(default_factory=list[NoteKey])
    witnesses: dict[bytes, NoteKey] = field(default_factory=dict[bytes, NoteKey])
    groups: dict[bytes, Group] = field(default_factory=dict[bytes, Group])
    quorum: bytes | None = None
    used: set[bytes] = field(default_factory=set[bytes])
    keys: set[bytes] = field(default_factory=set[bytes])

    def take(self, words: Sequence[bytes]) -> None:
        """Read one line."""
        kinds: dict[bytes, Callable[[Sequence[bytes]], None]] = {
            b"log": self._log,
            b"witness": self._witness,
            b"group": self._group,
            b"quorum": self._quorum,
        }
        if words[0] not in kinds:
            raise _invalid("neither log, witness, group nor quorum")
        kinds[words[0]](words[1:])

    def add_log(self, key: NoteKey) -> None:
        """Add a log."""
        self._new_key(key)
        self.logs.append(key)
        _few(self.logs)

    def add_witness(self, name: bytes, key: NoteKey) -> None:
        """Add a witness."""
        self._new_name(name)
        self._new_key(key)
        self.witnesses[name] = key
        _few(self.witnesses)

    def finish(self, quorum: bytes) -> LogPolicy:
        """Return the policy."""
        return LogPolicy(
            logs=tuple(self.logs),
            witnesses=self.witnesses,
            groups=self.groups,
            quorum=quorum,
        )

    def _log(self, words: Sequence[bytes]) -> None:
        # A word more is a word that would be passed over, such as a second key.
        if len(words) not in {1, 2}:
            raise _invalid("a log line is: log <vkey> [<url>]")
        self.add_log(_key(words[0], _LOG_TYPES))

    def _witness(self, words: Sequence[bytes]) -> None:
        if len(words) not in {2, 3}:
            raise _invalid("a witness line is: witness <name> <vkey> [<url>]")
        self.add_witness(words[0], _key(words[1], _WITNESS_TYPES))

    def _group(self, words: Sequence[bytes]) -> None:
        if len(words) < 3:  # noqa: PLR2004 - name, threshold and a member
            raise _invalid("a group line is: group <name> all|any|<k> <name>...")
        name, threshold, *members = words
        for member in members:
            self._known(member)
            # A witness in two groups would be counted twice toward one quorum.
            if member in self.used:
                raise _invalid("a name is a member twice")
            self.used.add(member)
        self._new_name(name)
        self.groups[name] = Group(
            threshold=_threshold(threshold, len(members)), members=tuple(members)
        )
        _few(self.groups)

    def _quorum(self, words: Sequence[bytes]) -> None:
        if len(words) != 1 or self.quorum is not None:
            raise _invalid("there is one line: quorum <name>")
        if words[0] != NO_QUORUM:
            self._known(words[0])
        self.quorum = words[0]

    def _known(self, name: bytes) -> None:
        # Defined before it is used, so no group holds itself and the walk over groups
        # ends.
        if name not in self.witnesses and name not in self.groups:
            raise _invalid("a name is used before it is defined")

    def _new_name(self, name: bytes) -> None:
        if name == NO_QUORUM or name in self.witnesses or name in self.groups:
            raise _invalid("a name is defined twice, or is 'none'")

    def _new_key(self, key: NoteKey) -> None:
        # By the key, not by the name: one witness under two names is still one.
        if key.public_key in self.keys:
            raise _invalid("a public key is named twice")
        self.keys.add(key.public_key)


def _key(word: bytes, allowed: frozenset[int]) -> NoteKey:
    try:
        found = parse_verifier_key(word.decode())
    except UnicodeDecodeError:
        raise _invalid("verifier key: not UTF-8") from None
    # A log's key is no witness's, even with the same bytes: what each signs has another
    # form.
    if found.signature_type not in allowed:
        raise _invalid("verifier key: of a type that signs something else")
    return found.key


def _threshold(word: bytes, members: int) -> int:
    words = {b"all": members, b"any": 1}
    if word in words:
        return words[word]
    if _DECIMAL.fullmatch(word) is None or int(word) > members:
        raise _invalid("a threshold is all, any, or 1 to the number of members")
    return int(word)


def _few(names: Sequence[NoteKey] | Mapping[bytes, object]) -> None:
    # A bound of our own: each name costs a verification with every checkpoint.
    if len(names) > MAX_NAMES:
        raise _invalid(f"more than {MAX_NAMES} of a kind")


def _invalid(detail: str) -> RefusedError:
    return RefusedError(RefusalCode.POLICY_INVALID, detail)
