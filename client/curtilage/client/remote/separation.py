"""Who may not be the same party: relay, mirror and gateway, by their names.

A relay and a gateway of one organisation see together who asks and what. Names
alone cannot show that two organisations are two, but two names of one
registrable domain are certainly one. The policy's own addresses are compared
when it is loaded; here they meet the relay's, which is no part of a policy.
"""

from urllib.parse import urlsplit

from curtilage.client.errors import ConfigError
from curtilage.client.tls import is_loopback, is_numeric
from curtilage.policy.document.addresses import registrable_domain


def require_apart(*, development: bool, **addresses: str | None) -> None:
    """Refuse two parties of one registrable domain.

    Args:
        development: addresses in numbers, and this machine's own, may be used;
            they belong to no domain and are not compared.
        addresses: the parties by what they are called, as URLs; None is left
            out.

    Raises:
        ConfigError: says which two, or which address is none of a production.
    """
    seen: dict[str, str] = {}
    for party, url in addresses.items():
        # By name and not by address: addresses change, and parties that share a
        # provider share some of them.
        host = host_of(url)
        if host is None:
            continue
        if is_numeric(host) or is_loopback(host):
            if not development:
                raise ConfigError(
                    f"{party} {host!r}: an address in numbers, or of this machine, "
                    "is for a policy with environment: development; use a name"
                )
            continue
        # Everybody with everybody: a mirror of the relay's owner confirms whatever the
        # relay serves, and shows nothing.
        domain = registrable_domain(host)
        if domain in seen:
            raise ConfigError(
                f"{seen[domain]} and {party} are both of {domain}: one party would "
                "see who asks and what; they must be different organisations"
            )
        seen[domain] = party


def host_of(url: str | None) -> str | None:
    """Return a URL's host in its one spelling, or None where there is none.

    Raises:
        ConfigError: it is no name that can be looked up.
    """
    try:
        host = None if url is None else urlsplit(url).hostname
        if host is None or is_numeric(host):
            return host
        # Two spellings of one name must not pass for two parties.
        return host.rstrip(".").encode("idna").decode().lower()
    except ValueError:  # UnicodeError is one
        raise ConfigError(f"{url!r}: no name of a host") from None
