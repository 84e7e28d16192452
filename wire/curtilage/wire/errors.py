"""Errors of the wire; none contains a byte of a message.

The tree, by what the caller can do::

    WireError
    +-- TruncatedError      the bytes end too soon; more of them could be valid
    +-- MalformedError      no continuation makes these bytes (or values) valid
    +-- LimitExceededError  well formed so far, but more than we accept
    +-- UnsupportedError    well formed, but nothing in it that we can use
    +-- OpenError           it does not decrypt; never says at which step
    +-- UnknownKeyError     sealed to a key that we do not hold; refetch keys
    +-- ConsumedError       our own fault: an object used twice or too early
    +-- SelfTestError       our HPKE and another one differ; do not start

Messages name fields, lengths and expected sizes. A gateway answers all of them
alike on the wire, ``UnknownKeyError`` excepted.
"""


class WireError(Exception):
    """Any refusal of this part."""


class TruncatedError(WireError):
    """The bytes end before the message does."""


class MalformedError(WireError):
    """The bytes, or the values to be encoded, break the format."""


class LimitExceededError(WireError):
    """A named limit would be exceeded; nothing beyond it was stored."""


class UnsupportedError(WireError):
    """No algorithm, key or identifier in it is one that we support."""


# No argument: an attacker who alters messages would like to learn which step failed,
# how long something was or which key was tried. No cause either: it is raised
# ``from None``.
class OpenError(WireError):
    """A sealed message does not open; one text for every cause."""

    def __init__(self) -> None:
        super().__init__("the message does not open")


class UnknownKeyError(WireError):
    """A request was sealed to a key identifier that we do not hold."""

    def __init__(self) -> None:
        super().__init__("no key has this key identifier")


class ConsumedError(WireError):
    """A one-shot object was used twice, after a failure, or out of order."""


class SelfTestError(WireError):
    """Our HPKE and another implementation do not open each other's messages."""

    def __init__(self, what: str) -> None:
        super().__init__(f"HPKE self-test: {what}; nothing is sealed or opened")
