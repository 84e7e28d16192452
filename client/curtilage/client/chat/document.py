"""JSON inside a query: the definition of a tool, the arguments of a call, a schema.

Only the value counts, and it is encoded anew, so no spelling hides anything. The
detectors read every name, string and number of it, decoded.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Self, cast

# Words of JSON Schema and of OpenAI's API. They describe no one, and are left out:
# between a name and what describes it, they would hide what belongs together.
GRAMMAR: Final = frozenset(
    {"$schema", "http://json-schema.org/draft-07/schema#"}
    | {"https://json-schema.org/draft/2020-12/schema"}
    | {"$defs", "additionalProperties", "allOf", "anyOf", "array", "boolean", "const"}
    | {"default", "description", "enum", "examples", "function", "integer", "items"}
    | {"json_object", "json_schema", "name", "number", "object", "oneOf", "parameters"}
    | {"properties", "required", "schema", "strict", "string", "title", "type"}
)


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON value that cannot change.

    Attributes:
        encoded: its JSON.
        schema: whether it is a part of the request, and not a text in it; ``GRAMMAR``
            is left out of what the detectors read.
    """

    encoded: str = field(repr=False)
    schema: bool = False

    @classmethod
    def of(cls, value: object, *, schema: bool = False) -> Self:
        """Return the document of a value.

        Raises:
            ValueError: it contains an infinite number.
        """
        return cls(_encoded(value), schema)

    def value(self) -> object:
        """Return the value."""
        return cast("object", json.loads(self.encoded))

    def plain(self) -> object:
        """Return what a request contains: a schema itself, arguments as JSON text."""
        return self.value() if self.schema else _encoded(self.value())

    def text(self) -> str:
        """Return what the detectors read: each name and its value, line by line."""
        return "".join(self._read(self.value()))

    def _read(self, value: object) -> Iterator[str]:
        if isinstance(value, dict):
            for name, each in cast("dict[str, object]", value).items():
                if not self.omits(name):
                    yield f"{name}: "
                yield from self._read(each)
        elif isinstance(value, list):
            for each in cast("list[object]", value):
                yield from self._read(each)
        elif not isinstance(value, str):
            yield f"{_encoded(value)}\n"
        elif not self.omits(value):
            yield f"{value}\n"

    def omits(self, text: str) -> bool:
        """Return whether a name or a string is left out of ``text``."""
        return self.schema and text in GRAMMAR


def _encoded(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
