"""The rollout that this device follows: the model and the period of its use.

A manifest takes effect here when it is taken, and remains until a newer one is.
Every check verifies it again. The state is one private file: the manifest and its
proof, the random number that gives this device its place among all, and what was
withdrawn here. None of it is sent; a rollout sends nothing and fetches nothing.
"""

import math
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final, Self

from curtilage.attest.encoding.strict_json import (
    canonical_json,
    encode_base64,
    parse_object,
)
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import MAX_MANIFEST_BYTES
from curtilage.attest.log.model_manifest import (
    DEVICE_BYTES,
    Arm,
    ModelFiles,
    ModelManifest,
    parse_model_manifest,
    require_next,
    verify_model_manifest,
)
from curtilage.attest.log.witness_policy import LogPolicy
from curtilage.client.errors import ClientError, ConfigError
from curtilage.client.local.model import ModelChoice, resolve_digest
from curtilage.client.local.registry.store import Registry, make_private
from curtilage.client.routing.drift import first_alarm
from curtilage.client.routing.trace import TRACE_NAME, model_tag, read_grades
from curtilage.client.system.files import (
    data_folder,
    locked,
    read_bounded,
    state_folder,
    write_private_atomically,
)
from curtilage.policy.document.routing_settings import Rollout as RolloutSettings

LEAST_GRADED: Final = 100
"""Graded answers that are needed before a model is withdrawn automatically."""
_MAX_BYTES: Final = 1 << 20
_MOST_WITHDRAWN: Final = 64
_VERSION: Final = 1
NO_MANIFEST: Final = "no manifest was taken yet"
NONE_IN_FORCE: Final = "no manifest is in force here"
NO_GRADES: Final = "grades cannot be read"
NOT_TRUSTED: Final = "the manifest that was taken is no longer trusted"


class RolloutError(ConfigError):
    """A manifest was rejected; nothing has changed."""


class FilesMissingError(RolloutError):
    """A manifest was rejected, since files of its models are missing.

    Attributes:
        missing: the models; the device runs one, and may return to the other.
    """

    def __init__(self, missing: tuple[ModelFiles, ...]) -> None:
        super().__init__(
            "the model and the one before it must both be here; missing: "
            + ", ".join(f"sha256:{each.adapter or each.sha256}" for each in missing)
        )
        self.missing = missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The current state of the rollout.

    Attributes:
        manifest: the one in force; None: there is no valid one.
        arm: the model for this device; None: the previous model.
        withdrawn: whether it was withdrawn here.
        graded: number of graded answers of the arm's model here.
        good: how many of these were good.
        alarm: number of grades after which it was certain that the model is worse than
            promised; None: it is not.
        problem: a notice for the user; empty: none.
    """

    manifest: ModelManifest | None = None
    arm: Arm | None = None
    withdrawn: bool = False
    graded: int = 0
    good: int = 0
    alarm: int | None = None
    problem: str = ""

    @property
    def run(self) -> ModelFiles | None:
        """The model to run; None: no rollout specifies one."""
        if self.manifest is None:
            return None
        gone = self.withdrawn or self.alarm is not None
        return self.manifest.previous if self.arm is None or gone else self.arm.model


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """The saved state.

    Attributes:
        device: the random number of this device.
        leaf: the manifest in force, with the highest number so far.
        proof: of its entry in the log.
        withdrawn: subjects of manifests that were withdrawn here, oldest first.
    """

    device: bytes
    leaf: bytes = b""
    proof: str = ""
    withdrawn: tuple[str, ...] = ()

    def encoded(self) -> bytes:
        return canonical_json(
            {
                "v": _VERSION,
                "device": encode_base64(self.device),
                "leaf": encode_base64(self.leaf),
                "proof": self.proof,
                "withdrawn": list(self.withdrawn),
            }
        )

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Parse it; raises RefusedError for anything but our own format."""
        fields = parse_object(data, where="rollout", limit_bytes=_MAX_BYTES)
        fields.require(("v", "device", "leaf", "proof", "withdrawn"))
        state = cls(
            device=fields.octets("device", limit=DEVICE_BYTES),
            leaf=fields.octets("leaf", limit=MAX_MANIFEST_BYTES),
            proof=fields.text("proof", limit=_MAX_BYTES),
            withdrawn=fields.texts("withdrawn", limit=_MOST_WITHDRAWN, item_limit=64),
        )
        if state.encoded() != data or len(state.device) != DEVICE_BYTES:
            raise RefusedError(RefusalCode.MALFORMED, "rollout: not as it was written")
        return state


