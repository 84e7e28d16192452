"""Why the test ends early."""


class CannotRunError(Exception):
    """No engine can run on this machine; the message says why."""


class FailedError(Exception):
    """Something that was asked for does not hold; the message says what."""
