"""Checks that relay, mirror and gateway are different organisations, by their domains.

If one organisation runs relay and gateway, it sees who asks and what. Names cannot
prove that two organisations are different, but two names in one registrable domain
certainly belong to one. The policy's own addresses are compared when it is loaded; here
they are compared with the relay's, which is not part of a policy.
"""

from urllib.parse import urlsplit

from curtilage.client.errors import ConfigError
from curtilage.client.system.tls import is_loopback, is_numeric
from curtilage.policy.document.addresses import registrable_domain


def require_apart(*, development: bool, **addresses: str | None) -> None:
    """Refuse two parties in one registrable domain.

    Args:
        development: whether numeric addresses, and this machine's own, may be used;
            they belong to no domain and are not compared.
        addresses: URLs by the name of the party, which appears in errors; None is
            skipped.

    Raises:
        ConfigError: names the two, or the address that is for development only.
    """
    seen: dict[str, str] = {}
    for party, url in addresses.items():
        # By name and not by address: addresses change, and independent parties may
        # share those of their provider.
        host = host_of(url)
        if host is None:
            continue
        if is_numeric(host) or is_loopback(host):
            if not development:
                raise ConfigError(
                    f"{party} {host!r}: a numeric address, or one of this machine, "
                    "needs a policy with environment: development; use a name"
                )
            continue
        # All pairs: a mirror run by the relay's owner confirms whatever the relay
        # serves, and proves nothing.
        domain = registrable_domain(host)
        if domain in seen:
            raise ConfigError(
                f"{seen[domain]} and {party} are both in {domain}: one party would "
                "see who asks and what; they must be different organisations"
            )
        seen[domain] = party


def host_of(url: str | None) -> str | None:
    """Return a URL's host in canonical spelling, or None if it has none.

    Raises:
        ConfigError: not a name that can be resolved.
    """
    try:
        host = None if url is None else urlsplit(url).hostname
        if host is None or is_numeric(host):
            return host
        # Two spellings of one name must not count as two parties.
        return host.rstrip(".").encode("idna").decode().lower()
    except ValueError:  # includes UnicodeError
        raise ConfigError(f"{url!r}: not a valid host name") from None
