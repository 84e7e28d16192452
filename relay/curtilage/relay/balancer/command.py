"""The command curtilage-relay balancer-config: generates a balancer configuration."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from curtilage.relay.balancer.config import parse_balancer
from curtilage.relay.balancer.text import TEMPLATES, balancer_text
from curtilage.relay.config import SAFE_TEXT
from curtilage.relay.errors import ConfigError
from curtilage.relay.process import make_parser, read_config_file, write_config

RUNTIME_FOLDER: Final = Path("/run/curtilage-balancer")

DESCRIPTION: Final = """\
Write the configuration of a header-only balancer to standard output, for nginx
(1.22 or later) or for Envoy (1.36 or later).

It routes requests by the name in Host, and reads no content. In front of relays, which
are interchangeable, it chooses one that is up and has the fewest requests, and sends
a request once. In front of enclaves it chooses nothing: each has its own key and name,
and the client has drawn one. The head of each text describes how to check, run and
drain it, and how this program differs from the other one.
"""
EPILOG: Final = """\
example (balancer.toml):
  listen = "0.0.0.0:8443"                  # or "unix:/run/x.sock"
  upstream_ca_file = "/etc/ca.pem"         # absent: the system's certificates
  [tls]                                    # needed if other machines connect
  certificate = "/etc/balancer/chain.pem"
  key = "/etc/balancer/key.pem"
  client_ca = "/etc/balancer/clients.pem"  # only clients with a certificate from it
  [relays]                                 # by name; its relays are interchangeable
  "relay.example" = ["https://10.0.0.11:8443", "https://10.0.0.12:8443"]
  [clients]                                # the relays' own caps must be off (0):
  exchanges = 8                            # they see only the balancer's address
  requests_per_s = 50
  burst = 200
  [limits]                                 # each has a default
  max_per_backend = 56
  check_s = 5                              # between two checks of /healthz

in front of enclaves, instead of [relays] and [clients]:
  [enclaves]                               # one address behind each name
  "a.enclaves.example" = "https://10.1.0.11:8443"
  "b.enclaves.example" = "https://10.1.0.12:8443"

  curtilage-relay balancer-config envoy --config balancer.toml > envoy.yaml

Each backend must have a certificate for the name in quotes, even if it is reached
by an address.

exit codes: 0 written; 2 wrong usage or configuration;
            3 standard output cannot be written.
"""


def run(arguments: Sequence[str]) -> int:
    """Run the subcommand; return its exit code.

    Raises:
        OutputError: a standard stream cannot be written to.
    """
    parser = make_parser("curtilage-relay balancer-config", DESCRIPTION, EPILOG)
    parser.add_argument("program", choices=sorted(TEMPLATES), help="which one will run")

    def text_of(options: argparse.Namespace) -> str:
        problems: list[str] = []
        folder = Path(options.folder)
        if not folder.is_absolute() or SAFE_TEXT.fullmatch(str(folder)) is None:
            problems.append("--folder: expected an absolute path of plain characters")
        try:
            config = parse_balancer(read_config_file(options.config))
        except ConfigError as error:
            raise ConfigError(*error.problems, *problems) from None
        if problems:
            raise ConfigError(*problems)
        return balancer_text(options.program, config, folder)

    return write_config(parser, arguments, RUNTIME_FOLDER, text_of)
