"""Rules of alternatives without parts: texts, numbers, formats, any value. Pure.

With what llama.cpp holds while it reads them (``stacks``).
"""

from collections.abc import Callable
from typing import Any, Final

from curtilage.inference.alternatives import (
    Alternative,
    Anything,
    Dictionary,
    Formatted,
    Integers,
    Numbers,
    Texts,
    order,
)
from curtilage.inference.formats import FORMATS
from curtilage.inference.grammar import Node, Rule, Text, chain
from curtilage.inference.json_grammar import (
    JsonRules,
    integer_between,
    number_between,
)
from curtilage.inference.stacks import Held

# Each at most: ``test_stacks`` counts it.
GAPS: Final = Held(1, 8)
"""Before a bracket or comma, or after it."""
WITHIN: Final[dict[type[Alternative], Held]] = {
    Texts: Held(1, 4),
    Formatted: Held(1, 30),
    Integers: Held(1, 8),
    Numbers: Held(1, 12),
    Anything: Held(1, 16),
    Dictionary: Held(1, 16),
}
BEGINNINGS: Final[dict[type[Alternative], str]] = {
    Texts: '"',
    Formatted: '"',
    Integers: "0",
    Numbers: "0",
    Anything: '"0[{tfn',
    Dictionary: "{",
}
"""The first characters; 0 stands for all of numbers."""


def first_of(text: str) -> str:
    """Return the first character of a listed value, as in ``BEGINNINGS``."""
    return "0" if text[0] in "-123456789" else text[0]


def listed(width: int) -> Held:
    """Return what is held within listed values, in a tree of this width."""
    # A number may have ended, or go on.
    return Held(1, width + GAPS.stacks)


def leaf_rule(json: JsonRules, alternative: Alternative) -> Rule:
    """Return the rule of an alternative without parts; a dictionary is of any values.

    Raises:
        SchemaError: there are too many rules, or repetitions.
    """
    make = _LEAVES[type(alternative)]
    return json.grammar.common(
        " ".join(order(alternative)), lambda: make(json, alternative)
    )


def _text(json: JsonRules, texts: Texts) -> Node:
    return json.text_of(texts.least, texts.most)


def _formatted(_json: JsonRules, text: Formatted) -> Node:
    return chain(Text('"'), FORMATS[text.name], Text('"'))


def _integer(_json: JsonRules, integers: Integers) -> Node:
    return integer_between(integers.low, integers.high)


def _number(json: JsonRules, numbers: Numbers) -> Node:
    if numbers.low is numbers.high is None:
        return json.number
    return number_between(numbers.low, numbers.high)


def _any_value(json: JsonRules, _anything: Anything) -> Node:
    return json.any_value()


def _any_object(json: JsonRules, _dictionary: Dictionary) -> Node:
    return json.any_object()


_LEAVES: Final[dict[type[Alternative], Callable[[JsonRules, Any], Node]]] = {
    Texts: _text,
    Formatted: _formatted,
    Integers: _integer,
    Numbers: _number,
    Anything: _any_value,
    Dictionary: _any_object,
}
