"""``curtilage attest verify``: a bundle with a policy, or an export with both."""

from curtilage.cli.attest.command import run_verify
from curtilage.cli.attest.export import run_verify as verify_export
from curtilage.cli.declared import Arguments
from curtilage.client.errors import UsageError


def run(arguments: Arguments) -> int:
    """Verify what was given; exit 1 if it is refused."""
    if arguments.export is not None:
        return verify_export(arguments)
    if arguments.as_made:
        raise UsageError("--as-made needs --export: only such a file says its time")
    if arguments.policy is None:
        raise UsageError("--bundle needs --policy")
    return run_verify(arguments)
