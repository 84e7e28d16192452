"""The manifest of local models: which model devices use next, and how many do.

A leaf of a log, signed and proven like a release's manifest, but of another ``kind``,
so that neither is ever taken for the other. Its contents are for the devices that run
these models; this module checks its form, its audience, and its succession.
"""

import hashlib
import re
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final

from curtilage.attest.encoding.strict_json import (
    Fields,
    canonical_json,
    malformed,
    parse_object,
)
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import MAX_MANIFEST_BYTES
from curtilage.attest.log.manifest import ReleaseManifest, parse_manifest
from curtilage.attest.log.witness_policy import LogPolicy

KIND: Final = "home-models"
VERSION: Final = 1
STAGES: Final = (1, 5, 25, 100)
"""Percent of the devices that use a model, stage by stage."""
DEVICE_BYTES: Final = 32
MAX_ARMS: Final = 2
_ALL: Final = 100  # percent
_PERMILLE: Final = 1000
_DRAW: Final = b"curtilage/home-models/v1\0"
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_KEYS: Final = ("v", "kind", "name", "serial", "not_after", "previous", "arms")
_ARM_KEYS: Final = ("percent", "promised_permille", "model")
_MODEL_KEYS: Final = ("sha256", "size_bytes", "adapter", "adapter_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """A model: a file, and an adapter on it where there is one.

    Attributes:
        sha256: of the model's file, lower-case hex.
        size_bytes: its size.
        adapter: SHA-256 of a LoRA adapter, made for this file and no other; "": none.
        adapter_bytes: its size; 0 likewise.
    """

    sha256: str
    size_bytes: int
    adapter: str = ""
    adapter_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A model that some of the devices use.

    Attributes:
        percent: how many, 1 to 100.
        promised_permille: of a thousand answers, how many are good at least, as was
            measured beforehand; what is graded lower than this is taken back.
        model: which.
    """

    percent: int
    promised_permille: int
    model: ModelFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelManifest:
    """Model that the devices of an organisation run.

    Attributes:
        name: of the line of manifests, of which each replaces the one before.
        serial: its number in that line; only a larger one replaces it.
        not_after: Unix time after which no device takes it any more.
        previous: what the other devices run, and those for which an arm was not good.
        arms: one for a model that is rolled out, two for a comparison.
    """

    name: str
    serial: int
    not_after: int
    previous: ModelFiles
    arms: tuple[Arm, ...]

    @property
    def version(self) -> str:
        """Its number, in place of a release's version."""
        return str(self.serial)

    @property
    def subject(self) -> str:
        """Digest of what is rolled out, hex; the same in each of its stages."""
        what = {
            "name": self.name,
            "previous": asdict(self.previous),
            "arms": [
                {
                    "promised_permille": arm.promised_permille,
                    "model": asdict(arm.model),
                }
                for arm in self.arms
            ],
        }
        return hashlib.sha256(canonical_json(what)).hexdigest()

    def arm_of(self, device: bytes) -> Arm | None:
        """Return which model a device uses; None: ``previous``.

        By the subject and not by the manifest: a device that took a model in one stage
        has it in each that is larger, and goes back and forth with none.

        Args:
            device: 32 random bytes that are never disclosed.
        """
        drawn = hashlib.sha256(_DRAW + bytes.fromhex(self.subject) + device).digest()
        place = int.from_bytes(drawn[:8]) * _ALL >> 64
        if place < self.arms[0].percent:
            return self.arms[0]
        # From the other end, so that both may grow and no device changes between them.
        if len(self.arms) > 1 and place >= _ALL - self.arms[1].percent:
            return self.arms[1]
        return None


def encode_model_manifest(manifest: ModelManifest) -> bytes:
    """Encode a manifest; these bytes are the log's leaf."""
    return canonical_json({"v": VERSION, "kind": KIND, **asdict(manifest)})


def parse_model_manifest(data: bytes) -> ModelManifest:
    """Parse a manifest; anything but its canonical encoding is refused.

    Raises:
        RefusedError: ``malformed``, ``too_large`` or ``unsupported_version``.
    """
    fields = parse_object(data, where="manifest", limit_bytes=MAX_MANIFEST_BYTES)
    if fields.text("kind", limit=len(KIND)) != KIND or fields.integer("v") != VERSION:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_VERSION,
            f"manifest: not of kind {KIND!r} and version {VERSION}",
        )
    fields.require(_KEYS)
    name = fields.text("name", limit=64)
    if _NAME.fullmatch(name) is None:
        raise malformed("manifest.name: invalid character, or too long")
    arms: list[Arm] = []
    for entry in fields.children("arms", limit=MAX_ARMS):
        entry.require(_ARM_KEYS)
        arms.append(
            Arm(
                percent=entry.integer("percent", maximum=_ALL),
                promised_permille=entry.integer(
                    "promised_permille", maximum=_PERMILLE - 1
                ),
                model=_model(entry.child("model")),
            )
        )
    manifest = ModelManifest(
        name=name,
        serial=fields.integer("serial"),
        not_after=fields.integer("not_after"),
        previous=_model(fields.child("previous")),
        arms=tuple(arms),
    )
    models = {manifest.previous, *(arm.model for arm in arms)}
    if not arms or len(models) <= len(arms):
        raise malformed("manifest.arms: it is empty, or lists a model twice")
    if not all(arm.percent and arm.promised_permille for arm in arms):
        raise malformed("manifest.arms: a share or a promise of zero")
    if sum(arm.percent for arm in arms) > _ALL:
        raise malformed("manifest.arms: more than all devices")
    # One manifest, one leaf; see ``parse_manifest``.
    if encode_model_manifest(manifest) != data:
        raise malformed("manifest: not in canonical form")
    return manifest


