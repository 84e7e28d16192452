"""Addresses of the relay and of the mirror of the key list, as configured.

The relay is sent sealed bytes; both are asked for public data. No query text is here.
"""

from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from curtilage.client.errors import ConfigError
from curtilage.client.system.tls import is_loopback


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayAddress:
    """Address of the relay and of one of its gateways.

    Attributes:
        url: ``https://host[:port]/name``; plain ``http`` on loopback only.
    """

    url: str

    @classmethod
    def parse(cls, text: str, *, plain_loopback: bool) -> "RelayAddress":
        """Check an address.

        Args:
            text: the address as configured.
            plain_loopback: whether ``http`` to this machine is acceptable; only a
                development policy permits it.

        Raises:
            ConfigError: not a valid address; names the rule that it breaks.
        """
        url = _split(text)
        # An address with more than a host and a name is a mistake or carries a secret;
        # a password in it would be sent.
        if url is None or not url.hostname:
            raise ConfigError(f"relay address {text!r}: expected https://host/name")
        if url.query or url.fragment or url.username or not url.path.strip("/"):
            raise ConfigError(
                f"relay address {text!r}: expected https://host/name, where name is "
                "the gateway's name at the relay, and nothing after it"
            )
        if url.scheme == "http" and not (plain_loopback and is_loopback(url.hostname)):
            raise ConfigError(
                f"relay address {text!r}: plain http is for this machine's own "
                "addresses under a policy with environment: development"
            )
        return cls(url=text.rstrip("/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorAddress:
    """Address of an independent copy of the key list.

    Attributes:
        url: ``https://host[:port]/path``; plain ``http`` on loopback only.
    """

    url: str

    @classmethod
    def parse(cls, text: str, *, plain_loopback: bool) -> "MirrorAddress":
        """Check an address; see ``RelayAddress.parse``.

        Raises:
            ConfigError: not a valid address.
        """
        url = _split(text)
        if url is None or not url.hostname or url.username or url.fragment:
            raise ConfigError(f"mirror address {text!r}: expected https://host/path")
        if url.scheme == "http" and not (plain_loopback and is_loopback(url.hostname)):
            raise ConfigError(f"mirror address {text!r}: expected https")
        return cls(url=text)


def _split(text: str) -> SplitResult | None:
    """Split an HTTP address; None for anything else."""
    try:
        url = urlsplit(text)
        _ = url.port  # raises if it is not a number
    except ValueError:
        return None
    return url if url.scheme in {"http", "https"} else None
