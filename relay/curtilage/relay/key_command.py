"""The subcommand make-key: a key for one client, shown once, and what to keep.

Knows how a key is made; keeps nothing, and writes to standard output alone.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from curtilage.relay.access import make_key
from curtilage.relay.process import parse, say

EXIT_USAGE: Final = 2

DESCRIPTION: Final = """\
Make a key for one client of the relay.

The key is 256 random bits behind a name. The relay keeps only a salted hash of
it; the key is shown here and nowhere else, so hand it over and forget it.
"""
EPILOG: Final = """\
example:
  curtilage-relay make-key hospital-a
    key: hospital-a.0123...          for the client: its header is
                                     Authorization: Bearer hospital-a.0123...
    line: hospital-a:salt:hash       for relay.toml:
                                     [access]
                                     keys = ["hospital-a:salt:hash"]

Once keys are listed, everything but /healthz asks for one. To take a key back,
delete its line and restart.

exit codes: 0 made; 2 not a name.
"""


def run(arguments: Sequence[str]) -> int:
    """Run the subcommand; return its exit code.

    Raises:
        OutputError: standard output cannot be written to.
    """
    options = parse(_parser(), arguments)
    try:
        key, record = make_key(options.name)
    except ValueError as error:
        say(sys.stderr, f"curtilage-relay make-key: {error}\n")
        return EXIT_USAGE
    say(sys.stdout, f"key: {key}\nline: {record.line()}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="curtilage-relay make-key",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "name", metavar="NAME", help="whose key it is: 1 to 32 of a-z, 0-9 and -"
    )
    return parser
