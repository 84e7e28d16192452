"""Maps the relay's statuses and TLS alerts to reasons; their text is discarded."""

from collections.abc import Container
from typing import Protocol

from curtilage.client.errors import EnclaveError
from curtilage.client.remote.reasons import EnclaveFailure

HTTP_OK = 200
CERTIFICATE_ALERTS = (
    *("ALERT_CERTIFICATE_REQUIRED", "ALERT_BAD_CERTIFICATE", "ALERT_UNKNOWN_CA"),
    *("ALERT_CERTIFICATE_EXPIRED", "ALERT_CERTIFICATE_REVOKED"),
    *("ALERT_UNSUPPORTED_CERTIFICATE", "ALERT_CERTIFICATE_UNKNOWN"),
    "ALERT_ACCESS_DENIED",
)
"""TLS alerts by which a server rejects our certificate."""
FAILED_STATUS = {
    401: EnclaveFailure.RELAY_DENIED,
    403: EnclaveFailure.RELAY_DENIED,
    404: EnclaveFailure.RELAY_KNOWS_NO_SUCH,
    405: EnclaveFailure.RELAY_KNOWS_NO_SUCH,
    413: EnclaveFailure.TOO_LARGE,
    421: EnclaveFailure.RELAY_KNOWS_NO_SUCH,
    429: EnclaveFailure.BUSY,
    502: EnclaveFailure.ENCLAVE_UNREACHABLE,
    503: EnclaveFailure.BUSY,
    504: EnclaveFailure.TIMEOUT,
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
        reason = FAILED_STATUS.get(response.status, EnclaveFailure.REFUSED)
        with_status = (
            reason is EnclaveFailure.REFUSED or response.status in OF_ONE_PARTY
        )
        code = str(response.status) if with_status else None
        raise EnclaveError(reason, code=code)
    # A status does not identify the server: a captive portal sends 200 as well.
    if response.content_type not in media_types:
        raise EnclaveError(EnclaveFailure.ANSWER_BROKEN)
