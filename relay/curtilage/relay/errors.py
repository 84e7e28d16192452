"""Errors of starting the relay.

::

    RelayError
    ├── ConfigError     the configuration is wrong; names every key and its rule
    └── StartError      it cannot listen or serve as configured

A request that must not pass raises ``forward.RefusedError``: it is answered, never
shown to the operator. Messages hold keys and addresses from the configuration, never
a byte that a client or a gateway sent.
"""


class RelayError(Exception):
    """Root of the errors an operator sees."""


class ConfigError(RelayError):
    """The configuration is invalid.

    Attributes:
        problems: all of them, one line each.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class StartError(RelayError):
    """The relay cannot listen or serve as configured."""
