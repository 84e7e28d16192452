"""Grammar rules for JSON's own values: texts, numbers in a range, any value. Pure."""

from typing import Final

from curtilage.inference.grammar import (
    DIGIT,
    EMPTY,
    NOTHING,
    Chars,
    Grammar,
    Node,
    Repeat,
    Rule,
    Text,
    chain,
    choice,
    optional,
)

MAX_DIGITS: Final = 15
"""Of a number without a bound: every reader keeps so many exactly."""

MAX_ANY_DEPTH: Final = 16
"""Of a value without a schema: a reader may refuse deeper ones."""

HEX: Final = Chars(((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)))
_SPACE: Final = Text(" ")
_NOT_ZERO: Final = Chars(((0x31, 0x39),))
# One way for each kind of layout: with more the library follows many ways at once.
GAP: Final = choice(
    EMPTY, _SPACE, chain(Text("\n"), Repeat(choice(_SPACE, Text("\t")), 0, 20))
)
"""White space where JSON permits some; bounded: small models repeat it for ever."""

CHARACTER: Final = choice(
    # As itself: anything but quote, backslash, controls and halves of a pair.
    Chars(
        ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7E), (0x80, 0xD7FF), (0xE000, 0x10FFFF))
    ),
    chain(
        Text("\\"),
        choice(
            Chars(tuple((ord(sign), ord(sign)) for sign in '"/\\bfnrt')),
            chain(
                Text("u"),
                # Halves of a pair would be one character for two, or for none.
                choice(
                    chain(
                        Chars(((0x30, 0x39), (0x41, 0x43), (0x61, 0x63), (0x45, 0x46),
                               (0x65, 0x66))),
                        HEX,
                    ),
                    chain(Chars(((0x44, 0x44), (0x64, 0x64))), Chars(((0x30, 0x37),))),
                ),
                Repeat(HEX, 2, 2),
            ),
        ),
    ),
)  # fmt: skip
"""One character of a text, as JSON writes it."""


class JsonRules:
    """The rules that a grammar needs for JSON, each added once.

    What begins an object or array is the same for all of them, the empty one included,
    so that the library follows one way up to the first member.

    Args:
        grammar: takes them.
    """

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.gap = grammar.common("gap", lambda: GAP)
        self.space = grammar.common("space", lambda: optional(_SPACE))
        self.character = grammar.common("character", lambda: CHARACTER)
        self.text = self.text_of(0, None)
        self.integer = grammar.common("integer", lambda: integer_between(None, None))
        self.number = grammar.common("number", lambda: _NUMBER)
        self.closed = grammar.common("closed", lambda: chain(self.gap, Text("}")))

    def text_of(self, least: int, most: int | None) -> Rule:
        """Return a text of so many characters."""
        return self.grammar.common(
            f"text {least} {most}",
            lambda: chain(
                Text('"'),
                self.grammar.repeat(self.character, least, most),
                Text('"'),
            ),
        )

    def begun(self, bracket: str, *options: Node) -> Node:
        """Return an object or array: its bracket, and one of what may follow that."""
        return chain(Text(bracket), self.gap, choice(*options))

    def entry(self, value: Node) -> Node:
        """Return a member of any name, with such a value."""
        return chain(self.text, Text(":"), self.space, value)

    def items(self, value: Node, least: int, most: int | None) -> Node:
        """Return so many values, one at least, and the end of their array."""
        more = self.grammar.add(chain(Text(","), self.gap, value))
        return chain(
            value,
            self.grammar.repeat(
                more, max(least - 1, 0), None if most is None else most - 1
            ),
            self.gap,
            Text("]"),
        )

    def any_value(self) -> Rule:
        """Return any value, nested at most ``MAX_ANY_DEPTH`` deep."""
        return self._value(MAX_ANY_DEPTH)

    def any_object(self) -> Rule:
        """Return any object, nested likewise."""
        return self._object(MAX_ANY_DEPTH)

    def _value(self, depth: int) -> Rule:
        flat = choice(self.text, self.number, Text("true"), Text("false"), Text("null"))
        if not depth:
            return self.grammar.common("value 0", lambda: flat)
        return self.grammar.common(
            f"value {depth}",
            lambda: choice(
                flat,
                self._object(depth),
                self.begun("[", Text("]"), self.items(self._value(depth - 1), 0, None)),
            ),
        )

    def _object(self, depth: int) -> Rule:
        return self.grammar.common(f"object {depth}", lambda: self._object_node(depth))

    def _object_node(self, depth: int) -> Node:
        entry = self.grammar.add(self.entry(self._value(depth - 1)))
        more = self.grammar.add(chain(Text(","), self.gap, entry))
        return self.begun("{", Text("}"), chain(entry, Repeat(more), self.closed))


