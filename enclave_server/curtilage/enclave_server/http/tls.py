"""TLS of a TCP address: our certificate and key, read once.

Knows files and versions; the content is sealed independently of it. An error in a file
is reported with its remedy, never with the file's content.
"""

import ssl  # noqa: TID251 - a door
from typing import Final

from curtilage.enclave_server.config import TLSFiles
from curtilage.enclave_server.errors import ConfigError

HTTP_1_1: Final = "http/1.1"


def server_context(files: TLSFiles) -> ssl.SSLContext:
    """Return the TLS context of a listening address: TLS 1.2 or newer, HTTP/1.1.

    Raises:
        ConfigError: a file cannot be used.
    """
    # Opened before the library does: its errors do not say which of the two it was.
    for key, path in (("certificate", files.certificate), ("key", files.key)):
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            raise ConfigError(
                f"tls.{key}: cannot be read ({type(error).__name__}); it must be a PEM"
                " file that this user may read"
            ) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([HTTP_1_1])
    try:
        # With a passphrase given, the library does not prompt for one on the terminal.
        context.load_cert_chain(files.certificate, files.key, password=lambda: "")
    except (ssl.SSLError, ValueError, OSError) as error:
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(
                "tls.key: does not belong to tls.certificate; the certificate file"
                " must begin with the certificate that was made for this key"
            ) from None
        raise ConfigError(
            "tls: certificate and key cannot be used together; both must be PEM, the"
            " server's certificate first, the key without a passphrase"
            " (openssl pkey -in KEY -out PLAIN removes one)"
        ) from None
    return context
