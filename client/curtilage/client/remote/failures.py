"""Maps the relay's statuses and TLS alerts to reasons; their text is discarded."""

from collections.abc import Container
from typing import Protocol

from curtilage.client.errors import EnclaveError, FailureReason

HTTP_OK = 200
CERTIFICATE_ALERTS = (
    *("ALERT_CERTIFICATE_REQUIRED", "ALERT_BAD_CERTIFICATE", "ALERT_UNKNOWN_CA"),
    *("ALERT_CERTIFICATE_EXPIRED", "ALERT_CERTIFICATE_REVOKED"),
    *("ALERT_UNSUPPORTED_CERTIFICATE", "ALERT_CERTIFICATE_UNKNOWN"),
    "ALERT_ACCESS_DENIED",
)
"""TLS alerts by which a server rejects our certificate."""
FAILED_STATUS = {
    401: FailureReason.RELAY_DENIED,
    403: FailureReason.RELAY_DENIED,
    404: FailureReason.RELAY_KNOWS_NO_SUCH,
    405: FailureReason.RELAY_KNOWS_NO_SUCH,
    413: FailureReason.TOO_LARGE,
    421: FailureReason.RELAY_KNOWS_NO_SUCH,
    429: FailureReason.BUSY,
    502: FailureReason.ENCLAVE_UNREACHABLE,
    503: FailureReason.BUSY,
    504: FailureReason.TIMEOUT,
}
OF_ONE_PARTY = frozenset({429, 504})
"""Reported with their status: only the relay sends 429, and it sends 504 for a gateway
that does not respond; the reason alone could come from any party on the path."""


class Answered(Protocol):
    """The head of an HTTP response."""

    @property
    def status(self) -> int:
        """Its status."""
        ...

    @property
    def content_type(self) -> str:
        """Its media type, without parameters."""
        ...


def require_ok(response: Answered, media_types: Container[str]) -> None:
    """Refuse any status but 200, and any unexpected media type."""
    if response.status != HTTP_OK:
        reason = FAILED_STATUS.get(response.status, FailureReason.REFUSED)
        with_status = reason is FailureReason.REFUSED or response.status in OF_ONE_PARTY
        code = str(response.status) if with_status else None
        raise EnclaveError(reason, code=code)
    # A status does not identify the server: a captive portal sends 200 as well.
    if response.content_type not in media_types:
        raise EnclaveError(FailureReason.ANSWER_BROKEN)
