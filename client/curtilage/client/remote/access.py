"""Credentials for the relay and the authorities trusted for it, read once from files.

A client certificate and its key, a private CA, an API key. Their contents are never in
a process argument, a ``repr`` or an error; errors name the file.
"""

import ssl  # noqa: TID251 - a door
from dataclasses import dataclass, field
from pathlib import Path

from curtilage.client.errors import ConfigError
from curtilage.client.system.tls import read_token, tls_context, trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayAccess:
    """Client credentials for the relay, and the TLS trust for it.

    Attributes:
        tls: for connections to the relay.
        api_key: the bearer token, or None.
        readable_by_others: the API key's file, if other users may read it.
    """

    tls: ssl.SSLContext = field(repr=False)
    api_key: str | None = field(default=None, repr=False)
    readable_by_others: Path | None = None

    def fields(self) -> dict[str, str]:
        """Return the header fields of a request to the relay."""
        key = self.api_key
        return {} if key is None else {"Authorization": f"Bearer {key}"}


def read_access(
    *,
    ca: Path | None = None,
    certificate: Path | None = None,
    certificate_key: Path | None = None,
    key: Path | None = None,
) -> RelayAccess:
    """Read the files.

    Args:
        ca: certificates (PEM) of the only authorities to trust for the relay;
            None: the system's trust store.
        certificate: our certificate and its chain (PEM), if the relay wants one.
        certificate_key: its private key (PEM); None: in the same file.
        key: a file with the API key that the relay's operator gave us.

    Raises:
        ConfigError: a file cannot be read or has the wrong content; names the file.
    """
    # Read once, at the start: a renewed file takes effect when the client is restarted,
    # not in the middle of a query.
    tls = tls_context(ca)
    if certificate is not None:
        _load_certificate(tls, certificate, certificate_key)
    elif certificate_key is not None:
        raise ConfigError(f"{certificate_key}: a key without its certificate")
    if key is None:
        return RelayAccess(tls=tls)
    token, for_others = read_token(key)
    return RelayAccess(
        tls=tls, api_key=token, readable_by_others=key if for_others else None
    )


def _load_certificate(
    tls: ssl.SSLContext, certificate: Path, certificate_key: Path | None
) -> None:
    key = None if certificate_key is None else str(certificate_key)
    named = certificate if certificate_key is None else certificate_key

    # Without this, OpenSSL would prompt at the terminal, and a service would hang.
    def no_password() -> str:
        raise ConfigError(f"{named}: the key is encrypted; use one without a password")

    try:
        tls.load_cert_chain(str(certificate), key, no_password)
    except (ssl.SSLError, OSError) as failure:
        pair = certificate if key is None else f"{certificate}, {certificate_key}"
        expected = "not a certificate and its key"
        raise ConfigError(f"{pair}: {trouble(failure, expected)}") from None
