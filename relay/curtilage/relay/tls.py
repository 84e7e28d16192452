"""TLS on both hops: contexts from files, and nothing an observer could follow.

Knows files and settings; refuses every protocol but HTTP/1.1, from clients all
below TLS 1.3, from gateways all below TLS 1.2. What is wrong with a file is told
by its key in the configuration.
"""

import ssl  # noqa: TID251 - a door
from pathlib import Path
from typing import Final

from curtilage.relay.config import TLSSettings
from curtilage.relay.errors import StartError

PROTOCOLS: Final = ("http/1.1",)


def make_server_context(tls: TLSSettings) -> ssl.SSLContext:
    """Return what clients meet.

    Raises:
        StartError: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A client's certificate, and a session's number when it comes again, stand in
    # clear in TLS 1.2: an observer of the line would know who asks, or tie two
    # connections together. As a ticket would.
    _restrict(context, ssl.TLSVersion.TLSv1_3)
    context.num_tickets = 0
    try:
        # An encrypted key gets an empty password: nobody is there to ask.
        context.load_cert_chain(tls.certificate, tls.key, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise _unusable("tls.certificate or tls.key", error) from None
    if tls.client_ca is not None:
        try:
            context.load_verify_locations(tls.client_ca)
        except (OSError, ValueError) as error:
            raise _unusable("tls.client_ca", error) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def make_client_context(ca_file: Path | None) -> ssl.SSLContext:
    """Return how gateways are met: verified, name included.

    Args:
        ca_file: trust these certificates, not the system's.

    Raises:
        StartError: the file cannot be used.
    """
    try:
        context = ssl.create_default_context(
            cafile=None if ca_file is None else str(ca_file)
        )
    except (OSError, ValueError) as error:
        raise _unusable("upstream_ca_file", error) from None
    _restrict(context, ssl.TLSVersion.TLSv1_2)
    return context


def _restrict(context: ssl.SSLContext, oldest: ssl.TLSVersion) -> None:
    context.minimum_version = oldest
    context.set_alpn_protocols(PROTOCOLS)


def _unusable(what: str, error: Exception) -> StartError:
    reason = "not usable PEM, or the key is another certificate's"
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        reason = error.strerror or reason
    return StartError(f"cannot start: {what}: {reason}")
