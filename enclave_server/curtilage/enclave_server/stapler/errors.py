"""Errors of the stapler, one for each way to continue.

StaplerError
├── FetchError      a vendor, or the connection to it, failed: try again later
├── IdentityError   the machine's identity is unknown
└── StoreError      the directory cannot be written
"""


class StaplerError(Exception):
    """Base class of all errors that the stapler raises on purpose."""


class FetchError(StaplerError):
    """An address returned nothing usable.

    Attributes:
        lasting: another try would have the same result: the address does not
            exist, or we would not read its content.
    """

    def __init__(self, message: str, *, lasting: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting


class IdentityError(StaplerError):
    """The machine's evidence is not available, or of a kind without files."""


class StoreError(StaplerError):
    """A file could not be written."""
