"""Errors of writing, reading or auditing a log, other than refusals of evidence.

::

    TransparencyError   the operation needs an extra that is not installed
    ├── InputError      the description of a release or of its signer is invalid
    ├── FileError       a file or folder is missing, wrong, or open to others; names it
    └── HeldError       another process works on it right now; later it may be free

A log or proof that contradicts itself is a ``curtilage.attest.errors.RefusedError``.
"""


class TransparencyError(Exception):
    """Nothing was written; the message says what to do, and contains no key."""


class InputError(TransparencyError):
    """A version, a time, a level or an identity is invalid."""


class FileError(TransparencyError):
    """A file or folder is invalid."""


class HeldError(TransparencyError):
    """Another process has locked a file or folder."""