def integer_between(least: int | None, most: int | None) -> Node:
    """Return an integer within bounds, both included."""
    options: list[Node] = []
    if most is None or most >= 0:
        options.append(natural_between(max(least or 0, 0), most))
    if least is None or least < 0:
        nearest = 1 if most is None or most >= 0 else -most
        farthest = None if least is None else -least
        options.append(chain(Text("-"), natural_between(nearest, farthest)))
    return choice(*options)


def number_between(least: int | None, most: int | None) -> Node:
    """Return a number within bounds, both included."""
    options: list[Node] = []
    if most is None or most >= 0:
        options.append(_fractional(max(least or 0, 0), most))
    if least is None or least < 0:
        nearest = 0 if most is None or most >= 0 else -most
        farthest = None if least is None else -least
        options.append(chain(Text("-"), _fractional(nearest, farthest)))
    return choice(*options)


def _fractional(least: int, most: int | None) -> Node:
    # With a fraction it is more than its integer: that one is below the bound.
    whole = natural_between(least, None if most is None else most - 1)
    return choice(
        chain(whole, optional(_FRACTION)),
        NOTHING if most is None else _exactly(least, most),
    )


def _exactly(least: int, most: int) -> Node:
    return Text(str(most)) if least <= most else NOTHING


def natural_between(least: int, most: int | None) -> Node:
    """Return an integer, 0 or more, within bounds, both included."""
    if most is None:
        most = 10 ** max(MAX_DIGITS, len(str(least))) - 1
    options: list[Node] = []
    whole: list[int] = []
    for digits in range(len(str(least)), len(str(most)) + 1):
        lowest = 10 ** (digits - 1) if digits > 1 else 0
        first, last = max(least, lowest), min(most, 10**digits - 1)
        if first <= max(lowest, 1) and last == 10**digits - 1:
            whole.append(digits)
        elif first <= last:
            options.append(digits_between(str(first), str(last)))
    if whole:
        # In one: numbers of each length by themselves would all begin alike.
        rest = Repeat(DIGIT, whole[0] - 1, whole[-1] - 1)
        options.append(chain(_NOT_ZERO, rest) if whole[-1] > 1 else _NOT_ZERO)
        if least == 0:
            options.append(Text("0"))
    return choice(*options)


def digits_between(first: str, last: str) -> Node:
    """Return as many digits as both have, between them."""
    if first == last:
        return Text(first)
    size = len(first)
    if first == "0" * size and last == "9" * size:
        return Repeat(DIGIT, size, size)
    rest = size - 1
    low, high = int(first[0]), int(last[0])
    if low == high:
        return chain(Text(first[0]), digits_between(first[1:], last[1:]))
    options: list[Node] = []
    if first[1:] != "0" * rest:
        options.append(chain(Text(first[0]), digits_between(first[1:], "9" * rest)))
        low += 1
    ends = last[1:] == "9" * rest
    if low <= high - (not ends):
        digit = Chars(((ord("0") + low, ord("0") + high - (not ends)),))
        options.append(chain(digit, Repeat(DIGIT, rest, rest)) if rest else digit)
    if not ends:
        options.append(chain(Text(last[0]), digits_between("0" * rest, last[1:])))
    return choice(*options)


_FRACTION: Final = chain(Text("."), Repeat(DIGIT, 1, MAX_DIGITS))
_EXPONENT: Final = chain(
    choice(Text("e"), Text("E")),
    optional(choice(Text("+"), Text("-"))),
    Repeat(DIGIT, 1, 2),
)
_NUMBER: Final = chain(
    optional(Text("-")),
    natural_between(0, None),
    optional(_FRACTION),
    optional(_EXPONENT),
)
