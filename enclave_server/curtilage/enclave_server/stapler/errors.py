"""Why the stapler could not do its work; one error for each way to go on.

StaplerError
├── FetchError      a vendor, or the way to one, failed: try again later
├── IdentityError   it is not known which machine this is
└── StoreError      the directory cannot be written
"""


class StaplerError(Exception):
    """Root of everything that the stapler raises on purpose."""


class FetchError(StaplerError):
    """Nothing usable came from an address.

    Attributes:
        lasting: another try would give the same: the address knows no such
            thing, or we would not read what it gives.
    """

    def __init__(self, message: str, *, lasting: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting


class IdentityError(StaplerError):
    """The machine's evidence is not to be had, or of a kind without files."""


class StoreError(StaplerError):
    """A file could not be written."""
