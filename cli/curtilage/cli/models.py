"""``curtilage models``: manage this user's local models."""

import sys
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from time import monotonic
from typing import Any

from curtilage.cli.declared import Arguments
from curtilage.cli.terminal import COULD_NOT, DONE, err, err_again, out, out_json
from curtilage.client.errors import ClientError, UsageError
from curtilage.client.local.model import resolve, verify_choice
from curtilage.client.local.registry.catalogue import (
    DEFAULT_NAME,
    USUAL_CONTEXT,
    Advice,
    KnownModel,
    advise,
    by_digest,
    catalogue,
    known,
)
from curtilage.client.local.registry.download import (
    NotAgreedError,
    PullRequest,
    can_pull,
    pull,
)
from curtilage.client.local.registry.join import put_together
from curtilage.client.local.registry.machine import Machine
from curtilage.client.local.registry.shape import read_shape
from curtilage.client.local.registry.store import ModelEntry, Registry

MEGABYTE, GIGABYTE = 1000**2, 1000**3
SHOWN_EVERY_S = 0.5
TASKS_TRIED = 6  # the office tasks of docs/costs.md


def run_list(arguments: Arguments) -> int:
    """List the models with their memory needs, and whether they fit."""
    entries = _entries()
    spare_bytes = Machine.read(Registry().folder).spare_bytes
    needs = [_needs(entry, spare_bytes) for entry in entries]
    if arguments.json:
        pairs = zip(entries, needs, strict=True)
        out_json([asdict(entry) | need for entry, need in pairs])
        return DONE
    if not entries:
        err("no model is installed; in a source checkout `make setup` installs one")
    fits = {True: "fits", False: "does NOT fit", None: "unknown whether it fits"}
    for entry, need in zip(entries, needs, strict=True):
        out(
            f"{entry.name:<20} {need['quantisation'] or '?':<7} "
            f"{_size(entry.size_bytes):>7}, in memory {_size(need['memory_bytes'])}: "
            f"{fits[need['fits']]}  sha256:{entry.sha256[:16]}…  "
            f"{entry.source or entry.path}"
            + (f" (adapter for sha256:{entry.base[:16]}…)" if entry.base else "")
        )
    return DONE


def _entries() -> list[ModelEntry]:
    entries = [*Registry().entries()]
    with suppress(ClientError):  # its package may not be installed
        entries.insert(0, _embedded())
    return entries


def _needs(entry: ModelEntry, spare_bytes: int | None) -> dict[str, Any]:
    """Return a model's needs according to its file's header; None: unknown."""
    shape = None
    with suppress(ClientError):  # `models verify` reports a missing file
        shape = read_shape(Path(entry.path))
    # By the file's header: loading the model to measure it could use up the memory that
    # is in question.
    memory = shape.memory_bytes(entry.size_bytes, USUAL_CONTEXT) if shape else None
    return {
        "quantisation": shape.quantisation if shape else None,
        "trained_context": shape.trained_context if shape else None,
        "context_bytes_per_token": shape.context_bytes(1) if shape else None,
        "memory_bytes": memory,
        "fits": None
        if memory is None or spare_bytes is None
        else memory <= spare_bytes,
    }


def run_recommend(arguments: Arguments) -> int:
    """Show which known models fit, and how to get the best one; exit 3: none fits."""
    # Reversed, so that of two names for one file the first one is shown.
    registered = {entry.sha256: entry.name for entry in reversed(_entries())}
    machine = Machine.read(Registry().folder)
    advice = advise(
        machine,
        here=registered,
        memory_bytes=arguments.memory,
        task=arguments.task,
        accepted=arguments.accept_licence,
    )
    # ``advise`` returns them in order of preference.
    best = next((each for each in advice if not each.against), None)
    if arguments.json:
        out_json(
            {
                "machine": asdict(machine),
                "models": [_advice_row(each) for each in advice],
                "best": best and best.model.name,
                "measured": _measured(),
                "commands": [] if best is None else _commands(best, registered),
            }
        )
        return DONE if best else COULD_NOT
    memory, room, given = machine.memory_bytes, machine.room_bytes, arguments.memory
    out(
        f"this machine: {_size(memory)} of memory available, {machine.cpus} CPUs, "
        f"{_size(room)} free on the disk\n"
        "a model may use "
        + (
            f"{_size(machine.spare_bytes)} of it"
            if given is None
            else f"{_size(given)}"
        )
    )
    for each in advice:
        out(_advice_text(each))
    if best is None:
        out("no known model fits this machine")
        return COULD_NOT
    work = f"for {arguments.task}" if arguments.task else "for general use"
    measured = "" if best.model.solved is not None else "; not measured by us"
    out(f"\nbest: {best.model.name}, the first that fits {work}{measured}")
    out(_measured())
    # The demonstration model does not count: with it alone, most answers are wrong.
    useful = any(each.here and not each.model.demonstration for each in advice)
    if not useful and not best.here and _fetched(best.model):
        best = replace(best, here=True)
    out("next:")
    for command in _commands(best, registered):
        out(f"    {command}")
    return DONE


