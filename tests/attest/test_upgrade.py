"""The order of an upgrade: verifiers first. What the release before made is accepted.

Evidence of one version that is shown as the other is in ``test_verify_kinds``.
"""

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from curtilage.attest.claims import Claim
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import Tee
from curtilage.attest.evidence_json import encode_bundle, parse_bundle
from curtilage.attest.expectations import (
    AnchorKind,
    Environment,
    Expectations,
    FreshnessExpectations,
    GpuExpectations,
    LogExpectations,
    NitroExpectations,
    Revocation,
    TrustAnchor,
)
from curtilage.attest.log.manifest import parse_manifest
from curtilage.attest.sandbox import encode_statement
from curtilage.attest.verify import verify
from curtilage.wire.shaping import PADDED
from curtilage_dev.deployment import MEASUREMENT, RELEASE_NAME, make_any_deployment
from curtilage_dev.emulated.machines import make_gpus, make_machine
from support.sandboxes import naming, statement

FILE = Path(__file__).resolve().parents[1] / "vectors" / "bundle-v3" / "vectors.json"
OLD: dict[str, Any] = json.loads(FILE.read_text())
MADE_AT = datetime.fromtimestamp(OLD["now"], tz=UTC)
MODES = {Claim.NO_WRITE, Claim.ISOLATION, Claim.EPHEMERALITY}
Tree = dict[str, Any]


def rules() -> Expectations:
    """Return the policy under which the older code accepted the bundle."""
    policy = OLD["policy"]
    log = policy["log"]
    return Expectations(
        environment=Environment.DEVELOPMENT,
        roots=tuple(
            TrustAnchor.of_certificate(
                AnchorKind.EMULATED,
                root["product"],
                base64.b64decode(root["certificate"]),
            )
            for root in policy["roots"]
        ),
        required_cpu_tees=frozenset(policy["cpu"]),
        required_devices=policy["devices"],
        release_names=frozenset({RELEASE_NAME}),
        log=LogExpectations(
            origin=log["origin"],
            public_key=base64.b64decode(log["key"]),
            witnesses={
                name: base64.b64decode(key) for name, key in log["witnesses"].items()
            },
            quorum=1,
            max_checkpoint_age_s=86400,
        ),
        gpu=GpuExpectations(
            drivers=frozenset(policy["gpu"]["drivers"]),
            vbioses=frozenset(policy["gpu"]["vbioses"]),
            golden=frozenset(policy["gpu"]["golden"]),
        ),
        freshness=FreshnessExpectations(),
        transport=frozenset({PADDED}),
        digest=policy["digest"],
    )


def recorded(tree: Tree | None = None) -> bytes:
    return json.dumps(OLD["bundle"] if tree is None else tree).encode()


def refused(data: bytes, expectations: Expectations | None = None) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        verify(data, expectations or rules(), now=MADE_AT)
    return caught.value


def test_a_bundle_that_the_release_before_made_is_accepted() -> None:
    key = verify(recorded(), rules(), now=MADE_AT)
    assert key.b0.hex() == OLD["b0"]
    assert key.verdict_id == OLD["verdict"], "the audit trail's name for it"
    assert sorted(claim.value for claim in key.shows) == OLD["shows"]
    assert key.sandbox is None
    assert not key.shows & MODES
    assert encode_bundle(parse_bundle(recorded())) == encode_bundle(
        parse_bundle(recorded(OLD["bundle"]))
    )


def test_it_is_no_bundle_of_version_4() -> None:
    """A carrier that adds the missing members has evidence for another binding."""
    tree: Tree = json.loads(recorded())
    for key in ("sandbox_policy_digest", "sandbox_result_digest"):
        assert tree.pop(key) == ""
    tree |= {"v": 4, "sandbox": ""}
    tree["cpu"]["crls"] = []
    tree["devices"] = [each | {"ocsp": []} for each in tree["devices"]]
    error = refused(recorded(tree))
    assert (error.code, error.step) == (RefusalCode.BINDING_MISMATCH, "device nonce")


@pytest.mark.parametrize("v", [0, 1, 2, 5])
def test_no_other_version_is_read(v: int) -> None:
    error = refused(recorded(json.loads(recorded()) | {"v": v}))
    assert error.code is RefusalCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("part", ["nitro", "gpu"])
