"""The file of ``curtilage attest export``: one canonical JSON object.

Pure. docs/attestation.md has its members. Everything that a verdict follows from is in
it: the bundle as it was served, the policy's text with its packs and the digests of its
lists, what the policy expects of evidence, and the verdict. Two members repeat what
follows from others, for readers without this program: ``parts`` takes the bundle apart,
``expectations`` is the policy as data. Neither is believed: both are computed again,
and must be equal.
"""

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final, cast

from curtilage.attest.encoding.strict_json import (
    canonical_json,
    encode_base64,
    malformed,
)
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence_json import cpu_object, device_object, parse_bundle
from curtilage.attest.expectations import Expectations
from curtilage.cli.attest.foreign.reader import Members, members_of
from curtilage.cli.json_lines import object_of
from curtilage.cli.terminal import time_text

KIND: Final = "curtilage-attestation-export"
VERSION: Final = 1
MAX_FILE_BYTES: Final = 256 * 1024 * 1024
"""Limit of the file; a policy's lists may be large."""

_KEYS: Final = frozenset(
    {"v", "kind", "made", "bundle", "parts", "policy", "expectations", "verdict"}
)
_POLICY_KEYS: Final = frozenset({"digest", "text", "packs", "files"})
_MAX_LISTED: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyParts:
    """Everything that a policy's digest covers.

    Attributes:
        text: the policy's text.
        packs: the packs that it names, in its order: name to text.
        digests: of the files that it names: name to SHA-256 in hex.
        contents: of those files; only the ones that are known.
    """

    text: str = field(repr=False)
    packs: Mapping[str, str] = field(repr=False)
    digests: Mapping[str, str]
    contents: Mapping[str, bytes] = field(repr=False)

    @property
    def digest(self) -> str:
        """The policy's digest, as ``attachments.digest_of`` computes it."""
        lines = [f"pack {name} {_sha256(text)}" for name, text in self.packs.items()]
        lines += [f"file {name} {self.digests[name]}" for name in sorted(self.digests)]
        digest = _sha256(self.text)
        if lines:
            # From the digests alone: a list of names need not be given away for it.
            whole = ["curtilage-policy-digest 1", f"policy {digest}", *lines, ""]
            digest = _sha256("\n".join(whole))
        return "sha256:" + digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """An exported verdict with all that it follows from.

    Attributes:
        made: when the verdict was reached.
        bundle: the bytes that were served.
        policy: what the policy consists of.
        expectations: what it expects of evidence, as JSON.
        verdict: the JSON object that ``attest verify`` prints.
    """

    made: datetime
    bundle: bytes = field(repr=False)
    policy: PolicyParts = field(repr=False)
    expectations: Mapping[str, object] = field(repr=False)
    verdict: Mapping[str, object] = field(repr=False)

    def encode(self) -> bytes:
        """Return the file: canonical JSON and a line feed."""
        policy = self.policy
        value = {
            "v": VERSION,
            "kind": KIND,
            "made": time_text(self.made),
            "bundle": encode_base64(self.bundle),
            "parts": parts_of(self.bundle),
            "policy": {
                "digest": policy.digest,
                "text": policy.text,
                # Lists, since the order of the packs is part of the digest.
                "packs": [
                    {"name": name, "text": text} for name, text in policy.packs.items()
                ],
                "files": [
                    _file_object(name, policy) for name in sorted(policy.digests)
                ],
            },
            "expectations": self.expectations,
            "verdict": self.verdict,
        }
        return canonical_json(value) + b"\n"


def _file_object(name: str, policy: PolicyParts) -> Mapping[str, str]:
    entry = {"name": name, "sha256": policy.digests[name]}
    content = policy.contents.get(name)
    return entry if content is None else {**entry, "content": encode_base64(content)}


def parts_of(bundle: bytes) -> Mapping[str, object]:
    """Return a bundle's parts as tools read them; empty if it is not a bundle."""
    try:
        parsed = parse_bundle(bundle)
        manifest = parsed.release.manifest.decode()
    except (RefusedError, UnicodeDecodeError):
        return {}
    return {
        "manifest": manifest,
        "log_proof": parsed.release.proof,
        "checkpoint": parsed.anchor.checkpoint,
        "cpu": cpu_object(parsed.cpu),
        "devices": [device_object(device) for device in parsed.devices],
    }


