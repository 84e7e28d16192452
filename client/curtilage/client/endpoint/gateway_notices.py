"""What a gateway's file permits, and its author may not have meant.

Nothing here is refused: a certificate may be renewed a minute later, and on some mounts
every file looks as if others could read it.
"""

import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from curtilage.client.endpoint.gateway_file import GatewayFile, TLSFiles

SOON: Final = timedelta(days=14)
NO_KEY: Final = "no application has a key: all requests are refused"
_FOR_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def notices(file: GatewayFile, now: datetime) -> list[str]:
    """Return a sentence for each.

    Args:
        file: whose certificate and key can be used.
        now: the time, aware.
    """
    said = [] if file.records else [f"{file.path}: {NO_KEY}"]
    if file.tls is None:
        return said
    with suppress(OSError):
        if file.tls.key.stat().st_mode & _FOR_OTHERS:
            said.append(f"{file.tls.key}: other accounts of this machine can read it")
    return [*said, *_of_certificate(file.tls, file.names, now)]


def _of_certificate(
    files: TLSFiles, names: frozenset[str], now: datetime
) -> Iterator[str]:
    # One that cannot be read here was loaded by OpenSSL all the same.
    with suppress(OSError, ValueError):
        leaf, *_ = x509.load_pem_x509_certificates(files.certificate.read_bytes())
        end = leaf.not_valid_after_utc
        if end <= now + SOON:
            verb = "ended" if end <= now else "ends"
            yield f"{files.certificate}: {verb} at {end:%Y-%m-%d %H:%M} UTC"
        covered = _names_of(leaf)
        for name in sorted(names):
            if not covered & {name.strip("[]"), f"*.{name.partition('.')[2]}"}:
                yield (
                    f"{files.certificate}: not for {name}, so applications that call "
                    "the gateway by this name refuse it"
                )


def _names_of(certificate: x509.Certificate) -> set[str]:
    with suppress(x509.ExtensionNotFound):
        found = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value
        addresses = found.get_values_for_type(x509.IPAddress)
        names = found.get_values_for_type(x509.DNSName)
        return {*map(str, addresses), *(each.lower() for each in names)}
    return set()
