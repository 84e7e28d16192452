"""The command curtilage-relay nginx-config: generates an nginx configuration."""

import argparse
from collections.abc import Sequence
from typing import Final

from curtilage.relay.config import parse_config
from curtilage.relay.nginx.config import RUNTIME_FOLDER, nginx_config
from curtilage.relay.process import make_parser, read_config_file, write_config

DESCRIPTION: Final = """\
Write an nginx configuration with the relay's behaviour to standard output.

For operators who need more than the built-in relay: the same paths, rules, limits
and refusals, implemented by nginx (1.22 or later, as distributions package it). The
head of the text lists what nginx does differently. The same relay.toml always gives
the same text, so it can be kept under version control.
"""
EPILOG: Final = """\
example:
  curtilage-relay --config relay.toml --check
  curtilage-relay nginx-config --config relay.toml > nginx.conf
  install -d -m 0711 /run/curtilage-relay-nginx
  nginx -t -c "$PWD/nginx.conf"
  nginx -c "$PWD/nginx.conf" -g 'daemon off;'

The folder can be entered (0711) because root's nginx workers run as another user and
must reach the copies of keys in it; only that user can read its content.

listen needs a port, and files need absolute paths. Access keys are refused, since
nginx cannot check salted hashes (use tls.client_ca).

exit codes: 0 written; 2 wrong usage or configuration, or nginx cannot do it;
            3 standard output cannot be written.
"""


def run(arguments: Sequence[str]) -> int:
    """Run the subcommand; return its exit code.

    Raises:
        OutputError: a standard stream cannot be written to.
    """
    parser = make_parser("curtilage-relay nginx-config", DESCRIPTION, EPILOG)

    def text_of(options: argparse.Namespace) -> str:
        config = parse_config(read_config_file(options.config), {})
        return nginx_config(config, options.folder)

    return write_config(parser, arguments, RUNTIME_FOLDER, text_of)