def expectations_object(expectations: Expectations) -> Mapping[str, object]:
    """Return what a policy expects of evidence, as JSON; bytes in hexadecimal."""
    return cast("Mapping[str, object]", _plain(expectations))


def _plain(value: object) -> object:
    # By the shape of the value and not name by name: an expectation that is added later
    # cannot be left out here.
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        found = cast("Mapping[object, object]", value)
        return {str(_plain(name)): _plain(each) for name, each in found.items()}
    if isinstance(value, tuple | frozenset):
        several = cast("tuple[object, ...] | frozenset[object]", value)
        members = [_plain(each) for each in several]
        # The order of a set differs from run to run.
        return members if isinstance(value, tuple) else sorted(members, key=_order)
    if isinstance(value, bytes):
        return value.hex()
    return value.value if isinstance(value, Enum) else value


def _order(value: object) -> bytes:
    return canonical_json(value)


def read_export(data: bytes) -> Export:
    """Read a file; what repeats other members must follow from them.

    Raises:
        RefusedError: ``malformed`` or ``unsupported_version``.
    """
    value = object_of(data)
    if value is None:
        raise malformed("export: not one JSON object, or a key is repeated")
    export = members_of(value, "export")
    if export.value("kind") != KIND or export.value("v") != VERSION:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_VERSION, f"export: not {KIND} of version {VERSION}"
        )
    _require(export, _KEYS)
    # Spaces or another order would give one content several digests.
    if canonical_json(value) + b"\n" != data:
        raise malformed("export: not in canonical form")
    bundle = export.base64("bundle")
    if export.value("parts") != parts_of(bundle):
        raise malformed("export.parts: not those of the bundle")
    return Export(
        made=_time(export.text("made")),
        bundle=bundle,
        policy=_policy(export.child("policy")),
        expectations=_object(export, "expectations"),
        verdict=_object(export, "verdict"),
    )


def _policy(members: Members) -> PolicyParts:
    _require(members, _POLICY_KEYS)
    packs: dict[str, str] = {}
    for entry in members.children("packs", limit=_MAX_LISTED):
        packs[_once(entry, packs)] = entry.text("text", limit=MAX_FILE_BYTES)
    digests: dict[str, str] = {}
    contents: dict[str, bytes] = {}
    for entry in members.children("files", limit=_MAX_LISTED):
        name = _once(entry, digests)
        digests[name] = entry.hexadecimal("sha256", length=32).hex()
        if entry.has("content"):
            contents[name] = entry.base64("content", limit=MAX_FILE_BYTES)
            # The digest covers the name of the list and this digest, not its content.
            if hashlib.sha256(contents[name]).hexdigest() != digests[name]:
                raise _invalid("a list has another digest than the file says")
    parts = PolicyParts(
        text=members.text("text"), packs=packs, digests=digests, contents=contents
    )
    if members.text("digest") != parts.digest:
        raise _invalid("the policy's digest is not that of its parts")
    return parts


def _once(entry: Members, known: Iterable[str]) -> str:
    name = entry.text("name")
    # Of two, a reader would have to guess which one is in force.
    if name in known:
        raise malformed("export.policy: a pack or a list twice")
    return name


def _object(export: Members, name: str) -> Mapping[str, object]:
    export.child(name)
    return cast("Mapping[str, object]", export.value(name))


def _require(members: Members, keys: frozenset[str]) -> None:
    if members.names != keys:
        raise malformed(f"{members.where}: not exactly {', '.join(sorted(keys))}")


def _time(text: str) -> datetime:
    with suppress(ValueError, OverflowError):
        made = datetime.fromisoformat(text)
        # One spelling of each time, which is also the verdict's.
        if made.tzinfo is not None and time_text(made) == text:
            return made.astimezone(UTC)
    raise malformed("export.made: not a time in UTC, to the second")


def _invalid(detail: str) -> RefusedError:
    return RefusedError(RefusalCode.POLICY_INVALID, detail)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
