"""What changes evidence before it is signed: by default, nothing."""

from typing import TypeVar

_FieldsT = TypeVar("_FieldsT")


def unchanged(fields: _FieldsT) -> _FieldsT:
    """Leave what is to be signed as it is."""
    return fields
