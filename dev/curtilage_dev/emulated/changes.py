"""Changes to evidence before it is signed: by default, none."""

from typing import TypeVar

_FieldsT = TypeVar("_FieldsT")


def unchanged(fields: _FieldsT) -> _FieldsT:
    """Return the fields unchanged."""
    return fields
