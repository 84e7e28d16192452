"""``curtilage release audit``: list a log's leaves and check its consistency."""

from pathlib import Path

from curtilage.cli.declared import Arguments
from curtilage.cli.options import time_of
from curtilage.cli.release.options import Progress, refusing, rules_of
from curtilage.cli.terminal import DONE, REFUSED, out, out_json, unix_text
from curtilage.client.system.files import read_text
from curtilage.transparency.auditor import (
    ALARMING,
    AuditReport,
    audit,
    compare_checkpoint,
    compare_copy,
    with_problems,
)
from curtilage.transparency.log import MAX_CHECKPOINT_BYTES, LogFolder


@refusing
def run_audit(arguments: Arguments) -> int:
    """Audit; exit 1 if something needs attention."""
    folder, rules = LogFolder(Path(arguments.folder)), rules_of(arguments)
    progress = Progress().leaves
    report = audit(folder, rules, now=time_of(arguments.at), progress=progress)
    if arguments.against is not None:
        # A copy from another place: a log that shows two histories looks consistent in
        # each of them.
        other = LogFolder(Path(arguments.against))
        report = with_problems(
            report, compare_copy(folder, other, rules, progress=progress)
        )
    if arguments.since is not None:
        # A checkpoint that the auditor kept: only it shows that the log was not
        # rewritten since.
        earlier = read_text(Path(arguments.since), MAX_CHECKPOINT_BYTES)
        found = compare_checkpoint(folder, earlier, rules, progress=progress)
        report = with_problems(report, found)
    if arguments.json:
        time = report.vouched_time
        out_json(
            {
                "clean": report.clean,
                "origin": report.origin,
                "size": report.size,
                "root": report.root,
                "vouched_time": None if time is None else unix_text(time),
                "leaves": [
                    {
                        "index": leaf.index,
                        "sha256": leaf.sha256,
                        "name": getattr(leaf.manifest, "name", None),
                        "version": getattr(leaf.manifest, "version", None),
                        "source": getattr(leaf.manifest, "source", None),
                        "not_after": leaf.manifest
                        and unix_text(leaf.manifest.not_after),
                        "flags": [flag.value for flag in leaf.flags],
                    }
                    for leaf in report.leaves
                ],
                "problems": list(report.problems),
            }
        )
    else:
        _print(report)
    return DONE if report.clean else REFUSED


def _print(report: AuditReport) -> None:
    out(f"{report.origin}: {report.size} leaves, root {report.root[:16]}")
    if report.vouched_time is not None:
        out(f"witnessed {unix_text(report.vouched_time)}")
    for leaf in report.leaves:
        mark = "!" if ALARMING & set(leaf.flags) else " "
        flags = ", ".join(flag.replace("_", " ") for flag in leaf.flags)
        # A leaf that is no manifest is listed as well: an auditor must see everything
        # that was logged.
        said, manifest = "(no manifest)", leaf.manifest
        if manifest is not None:
            until = unix_text(manifest.not_after)[:10]
            said = f"{manifest.name} {manifest.version} until {until}"
        line = f"{mark}{leaf.index:>6}  {leaf.sha256[:16]}  {said}  {flags}"
        out(line.rstrip())
    for problem in report.problems:
        out(f"PROBLEM: {problem}")
    out("nothing unexpected" if report.clean else "this log needs attention")
