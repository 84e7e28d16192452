"""Grammar rules for the values of a schema, merged where they begin alike. Pure.

llama.cpp follows all alternatives that fit the text so far, each with a stack of its
own. So those that begin alike become one rule up to where they differ: listed values
and names of members by their letters, objects by their members as long as both have the
same ones, arrays up to their first item. What is left is counted (``stacks``), and
refused if it is too much.

An object is read from state to state: how many of its members have passed. A set of
objects is read as a set of states, so the members may differ in each.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from curtilage.inference.alternatives import (
    ANY_OBJECT,
    KEEPING,
    Alternative,
    Alternatives,
    Array,
    Dictionary,
    Literal,
    Member,
    Object,
    Texts,
    Values,
    merged,
    order,
)
from curtilage.inference.grammar import (
    EMPTY,
    Grammar,
    Node,
    Rule,
    Text,
    chain,
    choice,
    prefix_tree,
)
from curtilage.inference.json_grammar import JsonRules
from curtilage.inference.leaf_rules import (
    BEGINNINGS,
    GAPS,
    WITHIN,
    first_of,
    leaf_rule,
    listed,
)
from curtilage.inference.stacks import Group, Held, Openings, Stacks, Term

BLOCK: Final = 64
"""Optional members in a row that are one tree of names; the next ones are another. In
one for all, each of a thousand would need a tree of those after it."""
_PLACES: Final = 1024
"""More than an object has states."""
_ROOT: Final = "root"

_WAITING: Final = "^"
"""Stands for all first characters: before the first one each alternative waits."""

States: TypeAlias = frozenset[int]


class _Option(NamedTuple):
    """A member's values, and the states after it."""

    values: Alternatives
    states: States


