"""The client: classifies a query, decides, and answers locally or asks the enclave.

It knows the text, the policy and the user's machine. It must not know the relay's or
the enclave's code; one file seals (``remote.seal``), one sends (``remote.transport``).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from curtilage.client.api import Client, SyncClient
    from curtilage.client.chat.answer import Answer, Answerer, Delta, Provenance
    from curtilage.client.errors import ClientError
    from curtilage.client.telemetry import TelemetrySettings

__all__ = [
    "Answer",
    "Answerer",
    "Client",
    "ClientError",
    "Delta",
    "Provenance",
    "SyncClient",
    "TelemetrySettings",
]


def __getattr__(name: str) -> object:
    """Import a public name on first use: the detectors' process needs none of them."""
    if name in {"Client", "SyncClient"}:
        from curtilage.client import api  # noqa: PLC0415

        return getattr(api, name)
    if name == "ClientError":
        from curtilage.client import errors  # noqa: PLC0415

        return errors.ClientError
    if name == "TelemetrySettings":
        from curtilage.client import telemetry  # noqa: PLC0415

        return telemetry.TelemetrySettings
    if name in __all__:
        from curtilage.client.chat import answer as answers  # noqa: PLC0415

        return getattr(answers, name)
    raise AttributeError(name)
