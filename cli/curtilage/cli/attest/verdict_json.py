"""Verdicts as JSON objects with a stable schema; see docs/attestation.md.

Pure. Auditors' programs read these: keys may be added, but none is renamed, removed or
redefined without a new ``version``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Final

from curtilage.attest.claims import CpuClaims, DeviceClaims, Link
from curtilage.attest.errors import RefusedError, Step
from curtilage.attest.standalone import EvidenceVerdict
from curtilage.attest.verified_key import VerifiedKey
from curtilage.cli.terminal import time_text
from curtilage.policy.breaks import Break, known_breaks

SCHEMA_VERSION: Final = 1

NOT_RULED_OUT: Final = "not_ruled_out"
"""The member that depends on the day's list of known breaks."""


def evidence_object(verdict: EvidenceVerdict, *, at: datetime) -> dict[str, object]:
    """Return the verdict on one accepted piece of evidence."""
    claims = verdict.claims
    shown: dict[str, object] = {"tee": verdict.tee}
    if isinstance(claims, DeviceClaims):
        shown["nonce"] = claims.nonce.hex()
    else:
        shown |= {
            "emulated": claims.tee.emulated,
            "isolates": claims.tee.isolates,
            "registers": dict(claims.registers),
            "report_data": claims.bound.hex(),
            "platform": claims.platform or None,
        }
    shown |= {"bound_checked": verdict.bound_checked, "details": details_of(claims)}
    return {
        **_head("evidence", at),
        # The keys of a refusal are the same, so that a reader needs no second schema.
        "accepted": True,
        "code": None,
        "detail": None,
        "step": None,
        "expires_at": time_text(claims.expires_at),
        "claims": shown,
        "links": links_object(claims.links),
        "steps": steps_object(verdict.steps),
    }


def key_object(
    key: VerifiedKey, left: Iterable[Break], *, at: datetime
) -> dict[str, object]:
    """Return the verdict on an accepted bundle.

    Args:
        key: the verdict.
        left: the known breaks that its evidence does not rule out.
        at: time of verification.
    """
    sandbox = key.sandbox
    return {
        **_head("bundle", at),
        "accepted": True,
        "code": None,
        "detail": None,
        "step": None,
        "expires_at": time_text(key.expires_at),
        "claims": {
            "tee": key.tee,
            "emulated": key.emulated,
            "isolates": key.claims.tee.isolates,
            "measurement": key.measurement,
            "registers": dict(key.claims.registers),
            "platform": key.claims.platform or None,
            "details": details_of(key.claims),
            "devices": [
                {
                    "kind": device.kind.value,
                    "index": device.index,
                    "expires_at": time_text(device.expires_at),
                    "details": details_of(device),
                    "links": links_object(device.links),
                }
                for device in key.devices
            ],
            # Sorted, since the order of a set differs from run to run, and auditors
            # compare files.
            "shows": sorted(claim.value for claim in key.shows),
            "release": f"{key.release_name} {key.release_version}",
            "release_digest": key.release_digest.hex(),
            "models": sorted(digest.hex() for digest in key.model_digests),
            "key_configs": key.key_configs_digest,
            "not_before": time_text(key.not_before),
            "not_after": time_text(key.not_after),
            "evidence_since": time_text(key.anchor_time),
            # None and not an empty string: there is no such key, instead of one that
            # could not be shown.
            "receipt_key": key.receipt_public_key.hex() or None,
            "sandbox": None if sandbox is None else sandbox.loaded.hex(),
            "isolation": None if sandbox is None else sandbox.isolation.value,
            "ephemerality": None if sandbox is None else sandbox.ephemerality.value,
            "transport": asdict(key.transport),
            "policy": key.expectations_digest,
            "verdict": key.verdict_id,
        },
        NOT_RULED_OUT: {
            "known": known_breaks().as_of,
            "breaks": [
                {
                    "id": row.id,
                    "name": row.name,
                    "published": row.published,
                    "needs": row.needs.value,
                    "effect": row.effect,
                    "source": row.source,
                }
                for row in left
            ],
        },
        "links": links_object(key.links),
        "expiries": [
            {"name": name, "expires_at": time_text(ends)} for name, ends in key.expiries
        ],
        "steps": steps_object(key.steps),
    }


def named(node: str) -> dict[str, object]:
    """Return the node member for an object; empty without a pool."""
    return {"node": node} if node else {}


def refusal_object(
    kind: str, refusal: RefusedError, *, at: datetime
) -> dict[str, object]:
    """Return a refusal.

    Args:
        kind: ``evidence`` or ``bundle``.
        refusal: the refusal with its failed step.
        at: time of verification.
    """
    return {
        **_head(kind, at),
        "accepted": False,
        "code": refusal.code.value,
        "detail": refusal.detail,
        "step": refusal.step or None,
        "expires_at": None,
        "claims": {},
        "links": [],
        "steps": steps_object(refusal.steps),
    }


def _head(kind: str, at: datetime) -> dict[str, object]:
    return {"version": SCHEMA_VERSION, "kind": kind, "at": time_text(at)}


def details_of(claims: CpuClaims | DeviceClaims) -> dict[str, object]:
    """Return further details of the evidence, with arrays for tuples."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in claims.details.items()
    }


def steps_object(steps: Iterable[Step]) -> list[Mapping[str, object]]:
    """Return the checks that ran, in order."""
    return [
        {
            "number": step.number,
            "name": step.name,
            "passed": step.passed,
            "detail": step.detail,
        }
        for step in steps
    ]


def links_object(links: Iterable[Link]) -> list[Mapping[str, object]]:
    """Return who vouches for what, root first."""
    return [
        {
            "subject": link.subject,
            "issuer": link.issuer,
            "role": link.role,
            "fingerprint": link.fingerprint,
            "expires_at": None if link.not_after is None else time_text(link.not_after),
        }
        for link in links
    ]