def _fetched(model: KnownModel) -> bool:
    """Offer to download a model, at a terminal only; return whether it was downloaded.

    Otherwise only the commands are shown: nothing is downloaded without consent.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty() and can_pull()):
        return False
    try:
        _fetch(_request_for(model), yes=False)
    # Not an error: the commands to do it later are shown next.
    except NotAgreedError as refusal:
        err(str(refusal))
        return False
    return True


def _measured() -> str:
    tried = ", ".join(
        f"{each.name} ({each.solved} of {TASKS_TRIED})"
        for each in catalogue()
        if each.solved is not None
    )
    return (
        f"measured: {tried}, on {TASKS_TRIED} office tasks in English "
        "(docs/costs.md); the others were not measured"
    )


def _advice_row(advice: Advice) -> dict[str, object]:
    model = advice.model
    return {
        "name": model.name,
        "title": model.title,
        "quantisation": model.shape.quantisation,
        "size_bytes": model.size_bytes,
        "sha256": model.sha256,
        "memory_bytes": model.memory_bytes,
        "context_bytes_per_token": model.shape.context_bytes(1),
        "trained_context": model.shape.trained_context,
        "licence": model.licence,
        "commercial": model.commercial,
        "good_for": sorted(model.good_for),
        "office_tasks_solved": model.solved,
        "quality_permille": model.quality_permille,
        "here": advice.here,
        "against": advice.against,
    }


def _advice_text(advice: Advice) -> str:
    model, shape = advice.model, advice.model.shape
    tried = (
        "not measured by us"
        if model.solved is None
        else f"measured: solved {model.solved} of {TASKS_TRIED} office tasks"
    )
    guess = ", an estimate" if model.solved is None else ""
    fetch = "" if advice.here else " to download"
    verdict = f"no: {', '.join(advice.against)}" if advice.against else "fits"
    return (
        f"\n{model.name}: {verdict}{'; installed' if advice.here else ''}\n"
        f"    {model.title} {shape.quantisation}, {_size(model.size_bytes)}{fetch}\n"
        f"    memory: {_size(model.memory_bytes)} with {USUAL_CONTEXT:,} tokens, "
        f"{_size(shape.context_bytes(1000))} for each 1,000 more, up to "
        f"{shape.trained_context:,}\n"
        f"    licence: {model.licence}, "
        f"{'commercial use permitted' if model.commercial else 'NO commercial use'}\n"
        f"    good for: {', '.join(sorted(model.good_for)) or 'experiments'}; "
        f"{tried}\n"
        f"    routing assumes that it solves {model.quality_permille / 10:g} of 100 "
        f"ordinary questions{guess}"
    )


def _commands(best: Advice, registered: dict[str, str]) -> list[str]:
    """Return the commands to run next."""
    model = best.model
    name = registered.get(model.sha256, model.name)
    licence = "" if model.commercial else f" --accept-licence {model.licence}"
    get = [] if best.here else [f"curtilage models pull {model.name}{licence}"]
    return [*get, f"curtilage ask --model {name}"]


def run_add(arguments: Arguments) -> int:
    """Register a file, or join it from parts first."""
    name, model = arguments.name, known(arguments.name)
    if (arguments.file is None) == (not arguments.parts):
        raise UsageError("give one FILE, or its parts with --from")
    if arguments.adapter_of is not None:
        # An adapter changes what a model answers, so it needs its own digest.
        if arguments.file is None or arguments.sha256 is None:
            raise UsageError("--adapter-of needs one FILE and its --sha256")
        # An adapter fits one model only, so the registry keeps the digest of its base.
        base = resolve(arguments.adapter_of, registry=Registry())
        _print(Registry().add(name, arguments.file, arguments.sha256, base=base.sha256))
        return DONE
    sha256 = _digest(arguments.sha256, model)
    _require_licence(sha256, arguments)
    if arguments.file is not None:
        _print(Registry().add(name, arguments.file, sha256))
        return DONE
    bar = _Bar(name)
    entry = put_together(
        Registry(),
        name,
        arguments.parts,
        sha256=sha256,
        # A wrong set of parts is refused before gigabytes are hashed.
        size_bytes=None if model is None else model.size_bytes,
        progress=bar,
    )
    bar.end()
    _print(entry)
    return DONE


def _digest(named: str | None, model: KnownModel | None) -> str:
    """Return the SHA-256 of the requested file.

    Raises:
        UsageError: it is missing, or contradicts the catalogue's for this name.
    """
    if model is None:
        if named is None:
            raise UsageError(
                "a model file is used only with its SHA-256: add --sha256 (not needed "
                "for names of `curtilage models recommend`)"
            )
        return named.lower()
    # A known name with another digest would give a file the licence and the quality of
    # a model that it is not.
    if named is not None and named.lower() != model.sha256:
        raise UsageError(f"the name {model.name!r} means sha256:{model.sha256}")
    return model.sha256


def _require_licence(sha256: str, arguments: Arguments) -> None:
    # By digest: under another name, the model has the same licence.
    if (model := by_digest(sha256)) is not None:
        model.require_licence(arguments.accept_licence)


def run_pull(arguments: Arguments) -> int:
    """Download a file after consent, and show progress."""
    place = (arguments.repo, arguments.file, arguments.revision, arguments.sha256)
    # All four together: a download without a revision and a digest could change from
    # day to day.
    if all(place):
        request = PullRequest(
            name=arguments.name,
            repo_id=arguments.repo,
            filename=arguments.file,
            revision=arguments.revision,
            sha256=arguments.sha256,
        )
    elif any(place):
        raise UsageError("--repo, --file, --revision and --sha256 belong together")
    else:
        model = known(arguments.name)
        if model is None or not model.repository:
            raise UsageError(
                f"{arguments.name!r} is not a model of the catalogue (see "
                "`curtilage models recommend`); give --repo, --file, --revision and "
                "--sha256"
            )
        request = _request_for(model)
    _require_licence(request.sha256, arguments)
    _fetch(request, yes=arguments.yes, endpoint=arguments.endpoint)
    return DONE


def _request_for(model: KnownModel) -> PullRequest:
    """Return the download request for a model of the catalogue."""
    return PullRequest(
        name=model.name,
        repo_id=model.repository,
        filename=model.file,
        revision=model.revision,
        sha256=model.sha256,
        size_bytes=model.size_bytes,
    )


def _fetch(request: PullRequest, *, yes: bool, endpoint: str | None = None) -> None:
    """Download a file after consent, and show progress.

    Raises:
        NotAgreedError: the person declined.
    """

    def agree(size: int | None) -> None:
        machine, model = Machine.read(Registry().folder), by_digest(request.sha256)
        memory = None if model is None else model.memory_bytes
        metered = (
            "METERED (a mobile adapter)"
            if machine.metered
            else "unknown whether it is metered"
        )
        err(
            f"{request.name}: {_size(size)} to download from {request.source}\n"
            f"  free on the disk: {_size(machine.room_bytes)}\n"
            f"  memory: {_size(memory)} when it runs; "
            f"{_size(machine.memory_bytes)} available\n"
            f"  licence: {'unknown' if model is None else model.licence}\n"
            f"  network: {metered}"
        )
        # The size, the licence and the network are shown nevertheless, for the log of a
        # script.
        if yes:
            return
        if not sys.stdin.isatty():
            raise UsageError("not interactive: pass --yes to confirm")
        err("download it? [y/N] ", end="")
        # Anything else is a no, also an empty line or the end of the input.
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise NotAgreedError("nothing was downloaded")

    bar = _Bar(request.filename)
    entry = pull(Registry(), request, agree=agree, progress=bar, endpoint=endpoint)
    bar.end()
    _print(entry)


def _print(entry: ModelEntry) -> None:
    out(f"{entry.name}: {entry.size_bytes} bytes, sha256:{entry.sha256}")


def _size(size_bytes: int | None) -> str:
    if size_bytes is None:
        return "unknown"
    if size_bytes < GIGABYTE:
        return f"{size_bytes / MEGABYTE:.0f} MB"
    return f"{size_bytes / GIGABYTE:.1f} GB"


def run_verify(arguments: Arguments) -> int:
    """Hash models again; exit 3 if one differs."""
    known = Registry()
    names = arguments.names or [DEFAULT_NAME, *(e.name for e in known.entries())]
    failed = False
    # All are checked before the exit, so that one run shows every file that differs.
    for name in names:
        try:
            if name == DEFAULT_NAME:
                entry = _embedded(verify=True)
            else:
                entry = known.verify(name)
        except ClientError as error:
            err(f"{name}: {error}")
            failed = True
        else:
            out(f"{name}: ok, sha256:{entry.sha256}")
    return COULD_NOT if failed else DONE


def _embedded(*, verify: bool = False) -> ModelEntry:
    """Return the embedded model, hashed again on request.

    Raises:
        ClientError: its package is not installed, or contains another file.
    """
    choice = resolve(None, registry=Registry())
    if verify:
        verify_choice(choice)
    return ModelEntry(
        name=DEFAULT_NAME,
        path=str(choice.path),
        sha256=choice.sha256,
        size_bytes=choice.path.stat().st_size,
        source=f"embedded ({choice.model_id})",
    )


class _Bar:
    """Progress line of a download."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._shown_s = 0.0
        self._shown = sys.stderr.isatty()

    def __call__(self, done: int, total: int | None) -> None:
        """Show the progress, at most twice a second."""
        # Called for every block of a download: writing each time would slow it down.
        if not self._shown or monotonic() - self._shown_s < SHOWN_EVERY_S:
            return
        self._shown_s = monotonic()
        share = f" of {total / MEGABYTE:.1f}" if total else ""
        percent = f" ({100 * done // total} %)" if total else ""
        err_again(f"{self._title}: {done / MEGABYTE:.1f}{share} MB{percent}")

    def end(self) -> None:
        """End the line."""
        if self._shown_s:
            err("")