def test_a_policy_that_demands_revocation_refuses_it(part: str) -> None:
    """Version 3 cannot hold what is demanded."""
    own = rules()
    asked: dict[str, NitroExpectations | GpuExpectations] = {
        "nitro": NitroExpectations(revocation=Revocation.REQUIRED),
        "gpu": replace(own.gpu, revocation=Revocation.REQUIRED),
    }
    changes: dict[str, Any] = {part: asked[part]}
    error = refused(recorded(), replace(own, **changes))
    assert error.code is RefusalCode.CRL_MISSING


def _flips(tree: Tree) -> list[tuple[str, Tree]]:
    """Change each member of a bundle's JSON in turn, however deep."""
    return [
        (f"{name}{place}", tree | {name: changed})
        for name, value in tree.items()
        for place, changed in _changes(value)
    ]


def _changes(value: object) -> list[tuple[str, object]]:
    if isinstance(value, int):
        return [("", value + 1)]
    if isinstance(value, str):
        return [("", _other(value))]
    if isinstance(value, dict):
        inner = _flips(cast("Tree", value))
        return [(f".{name}", changed) for name, changed in inner]
    items = cast("list[object]", value)
    if not items:
        return [("", [_DIGEST])]
    return [
        (f"[{at}]{place}", [*items[:at], changed, *items[at + 1 :]])
        for at, item in enumerate(items)
        for place, changed in _changes(item)
    ]


_DIGEST = base64.b64encode(b"\1" * 32).decode()


def _other(text: str) -> str:
    if not text:
        return _DIGEST
    return text[:-9] + ("B" if text[-9] == "A" else "A") + text[-8:]


@pytest.mark.parametrize(
    ("name", "tree"),
    _flips(OLD["bundle"]),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_member_of_it_is_still_checked(name: str, tree: Tree) -> None:
    assert refused(recorded(tree)).steps, name


def test_every_member_of_a_bundle_of_today_is_checked(now: datetime) -> None:
    """With a sandbox and GPUs; what is stapled must be empty until it is judged."""
    machine = make_machine(Tee.EMULATED_NITRO, MEASUREMENT, now=now)
    gpus = make_gpus(2, now=now)
    plain = make_any_deployment(machine, now=now, gpus=gpus)
    manifest = naming(parse_manifest(plain.manifest), statement())
    made = make_any_deployment(machine, now=now, gpus=gpus, manifest=manifest)
    bundle = made.attest(
        replace(made.unsigned_bundle(), sandbox=encode_statement(statement()))
    )
    own = made.expectations()
    tree: Tree = json.loads(encode_bundle(bundle))
    assert verify(recorded(tree), own, now=now).sandbox == statement()
    changed = dict(_flips(tree))
    assert {"sandbox", "cpu.crls", "devices[1].ocsp", "anchor.consistency"} <= {
        *changed
    }
    accepted: list[str] = []
    for name, each in changed.items():
        try:
            verify(recorded(each), own, now=now)
        except RefusedError:
            continue
        accepted.append(name)
    assert accepted == []


# --- of today's code, in both versions -------------------------------------------


@pytest.mark.parametrize("v", [3, 4])
def test_both_versions_of_a_bundle_with_devices_are_accepted(
    v: int, now: datetime
) -> None:
    machine = make_machine(Tee.EMULATED_TDX, MEASUREMENT, now=now)
    made = make_any_deployment(machine, now=now, gpus=make_gpus(2, now=now))
    bundle = made.attest(replace(made.unsigned_bundle(), v=v))
    key = verify(encode_bundle(bundle), made.expectations(), now=now)
    assert len(key.devices) == 2
    assert not key.shows & MODES


def test_version_3_proves_no_sandbox_whatever_its_release_says(now: datetime) -> None:
    """It binds the release's digest, which anybody could copy, and no result."""
    machine = make_machine(Tee.EMULATED_NITRO, MEASUREMENT, now=now)
    plain = make_any_deployment(machine, now=now)
    manifest = naming(parse_manifest(plain.manifest), statement())
    made = make_any_deployment(machine, now=now, manifest=manifest)
    own = replace(made.expectations(), sandbox=frozenset({manifest.sandbox}))
    old = replace(made.unsigned_bundle(), v=3, sandbox_policy_digest=statement().loaded)
    key = verify(encode_bundle(made.attest(old)), own, now=now)
    assert key.sandbox is None
    assert not key.shows & MODES
    other = made.attest(replace(old, sandbox_policy_digest=b""))
    with pytest.raises(RefusedError) as caught:
        verify(encode_bundle(other), own, now=now)
    assert (caught.value.code, caught.value.step) == (
        RefusalCode.BINDING_MISMATCH,
        "sandbox",
    )