def _model(fields: Fields) -> ModelFiles:
    fields.require(_MODEL_KEYS)
    model = ModelFiles(
        sha256=fields.text("sha256", limit=64),
        size_bytes=fields.integer("size_bytes"),
        adapter=fields.text("adapter", limit=64),
        adapter_bytes=fields.integer("adapter_bytes"),
    )
    digests = (model.sha256, model.adapter) if model.adapter else (model.sha256,)
    if not all(_SHA256.fullmatch(each) for each in digests):
        raise malformed("manifest: not lower-case hex of the right length")
    if not model.size_bytes or (model.adapter == "") != (model.adapter_bytes == 0):
        raise malformed("manifest: a file without a size, or a size without a file")
    return model


def parse_leaf(data: bytes) -> ReleaseManifest | ModelManifest:
    """Parse a leaf of a log: a manifest of either kind.

    Raises:
        RefusedError: see ``parse_manifest``.
    """
    fields = parse_object(data, where="manifest", limit_bytes=MAX_MANIFEST_BYTES)
    return (
        parse_model_manifest(data) if "kind" in fields.names else parse_manifest(data)
    )


def verify_model_manifest(
    data: bytes, proof: str, *, log: LogPolicy, name: str
) -> ModelManifest:
    """Verify that a manifest was logged, and is of the requested line.

    Says nothing of its age: one that a device follows holds until another replaces it.

    Args:
        data: its exact bytes, which are the leaf.
        proof: a tlog-proof; empty: it was not logged.
        log: whose log, and whose cosignatures suffice.
        name: of the line.

    Raises:
        RefusedError: ``release_not_logged``, and whatever the log policy and the
            parser refuse.
    """
    if not proof:
        raise RefusedError(RefusalCode.RELEASE_NOT_LOGGED, "there is no proof")
    # First the proof: what no log vouches for may be anybody's bytes.
    log.verify_proof(proof, leaf=data)
    manifest = parse_model_manifest(data)
    if manifest.name != name:
        raise RefusedError(
            RefusalCode.RELEASE_NOT_LOGGED, "it has another name than requested"
        )
    return manifest


def require_next(manifest: ModelManifest, *, serial: int | None, now: datetime) -> None:
    """Refuse a manifest that must not take effect now.

    Args:
        manifest: a verified one.
        serial: the largest that ever was in force here; None: there was none.
        now: the time, aware.

    Raises:
        RefusedError: ``stale``: it has expired, or is not newer. Otherwise an old one,
            with its proof, could bring back a model that was withdrawn.
    """
    if now.timestamp() >= manifest.not_after:
        raise RefusedError(RefusalCode.STALE, "the manifest has expired")
    if serial is not None and manifest.serial <= serial:
        raise RefusedError(
            RefusalCode.STALE,
            f"number {manifest.serial} is not newer than {serial}, which was in force",
        )