class ValueRules:
    """The rules of a schema's values.

    Args:
        grammar: takes them.
        values: the schema's sets, resolved.
    """

    def __init__(self, grammar: Grammar, values: Values) -> None:
        self._grammar = grammar
        self._values = values
        self._json = JsonRules(grammar)
        self._stacks = Stacks(grammar.spend)
        self._rules: dict[Term, Rule] = {}
        self._merges: dict[Alternatives, Alternatives] = {}
        self._trees: dict[frozenset[Literal], tuple[Node, int]] = {}
        self._members: dict[tuple[_Option, ...], tuple[Rule, list[Group]]] = {}
        # Not made by recursion: a schema may be a long chain.
        self._waiting: list[tuple[Rule, Callable[[], Node]]] = []

    def add(self, alternatives: Alternatives) -> Rule:
        """Add the rules of a value that is one of these; return the first one.

        Raises:
            SchemaError: they are too many, or too many begin alike.
        """
        root = self._value(alternatives)
        while self._waiting:
            rule, make = self._waiting.pop()
            self._grammar.define(rule, make())
        self._stacks.say(_ROOT, *self._openings(alternatives).groups)
        most = self._stacks.most(_ROOT).stacks
        self._grammar.stacks = max(self._grammar.stacks, most)
        return root

    def _rule(self, name: Term, size: int, make: Callable[[], Node]) -> Rule:
        """Return the rule of a name; its node is made later, once."""
        if name not in self._rules:
            self._grammar.spend(KEEPING * size)
            self._rules[name] = self._grammar.reserve()
            self._waiting.append((self._rules[name], make))
        return self._rules[name]

    # Values.

    def _value(self, alternatives: Alternatives) -> Rule:
        found = self._merged(alternatives)
        literals, arrays, objects, leaves = _sorted(found)
        if not literals:
            rules = self._leaves(leaves) + self._opened(arrays, objects)
            if len(rules) == 1:
                return rules[0]
        return self._rule(("value", found), len(found), lambda: self._value_node(found))

    def _leaves(self, leaves: list[Alternative]) -> list[Rule]:
        return [leaf_rule(self._json, each) for each in leaves]

    def _merged(self, alternatives: Alternatives) -> Alternatives:
        if alternatives not in self._merges:
            self._grammar.spend(KEEPING * (1 + len(alternatives)))
            self._merges[alternatives] = merged(alternatives)
        return self._merges[alternatives]

    def _value_node(self, found: Alternatives) -> Node:
        literals, arrays, objects, leaves = _sorted(found)
        options: list[Node] = []
        if literals:
            options.append(self._tree(literals)[0])
        options += self._leaves(leaves)
        return choice(*options, *self._opened(arrays, objects))

    def _opened(self, arrays: Alternatives, objects: Alternatives) -> list[Rule]:
        """Return the rules of arrays and of objects, if there are any."""
        rules: list[Rule] = []
        if arrays:
            rules.append(
                self._rule(("[", arrays), len(arrays), lambda: self._array(arrays))
            )
        if objects:
            rules.append(
                self._rule(("{", objects), len(objects), lambda: self._object(objects))
            )
        return rules

    def _tree(self, literals: frozenset[Literal]) -> tuple[Node, int]:
        if literals not in self._trees:
            texts = sorted(each.text for each in literals)
            self._trees[literals] = prefix_tree(
                self._grammar, dict.fromkeys(texts, EMPTY)
            )
        return self._trees[literals]

    def _openings(self, alternatives: Alternatives) -> Openings:
        """Return what is held of a value, by its first character."""
        literals, arrays, objects, leaves = _sorted(self._merged(alternatives))
        openings = Openings()
        waiting = 2 * GAPS.stacks
        if literals:
            width = self._tree(literals)[1]
            waiting += width
            for character in {first_of(each.text) for each in literals}:
                openings.add(character, listed(width))
        for leaf in leaves:
            waiting += WITHIN[type(leaf)].stacks
            for character in BEGINNINGS[type(leaf)]:
                openings.add(character, WITHIN[type(leaf)])
        if arrays:
            openings.add("[", ("[", arrays))
        if objects:
            openings.add("{", ("{", objects))
        openings.add(_WAITING, Held(0, waiting))
        return openings

    # Arrays.

    def _array(self, arrays: Alternatives) -> Node:
        options: list[Node] = []
        openings = Openings()
        for each in sorted(arrays, key=order):
            if not isinstance(each, Array):
                continue
            if each.least == 0 and not options:
                options.append(Text("]"))
            if each.most != 0:
                openings.take(self._openings(self._values.of(each.items)))
        options += [
            self._items(each)
            for each in sorted(arrays, key=order)
            if isinstance(each, Array) and each.most != 0
        ]
        self._stacks.say(("[", arrays), [GAPS], *openings.groups)
        return self._json.begun("[", *options)

    def _items(self, array: Array) -> Rule:
        return self._rule(
            ("items", array),
            1,
            lambda: self._json.items(
                self._value(self._values.of(array.items)), array.least, array.most
            ),
        )

    # Objects.

    def _object(self, objects: Alternatives) -> Node:
        states = frozenset(
            each.number * _PLACES for each in objects if isinstance(each, Object)
        )
        values = sorted(
            each.value
            for each in objects
            if isinstance(each, Dictionary) and each.value is not None
        )
        options: list[Node] = []
        if values or any(map(self._may_end, states)):
            options.append(Text("}"))
        together: list[Term] = []
        if pairs := self._pairs(states):
            options.append(pairs)
            together.append(("pairs", states))
        for value in values:
            options.append(self._entries(value))
            together.append(("entries", value))
        self._stacks.say(("{", objects), [GAPS], together)
        return self._json.begun("{", *options)

    def _entries(self, value: int) -> Rule:
        """Return the members of a dictionary, one at least, and its end."""
        return self._rule(("entries", value), 1, lambda: self._entries_node(value))

    def _entries_node(self, value: int) -> Node:
        alternatives = self._values.of(value)
        self._stacks.say(
            ("entries", value),
            [GAPS],
            [WITHIN[Texts]],
            *self._openings(alternatives).groups,
        )
        more = chain(Text(","), self._json.gap, self._entries(value))
        return chain(
            self._json.entry(self._value(alternatives)), choice(self._json.closed, more)
        )

    def _rest(self, state: int) -> tuple[Member, ...]:
        number, passed = divmod(state, _PLACES)
        return self._values.objects[number][passed:]

    def _may_end(self, state: int) -> bool:
        return not any(member.required for member in self._rest(state))

    def _next(self, state: int) -> Iterator[tuple[Member, int]]:
        """Yield the members that may come next, each with the state after it."""
        for place, member in enumerate(self._rest(state)):
            yield member, state + place + 1
            if member.required:
                return

    def _pairs(self, states: States) -> Rule | None:
        """Return the next members, and the object's end; None: there are none."""
        if not any(map(self._rest, states)):
            return None
        return self._rule(
            ("pairs", states), len(states), lambda: self._pairs_node(states)
        )

    def _pairs_node(self, states: States) -> Node:
        coming = {state: list(self._next(state)) for state in sorted(states)}
        later = self._cut(coming)
        values: dict[str, dict[int, set[int]]] = {}
        for members in coming.values():
            self._grammar.spend(len(members))
            for member, state in members:
                found = values.setdefault(member.key, {})
                found.setdefault(member.value, set()).add(state)
        groups: list[Group] = []
        ends: dict[str, Node] = {}
        for key, found in values.items():
            ends[key], held = self._member(self._options(found))
            groups += held
        tree, width = prefix_tree(self._grammar, ends)
        # After its name only the member is held, whichever tree the name is in.
        names: list[Term] = [Held(1, width + GAPS.stacks)]
        if later is not None:
            names.append(("names", later))
            groups.append([("pairs", later)])
            tree = choice(tree, self._pairs(later) or EMPTY)
        self._stacks.say(("names", states), names)
        self._stacks.say(("pairs", states), [("names", states)], *groups)
        return tree

    @staticmethod
    def _cut(coming: dict[int, list[tuple[Member, int]]]) -> States | None:
        """Leave a block of many optional members; return the state after it."""
        if len(coming) > 1:
            return None
        ((state, members),) = coming.items()
        size = BLOCK - state % BLOCK
        if len(members) <= size:
            return None
        del members[size:]
        return frozenset({state + size})

    def _options(self, found: dict[int, set[int]]) -> tuple[_Option, ...]:
        """Return a member's values by what may follow them.

        Args:
            found: the states after each of some sets.
        """
        if len(found) == 1:
            ((value, states),) = found.items()
            return (_Option(self._values.of(value), frozenset(states)),)
        by_value: dict[Alternative, set[int]] = {}
        for value, states in found.items():
            self._grammar.spend(len(states) * len(self._values.of(value)))
            for each in self._values.of(value):
                by_value.setdefault(each, set()).update(states)
        by_states: dict[States, set[Alternative]] = {}
        for each, states in by_value.items():
            by_states.setdefault(frozenset(states), set()).add(each)
        return tuple(
            _Option(frozenset(by_states[states]), states)
            for states in sorted(by_states, key=sorted)
        )

    def _member(self, options: tuple[_Option, ...]) -> tuple[Rule, list[Group]]:
        """Return a member's value and what follows, and what is held meanwhile."""
        if options not in self._members:
            if len(options) == 1:
                values, states = options[0]
                node: Node = chain(self._value(values), self._after(states))
                groups = [*self._openings(values).groups, [("after", states)]]
            else:
                node, groups = self._differing(options)
            rule = self._grammar.add(chain(self._json.space, node))
            self._members[options] = rule, groups
        return self._members[options]

    def _differing(self, options: tuple[_Option, ...]) -> tuple[Node, list[Group]]:
        texts = {
            each.text: states
            for values, states in options
            for each in values
            if isinstance(each, Literal)
        }
        others = [
            _Option(frozenset(rest), states)
            for values, states in options
            if (rest := [each for each in values if not isinstance(each, Literal)])
        ]
        self._grammar.spend(len(texts) + len(others))
        nodes: list[Node] = [
            chain(self._value(values), self._after(states)) for values, states in others
        ]
        width = 0
        if texts:
            tree, width = prefix_tree(
                self._grammar,
                {text: self._after(states) for text, states in sorted(texts.items())},
            )
            nodes.append(tree)
        return choice(*nodes), self._apart(texts, width, others)

    def _apart(
        self, texts: dict[str, States], width: int, others: list[_Option]
    ) -> list[Group]:
        """Return what is held of a member whose values have different things follow.

        Up to the end of a value, and after it, those that begin with one character.
        """
        openings, after = Openings(), Openings()
        for values, states in others:
            found = self._openings(values)
            openings.take(found)
            for character in found.terms.keys() - {_WAITING}:
                after.add(character, ("after", states))
        listed_after: dict[str, set[Term]] = {}
        for text, states in texts.items():
            listed_after.setdefault(first_of(text), set()).add(("after", states))
        openings.add(_WAITING, Held(0, width))
        for character in listed_after:
            openings.add(character, listed(width))
        groups = openings.groups
        for character in listed_after.keys() | after.terms.keys():
            beside = after.terms.get(character, [])
            groups += [[term, *beside] for term in listed_after.get(character, ())] or [
                beside
            ]
        return groups

    def _after(self, states: States) -> Rule:
        """Return what follows a member's value: the object's end, or more members."""
        if not any(map(self._rest, states)):
            self._stacks.say(("after", states), [GAPS])
            return self._json.closed
        return self._rule(
            ("after", states), len(states), lambda: self._after_node(states)
        )

    def _after_node(self, states: States) -> Node:
        options: list[Node] = []
        if any(map(self._may_end, states)):
            options.append(self._json.closed)
        held: list[Group] = [[GAPS]]
        if pairs := self._pairs(states):
            options.append(chain(Text(","), self._json.gap, pairs))
            held.append([("pairs", states)])
        self._stacks.say(("after", states), *held)
        return choice(*options)


def _sorted(
    alternatives: Alternatives,
) -> tuple[frozenset[Literal], Alternatives, Alternatives, list[Alternative]]:
    """Return listed values, arrays, objects, and the others in order."""
    literals = frozenset(each for each in alternatives if isinstance(each, Literal))
    arrays = frozenset(each for each in alternatives if isinstance(each, Array))
    objects = frozenset(
        each
        for each in alternatives
        if isinstance(each, Object | Dictionary) and each != ANY_OBJECT
    )
    others = alternatives - literals - arrays - objects
    return literals, arrays, objects, sorted(others, key=order)