class Rollout:
    """The effect of one series of manifests on this device.

    Args:
        name: of the line of manifests to follow.
        log: the log that each must be in, and which cosignatures suffice.
        folder: of the state; created, for its owner only, when first written.
        registry: the installed models.
        trace: the graded answers.
        draw: returns this many random bytes.
    """

    def __init__(
        self,
        name: str,
        log: LogPolicy,
        *,
        folder: Path,
        registry: Registry,
        trace: Path,
        draw: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._name, self._log = name, log
        self._folder = folder
        self._file = folder / f"{name}.json"
        self._registry = registry
        self._trace = trace
        self._draw = draw

    @classmethod
    def on_this_device(cls, settings: RolloutSettings) -> Self:
        """Return the rollout with this user's models, state and grades."""
        return cls(
            settings.name,
            settings.log_policy(),
            folder=data_folder() / "rollouts",
            registry=Registry(),
            trace=state_folder() / TRACE_NAME,
        )

    def choice(self, model: ModelFiles) -> ModelChoice | None:
        """Return the files of a model; None: some are missing.

        Raises:
            ConfigError: the registry cannot be read.
        """
        return resolve_digest(
            model.sha256, adapter=model.adapter, registry=self._registry
        )

    def take(self, leaf: bytes, proof: str, *, now: datetime) -> ModelManifest:
        """Put a manifest into force.

        Args:
            leaf: the manifest's bytes.
            proof: of its entry in the log.
            now: the time, aware.

        Raises:
            RolloutError: it does not verify, has expired, or is not newer than one
                that was in force; or the state cannot be read.
            FilesMissingError: one of its models is missing.
            OSError: it cannot be written.
        """
        with self._locked():
            state = self._read()
            try:
                manifest = self._verified(leaf, proof)
                # Also with another signer, the serial number must increase.
                serial = None
                if state is not None and state.leaf:
                    serial = parse_model_manifest(state.leaf).serial
                require_next(manifest, serial=serial, now=now)
            except RefusedError as refusal:
                raise RolloutError(f"{refusal.code}: {refusal.detail}") from None
            if state is None:
                # Saved before missing files are reported: otherwise a user could retry
                # until a number requires none, and the shares would be biased.
                state = _State(device=self._draw(DEVICE_BYTES))
                self._write(state)
            arm = manifest.arm_of(state.device)
            wanted = (manifest.previous, *(() if arm is None else (arm.model,)))
            if missing := tuple(each for each in wanted if self.choice(each) is None):
                raise FilesMissingError(missing)
            self._write(replace(state, leaf=leaf, proof=proof))
        return manifest

    def withdraw(self) -> ModelManifest:
        """Withdraw what the manifest in force rolls out, on this device; all stages.

        Raises:
            RolloutError: none is in force.
            OSError: it cannot be written.
        """
        with self._locked():
            state, manifest = self._read(), None
            if state is not None:
                with suppress(RefusedError):
                    manifest = self._verified(state.leaf, state.proof)
            if state is None or manifest is None:
                raise RolloutError(NONE_IN_FORCE)
            kept = [each for each in state.withdrawn if each != manifest.subject]
            withdrawn = (*kept, manifest.subject)[-_MOST_WITHDRAWN:]
            self._write(replace(state, withdrawn=withdrawn))
        return manifest

    def standing(self, now: datetime) -> Standing:
        """Return the current state; changes nothing.

        Args:
            now: the time, aware.

        Raises:
            RolloutError: the saved state cannot be read.
        """
        state = self._read()
        if state is None or not state.leaf:
            return Standing(problem=NO_MANIFEST)
        try:
            manifest = self._verified(state.leaf, state.proof)
        except RefusedError as refusal:
            # The policy now trusts another log, or the file was changed.
            return Standing(problem=f"{NOT_TRUSTED}: {refusal.code}: {refusal.detail}")
        arm = manifest.arm_of(state.device)
        standing = Standing(
            manifest=manifest, arm=arm, withdrawn=manifest.subject in state.withdrawn
        )
        if now.timestamp() >= manifest.not_after:
            standing = replace(
                standing,
                problem="the manifest has expired; until a newer one is taken, "
                "nothing changes",
            )
        if arm is None:
            return standing
        tag = model_tag(arm.model.sha256, arm.model.adapter)
        try:
            grades = read_grades(self._trace, tag)
        except ClientError as failure:
            return replace(standing, problem=f"{NO_GRADES}: {failure}")
        alarm = first_alarm(
            arm.promised_permille / 1000, map(float, grades), least=LEAST_GRADED
        )
        return replace(standing, graded=len(grades), good=sum(grades), alarm=alarm)

    def look(self, now: datetime) -> Standing:
        """Return the current state, and withdraw a model that is worse than promised.

        Raises:
            RolloutError: as ``standing``.
            OSError: as ``withdraw``.
        """
        standing = self.standing(now)
        if standing.alarm is not None and not standing.withdrawn:
            self.withdraw()
        return standing

    def _verified(self, leaf: bytes, proof: str) -> ModelManifest:
        return verify_model_manifest(leaf, proof, log=self._log, name=self._name)

    @contextmanager
    def _locked(self) -> Generator[None]:
        make_private(self._folder)
        with locked(self._file.with_suffix(".lock"), math.inf):
            yield

    def _read(self) -> _State | None:
        if not self._file.exists():
            return None
        try:
            return _State.parse(read_bounded(self._file, _MAX_BYTES))
        except RefusedError:
            raise RolloutError(f"{self._file} is damaged") from None

    def _write(self, state: _State) -> None:
        with write_private_atomically(self._file) as file:
            file.write(state.encoded())
