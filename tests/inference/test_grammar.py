import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.inference import grammar as module
from curtilage.inference.errors import SchemaError
from curtilage.inference.grammar import (
    EMPTY,
    NOTHING,
    Chain,
    Chars,
    Choice,
    Grammar,
    Node,
    Repeat,
    Rule,
    Text,
    any_except,
    chain,
    choice,
    optional,
    prefix_tree,
)
from support.growth import grows_at_most, seconds_of

A = Text("a")


def test_nothing_of_a_text_ends_its_quotation() -> None:
    grammar = Grammar()
    root = grammar.add(Text('a"\\\n\u00e9\u20ac\U0001f600]'))
    assert grammar.gbnf(root) == (
        'root ::= r0\nr0 ::= "a\\x22\\x5C\\x0A\\xE9\\u20AC\\U0001F600\\x5D"\n'
    )


@given(st.text())
def test_a_written_text_is_letters_digits_and_numbers(text: str) -> None:
    written = Text(text).gbnf()
    assert written.isascii()
    assert set(written[1:-1]) <= set(
        "\\abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    )


def test_only_rules_that_are_needed_are_written() -> None:
    grammar = Grammar()
    grammar.add(A)
    used = grammar.add(choice(A, EMPTY))
    root = grammar.add(chain(used, Repeat(used, 1, None), optional(Chars(((97, 97),)))))
    assert grammar.gbnf(root) == (
        'root ::= r2\nr2 ::= r1 r1{1,} [a]{0,1}\nr1 ::= "a"|""\n'
    )


def test_what_a_group_contains_stays_together() -> None:
    grammar = Grammar()
    either = choice(A, Text("b"))
    root = grammar.add(choice(chain(A, either), Repeat(chain(A, A), 2, 3), either))
    assert grammar.gbnf(root) == (
        'root ::= r0\nr0 ::= "a" ("a"|"b")|("a" "a"){2,3}|"a"|"b"\n'
    )
    root = grammar.add(chain(choice(either), Repeat(Repeat(either), 1, 1)))
    assert grammar.gbnf(root) == 'root ::= r1\nr1 ::= ("a"|"b") (("a"|"b"){0,}){1,1}\n'


def test_any_other_character() -> None:
    assert any_except("b", "a").ranges == ((1, 96), (99, 0x10FFFF))
    assert any_except("\x01").ranges == ((2, 0x10FFFF),)


def pruned(*nodes: Node) -> list[Node]:
    grammar = Grammar()
    for node in nodes:
        grammar.define(grammar.reserve(), node)
    grammar.prune()
    return list(grammar.rules.values())


def test_what_never_ends_is_left_out() -> None:
    endless = chain(A, Rule("r0"))
    assert pruned(endless)[0] == NOTHING
    assert pruned(choice(endless, A))[0] == choice(endless, A)
    assert pruned(NOTHING, chain(A, Rule("r0")))[1] == NOTHING
    assert pruned(NOTHING, choice(A, Rule("r0")))[1] == choice(A)
    assert pruned(NOTHING, chain(A, Repeat(Rule("r0"))))[1] == chain(A, EMPTY)
    assert pruned(NOTHING, Repeat(Rule("r0"), 1))[1] == NOTHING
    assert pruned(Rule("r1"), Rule("r2"), A) == [Rule("r1"), Rule("r2"), A]


def test_rules_that_were_pruned_before_still_count() -> None:
    grammar = Grammar()
    nothing = grammar.add(NOTHING)
    grammar.prune()
    grammar.add(choice(nothing, A))
    grammar.prune()
    assert grammar.rules["r1"] == choice(A)
    assert grammar.permits_nothing(nothing)


def test_rules_are_pruned_in_proportion_to_their_number() -> None:
    """In any order: a caller's schema decides on it."""

    grammar = Grammar()
    length = 4000
    rules = [grammar.reserve() for _ in range(length)]
    for place, rule in enumerate(rules):
        # Each needs one that is far from it.
        following = rules[(place * 7919 + 1) % length]
        grammar.define(rule, chain(A, following) if place else A)
    before = grammar.steps
    grammar.prune()
    assert grammar.steps - before <= 5 * length


def test_equal_nodes_are_one_rule() -> None:
    grammar = Grammar()
    rule = grammar.add(chain(A, optional(A)))
    assert grammar.add(chain(A, optional(A))) == rule
    assert grammar.add(rule) == rule
    assert grammar.add(chain(A, A)) != rule
    assert len(grammar.rules) == 2


def test_what_a_grammar_takes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    grammar = Grammar()
    monkeypatch.setattr(module, "MAX_RULES", 2)
    grammar.add(A)
    grammar.add(EMPTY)
    with pytest.raises(SchemaError, match="too large"):
        grammar.add(NOTHING)
    with pytest.raises(SchemaError, match="long"):
        grammar.spend(module.MAX_STEPS)


def test_a_conversion_ends_when_its_time_is_over() -> None:
    times = iter([False, False, True])
    grammar = Grammar(expired=lambda: next(times))
    for _ in range(2):
        grammar.spend(10_000)
    with pytest.raises(SchemaError, match="long"):
        grammar.spend(10_000)
    assert next(times, None) is None


def test_written_repetitions_are_bounded() -> None:
    grammar = Grammar()
    for _ in range(10):
        grammar.repeat(A, 3, 2000)
    grammar.repeat(A, 0, None)
    with pytest.raises(SchemaError, match="repeats"):
        grammar.repeat(A, 1, None)


# Trees.

WORDS = st.text("ab\x00\U0001f600", max_size=5)


@given(st.dictionaries(WORDS, st.sampled_from([EMPTY, A, chain(A, A)]), min_size=1))
def test_a_tree_permits_each_text_with_what_follows_it(ends: dict[str, Node]) -> None:
    grammar = Grammar()
    node, width = prefix_tree(grammar, ends)
    grammar.prune()
    written: dict[Node, str] = {EMPTY: "", A: "a", chain(A, A): "aa"}
    assert permitted(grammar, node) == {
        text + written[end] for text, end in ends.items()
    }
    beginnings = {text[:at] for text in ends for at in range(len(text) + 1)}
    ways = [
        len({text[: len(each) + 1] for text in ends if text.startswith(each)})
        for each in beginnings
    ]
    assert width == max(ways)


def permitted(grammar: Grammar, node: Node) -> set[str]:
    match node:
        case Text():
            return {node.text}
        case Rule():
            return permitted(grammar, grammar.rules[node.name])
        case Choice():
            return set[str]().union(
                *(permitted(grammar, each) for each in node.options)
            )
        case _:
            assert isinstance(node, Chain)
            found = {""}
            for part in node.parts:
                found = {a + b for a in found for b in permitted(grammar, part)}
            return found


def test_a_tree_of_long_texts_is_made_in_proportion() -> None:
    def cost(length: int) -> float:
        texts = {"x" * length + end: EMPTY for end in "abc"}
        return seconds_of(lambda: prefix_tree(Grammar(), texts))

    assert grows_at_most(cost, lengths=(5000, 20_000), factor=8)


def test_a_common_rule_is_made_once() -> None:
    grammar = Grammar()
    rule = grammar.common("a", lambda: A)
    assert grammar.common("a", lambda: EMPTY) == rule
    assert grammar.rules == {rule.name: A}
