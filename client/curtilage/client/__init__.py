"""The device's side: classify, decide, answer at home or ask the enclave."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from curtilage.client.answers import Answer, Answerer, Delta, Provenance
    from curtilage.client.api import Client, SyncClient
    from curtilage.client.errors import ClientError

__all__ = [
    "Answer",
    "Answerer",
    "Client",
    "ClientError",
    "Delta",
    "Provenance",
    "SyncClient",
]

_HOMES = {
    "Answer": "answers",
    "Answerer": "answers",
    "Client": "api",
    "ClientError": "errors",
    "Delta": "answers",
    "Provenance": "answers",
    "SyncClient": "api",
}


def __getattr__(name: str) -> object:
    """Import a public name when first used: the detectors' process needs none."""
    import importlib  # noqa: PLC0415 - only when a public name is asked for

    if name not in _HOMES:
        raise AttributeError(name)
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
