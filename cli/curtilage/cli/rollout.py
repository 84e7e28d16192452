"""``curtilage models rollout``: staged rollouts, for publishers and devices."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import MAX_MANIFEST_BYTES
from curtilage.attest.log.model_manifest import (
    STAGES,
    Arm,
    ModelFiles,
    ModelManifest,
    encode_model_manifest,
    parse_model_manifest,
)
from curtilage.cli.declared import Arguments
from curtilage.cli.options import write_or_print
from curtilage.cli.start import config_from
from curtilage.cli.terminal import DONE, err, out, out_json, unix_text
from curtilage.client.errors import ClientError, ConfigError, UsageError
from curtilage.client.local.model import resolve, verify_choice
from curtilage.client.local.registry.catalogue import by_digest
from curtilage.client.local.registry.store import Registry
from curtilage.client.local.rollout.state import (
    LEAST_GRADED,
    FilesMissingError,
    Rollout,
    Standing,
)
from curtilage.client.routing.bounds import lower_bound, upper_bound
from curtilage.client.routing.trace import model_tag, read_grades
from curtilage.client.system.files import read_bounded, read_text
from curtilage.transparency.publisher import moment_of

MAX_PROOF_BYTES: Final = 512 * 1024
_UNSURE: Final = 0.025  # at each end: an interval of 95 %


def run_manifest(arguments: Arguments) -> int:
    """Write a manifest, or that of the next stage."""
    not_after = moment_of(arguments.not_after, datetime.now(UTC))
    manifest = (
        _first(arguments, not_after)
        if arguments.next is None
        else _next(arguments, not_after)
    )
    data = encode_model_manifest(manifest)
    try:
        # The parser validates the contents.
        parse_model_manifest(data)
    except RefusedError as refusal:
        raise UsageError(refusal.detail) from None
    for arm in manifest.arms:
        err(f"{arm.percent} % of the devices take sha256:{arm.model.sha256}")
    err(f"serial {manifest.serial}, expires {unix_text(not_after)}")
    return write_or_print(arguments.out, data)


def _first(arguments: Arguments, not_after: int) -> ModelManifest:
    if not (arguments.name and arguments.previous and arguments.arm):
        raise UsageError(
            "give --name, --previous and --arm, or the previous stage with --next"
        )
    numbers: list[tuple[str, int, int]] = []
    for model, percent, promised in arguments.arm:
        if not (percent.isdecimal() and promised.isdecimal()):
            raise UsageError(
                "--arm: MODEL, percentage of devices, good answers per thousand"
            )
        numbers.append((model, int(percent), int(promised)))
    return ModelManifest(
        name=arguments.name,
        serial=arguments.serial,
        not_after=not_after,
        previous=_files(arguments.previous),
        arms=tuple(
            Arm(percent=percent, promised_permille=promised, model=_files(model))
            for model, percent, promised in numbers
        ),
    )


def _next(arguments: Arguments, not_after: int) -> ModelManifest:
    # The next stage is the same models with a larger share: with other models, devices
    # would be drawn anew (docs/decisions/0043).
    if arguments.name or arguments.previous or arguments.arm:
        raise UsageError("--next excludes the other options")
    data = read_bounded(Path(arguments.next), MAX_MANIFEST_BYTES)
    try:
        manifest = parse_model_manifest(data)
    except RefusedError as refusal:
        raise ConfigError(f"{arguments.next}: {refusal.detail}") from None
    arm, *others = manifest.arms
    # Two arms cannot both grow to all devices, and which one is better is a decision
    # for a person.
    if others:
        raise UsageError("that stage compares two models: choose one with --arm")
    percent = next((stage for stage in STAGES if stage > arm.percent), None)
    if percent is None:
        raise UsageError("all devices already take it")
    return replace(
        manifest,
        # The only order of manifests: a device refuses one whose number is not larger
        # (docs/decisions/0043).
        serial=manifest.serial + 1,
        not_after=not_after,
        arms=(replace(arm, percent=percent),),
    )


def _files(name: str) -> ModelFiles:
    """Return a model of this machine after hashing its files."""
    choice = resolve(name, registry=Registry())
    # The manifest is signed with these digests, so they come from the file and not from
    # the registry, which may be outdated.
    verify_choice(choice)
    adapter = choice.adapter
    return ModelFiles(
        sha256=choice.sha256,
        size_bytes=choice.path.stat().st_size,
        adapter=choice.adapter_sha256,
        adapter_bytes=0 if adapter is None else adapter.stat().st_size,
    )


def run_take(arguments: Arguments) -> int:
    """Put a manifest in force on this device."""
    leaf = read_bounded(Path(arguments.manifest), MAX_MANIFEST_BYTES)
    proof = read_text(Path(arguments.proof), MAX_PROOF_BYTES)
    rollout, now = _rollout(arguments), datetime.now(UTC)
    try:
        rollout.take(leaf, proof, now=now)
    except FilesMissingError as failure:
        # A signed manifest must not start a download; `models pull` asks for consent to
        # size, memory and network.
        for model in failure.missing:
            known = by_digest(model.sha256)
            if model.adapter:
                err(
                    f"  curtilage models add NAME FILE --sha256 {model.adapter} "
                    f"--adapter-of MODEL   (of sha256:{model.sha256})"
                )
            elif known is not None and known.repository:
                err(f"  curtilage models pull {known.name}")
            else:
                err(f"  curtilage models add NAME --from FILES --sha256 {model.sha256}")
        raise
    _print(rollout, rollout.standing(now))
    return DONE


def run_status(arguments: Arguments) -> int:
    """Show the rollout's state on this device, and its models' grades."""
    rollout = _rollout(arguments)
    standing = rollout.standing(datetime.now(UTC))
    graded = _graded(standing, [Path(each) for each in arguments.trace])
    if arguments.json:
        manifest, files = standing.manifest, standing.run
        out_json(
            {
                "manifest": manifest
                and {
                    "name": manifest.name,
                    "serial": manifest.serial,
                    "not_after": unix_text(manifest.not_after),
                    "sha256": hashlib.sha256(
                        encode_model_manifest(manifest)
                    ).hexdigest(),
                    "percent": [arm.percent for arm in manifest.arms],
                },
                "taken": standing.arm is not None,
                "withdrawn": standing.withdrawn,
                "graded": standing.graded,
                "good": standing.good,
                "alarm": standing.alarm,
                "runs": files and model_tag(files.sha256, files.adapter),
                "problem": standing.problem,
                "models": graded,
            }
        )
        return DONE
    _print(rollout, standing)
    for each in graded:
        out(
            f"graded     {each['model']}: {each['good']} of {each['graded']} good"
            + (
                f" ({each['low']:.1%} to {each['high']:.1%})".replace("%", " %")
                if each["graded"]
                else ""
            )
        )
    return DONE


def run_rollback(arguments: Arguments) -> int:
    """Roll back on this device, for all stages of the rollout."""
    rollout = _rollout(arguments)
    rollout.withdraw()
    _print(rollout, rollout.standing(datetime.now(UTC)))
    return DONE


def _print(rollout: Rollout, standing: Standing) -> None:
    if standing.problem:
        err(standing.problem)
    manifest, files = standing.manifest, standing.run
    if manifest is None or files is None:
        out("no rollout is followed: the embedded model runs")
        return
    out(f"manifest   {manifest.name} {manifest.serial}")
    out(f"expires    {unix_text(manifest.not_after)}")
    shares = " and ".join(f"{arm.percent} %" for arm in manifest.arms)
    taken = "among them" if standing.arm is not None else "not among them"
    out(f"stage      {shares} of the devices; this one is {taken}")
    if standing.arm is not None:
        promised = standing.arm.promised_permille / 10
        out(
            f"promised   {promised:g} % good; {standing.good} of {standing.graded} "
            f"were good; at least {LEAST_GRADED} grades are needed"
        )
    if standing.withdrawn:
        out("rolled back here; the previous model runs")
    elif standing.alarm is not None:
        out(f"ALARM      worse than promised, after {standing.alarm}: rolled back")
    choice = rollout.choice(files)
    name = "NOT INSTALLED" if choice is None else choice.model_id
    out(f"runs       {name}, {model_tag(files.sha256, files.adapter)}")


def _graded(standing: Standing, traces: Sequence[Path]) -> list[dict[str, Any]]:
    """Count the grades of each model in traces of any number of devices."""
    if standing.manifest is None or not traces:
        return []
    rows: list[dict[str, Any]] = []
    models = (standing.manifest.previous, *(a.model for a in standing.manifest.arms))
    for model in models:
        # By digest: a model's name is chosen on each device, and may differ.
        tag = model_tag(model.sha256, model.adapter)
        grades = [grade for path in traces for grade in read_grades(path, tag)]
        bad, count = grades.count(False), len(grades)
        row: dict[str, Any] = {"model": tag, "graded": count, "good": count - bad}
        # Without grades there is no interval, and 0 of 0 must not look like a bad
        # model.
        if count:
            # The bounds are for bad answers, so the upper one of these is the lower one
            # of good answers.
            row["low"] = 1 - upper_bound(bad, count, _UNSURE)
            row["high"] = 1 - lower_bound(bad, count, _UNSURE)
        rows.append(row)
    return rows


def _rollout(arguments: Arguments) -> Rollout:
    config = config_from(arguments)
    plan = config.policy.routing
    if plan is None or plan.rollout is None:
        raise UsageError(
            f"{config.policy_source}: no rollout is configured (`routing.rollout`)"
        )
    # The policy names who may sign manifests, so an unsigned policy is not enough.
    problem = config.currency and config.currency.problem(datetime.now(UTC))
    if problem:
        raise ClientError(f"{config.policy_source}: {problem}")
    return Rollout.on_this_device(plan.rollout)
