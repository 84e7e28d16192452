"""``curtilage route feedback``: rate the last answer."""

from datetime import UTC, datetime

from curtilage.cli.declared import Arguments
from curtilage.cli.route.stats import read_named, trace_path
from curtilage.cli.terminal import DONE, out
from curtilage.client.errors import ConfigError, UsageError
from curtilage.client.routing.trace import TraceFile, TraceOutcome, minute_of


def run(arguments: Arguments) -> int:
    """Add a rating of the last answer to a trace."""
    lines = read_named(arguments.trace)
    last = lines[-1] if lines else None
    # Only the last line: an answer has no name in the trace, so no other could be
    # meant.
    if last is None or not last.answered:
        graded = last is not None and last.outcome is TraceOutcome.GRADED
        raise UsageError(
            "the last answer is already rated"
            if graded
            else "the trace does not end with an answer: ask something first"
        )
    good = arguments.opinion == "good"
    word = last.graded(good=good, at=minute_of(datetime.now(UTC)))
    path = trace_path(arguments.trace)
    # Reported here, unlike in the client: the line is all that was asked for.
    if not TraceFile(path).append(word):
        raise ConfigError(f"{path}: cannot be written")
    # Show which answer was rated: another program may have asked in the meantime.
    out(f"{arguments.opinion}: the answer of {last.tier} ({last.intent}, {last.at})")
    return DONE
