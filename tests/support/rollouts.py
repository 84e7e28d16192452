"""A rollout to be followed: its log, its manifests, and models that are only files."""

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from curtilage.attest.encoding.strict_json import encode_base64
from curtilage.attest.log.model_manifest import (
    Arm,
    ModelFiles,
    ModelManifest,
    encode_model_manifest,
)
from curtilage.attest.log.witness_policy import LogPolicy, simple_policy
from curtilage.client.local.registry import Registry
from curtilage.client.local.rollout import Rollout
from curtilage.client.routing.trace import TraceFile, TraceOutcome, model_tag
from curtilage_dev.log import DevelopmentLog, new_signer, new_witness
from support.route_traces import LINE

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)
DEVICE = bytes(range(32))


class FollowedRollout:
    """One device, one log, and files ``old``, ``new`` and ``other`` in its registry."""

    def __init__(self, base: Path, *, data: Path | None = None) -> None:
        self.base = base
        self.data = data or base / "data"
        self.registry = Registry(self.data)
        self.trace = base / "routing.jsonl"
        self.log = DevelopmentLog(
            signer=new_signer("log.example/home"),
            witnesses=(new_witness("w.example"),),
            leaves=(),
        )
        self.old, self.new, self.other = (
            self.file(name) for name in ("old", "new", "other")
        )
        self.name = "clinic-home"
        self.trusted = simple_policy(
            log=self.log.signer.public,
            witnesses=[each.public for each in self.log.witnesses],
            quorum=1,
        )

    def file(self, name: str, *, registered: bool = True) -> ModelFiles:
        """Make a file that begins as a model does."""
        data = b"GGUF" + name.encode()
        path = self.base / f"{name}.gguf"
        path.write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        if registered:
            self.registry.add(name, path, digest)
        return ModelFiles(sha256=digest, size_bytes=len(data))

    def policy_text(self) -> str:
        """Return a section ``routing:`` that follows it."""
        key, (witness,) = self.log.signer.public, self.log.witnesses
        log = {
            "origin": key.name,
            "key": encode_base64(key.public_key),
            "witnesses": [
                {
                    "name": witness.name,
                    "key": encode_base64(witness.public.public_key),
                }
            ],
            "quorum": 1,
        }
        rollout = json.dumps({"name": self.name, "log": log})
        return (
            "routing:\n  tiers: [{id: device, kind: in_process}]\n"
            f"  rollout: {rollout}\n"
        )

    def rollout(self, log: LogPolicy | None = None) -> Rollout:
        return Rollout(
            self.name,
            log or self.trusted,
            folder=self.data / "rollouts",
            registry=self.registry,
            trace=self.trace,
            draw=lambda octets: DEVICE[:octets],
        )

    def manifest(
        self, serial: int = 1, *, percent: int = 100, model: ModelFiles | None = None
    ) -> ModelManifest:
        return ModelManifest(
            name="clinic-home",
            serial=serial,
            not_after=int((NOW + timedelta(days=30)).timestamp()),
            previous=self.old,
            arms=(
                Arm(percent=percent, promised_permille=850, model=model or self.new),
            ),
        )

    def logged(self, manifest: ModelManifest) -> tuple[bytes, str]:
        """Log a manifest; return it with its proof."""
        leaf = encode_model_manifest(manifest)
        self.log = replace(self.log, leaves=(*self.log.leaves, leaf))
        return leaf, self.log.proof(len(self.log.leaves) - 1, NOW)

    def take(self, manifest: ModelManifest, *, now: datetime = NOW) -> ModelManifest:
        return self.rollout().take(*self.logged(manifest), now=now)

    def grade(self, model: ModelFiles, *, good: int = 0, bad: int = 0) -> None:
        """Have a model's answers graded: first the bad ones."""
        trace = TraceFile(self.trace)
        line = replace(
            LINE,
            outcome=TraceOutcome.GRADED,
            tier="local",
            model=model_tag(model.sha256, model.adapter),
        )
        for word in (*[False] * bad, *[True] * good):
            assert trace.append(replace(line, feedback=word))
