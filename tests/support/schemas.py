"""Random JSON schemas that the engine enforces, for properties."""

from typing import Any

from hypothesis import strategies as st

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(-100, 100).filter(lambda number: number != 0)
    | NAMES
)
_BOUNDS = st.none() | st.integers(-2000, 2000)


def _with(kind: str, **fields: "st.SearchStrategy[Any]") -> "st.SearchStrategy[Any]":
    """Return schemas of one type, each keyword there or not."""
    return st.fixed_dictionaries({"type": st.just(kind)}, optional=fields)


_LEAVES = st.one_of(
    st.fixed_dictionaries({"enum": st.lists(SCALARS, min_size=1, max_size=4)}),
    st.fixed_dictionaries({"const": SCALARS}),
    _with("string", minLength=st.integers(0, 3), maxLength=st.integers(3, 6)),
    _with(
        "integer",
        minimum=st.integers(-3000, 0),
        maximum=st.integers(1, 3000),
        exclusiveMinimum=st.integers(-3000, -1),
        exclusiveMaximum=st.floats(2, 3000),
    ),
    _with("number", minimum=st.integers(-3000, 0), maximum=st.integers(0, 3000)),
    _with("boolean", description=NAMES),
    st.just({"type": ["null", "string"], "maxLength": 3}),
    st.sampled_from([{"$ref": "#"}, {"$ref": "#/$defs/a~1b"}, {"$ref": "#/$defs/c"}]),
)


def _objects(inner: "st.SearchStrategy[Any]") -> "st.SearchStrategy[Any]":
    return st.dictionaries(NAMES, inner, max_size=4).flatmap(
        lambda named: st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.just(named)},
            optional={
                "required": st.lists(
                    st.sampled_from([*named, "also"]), unique=True, max_size=5
                ),
                "additionalProperties": st.booleans() | inner,
            },
        )
    )


_PARTS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        _objects(inner),
        _with(
            "array",
            items=inner,
            minItems=st.integers(0, 2),
            maxItems=st.integers(1, 4),
        ),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=1)}),
    ),
    max_leaves=8,
)


def _whole(
    root: dict[str, Any], first: dict[str, Any], second: dict[str, Any]
) -> dict[str, Any]:
    return {**root, "$defs": {"a/b": first, "c": second}}


SCHEMAS: "st.SearchStrategy[dict[str, Any]]" = st.builds(_whole, _PARTS, _PARTS, _PARTS)
"""Some permit nothing, or refer to themselves at once: those are refused."""
