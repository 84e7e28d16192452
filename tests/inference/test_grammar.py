from hypothesis import given
from hypothesis import strategies as st

from curtilage.inference.grammar import (
    EMPTY,
    NOTHING,
    Chars,
    Grammar,
    Node,
    Repeat,
    Rule,
    Text,
    any_except,
    chain,
    choice,
    optional,
)
from support.growth import grows_at_most, seconds_of

A = Text("a")


def test_nothing_of_a_text_ends_its_quotation() -> None:
    grammar = Grammar()
    root = grammar.add(Text('a"\\\n\u00e9\U0001f600]'))
    assert grammar.gbnf(root) == (
        "root ::= r0\n"
        'r0 ::= "a\\U00000022\\U0000005C\\U0000000A\\U000000E9\\U0001F600\\U0000005D"\n'
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
        'root ::= r2\nr2 ::= (r1 r1{1,} [\\U00000061]{0,1})\nr1 ::= ("a" | "")\n'
    )


def test_any_other_character() -> None:
    assert any_except("b", "a").ranges == ((1, 96), (99, 0x10FFFF))
    assert any_except("\x01").ranges == ((2, 0x10FFFF),)


def pruned(*nodes: Node) -> list[Node]:
    grammar = Grammar()
    for node in nodes:
        grammar.add(node)
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


def recurses(*nodes: Node) -> bool:
    grammar = Grammar()
    for node in nodes:
        grammar.add(node)
    return grammar.recurses_at_once()


def test_recursion_without_a_character_between_is_found() -> None:
    assert recurses(Rule("r0"))
    assert recurses(choice(A, chain(Rule("r0"), A)))
    assert recurses(chain(optional(A), Rule("r0")))
    assert recurses(Rule("r1"), Repeat(Rule("r0"), 1))
    assert recurses(chain(Rule("r1"), Rule("r0")), EMPTY)
    assert not recurses(choice(EMPTY, chain(A, Rule("r0"))))
    assert not recurses(chain(Rule("r1"), Rule("r0")), A)
    assert not recurses(Rule("r1"), Rule("r2"), A)


def test_a_long_chain_of_rules_is_read_in_proportion() -> None:
    """A schema of many optional properties makes one."""

    def cost(length: int) -> float:
        grammar = Grammar()
        for number in range(length):
            grammar.add(choice(A, Rule(f"r{number + 1}")))
        grammar.add(A)
        return seconds_of(grammar.recurses_at_once)

    assert grows_at_most(cost, lengths=(500, 2000), factor=8)


def test_rules_that_were_pruned_before_still_count() -> None:
    grammar = Grammar()
    nothing, nullable = grammar.add(NOTHING), grammar.add(optional(A))
    grammar.prune()
    assert not grammar.recurses_at_once()
    grammar.add(choice(nothing, A))
    looping = grammar.reserve()
    grammar.define(looping, chain(nullable, choice(looping, A)))
    assert grammar.recurses_at_once()
    grammar.prune()
    assert grammar.rules["r2"] == choice(A)
    assert grammar.permits_nothing(nothing)


def test_a_common_rule_is_made_once() -> None:
    grammar = Grammar()
    rule = grammar.common("a", lambda: A)
    assert grammar.common("a", lambda: EMPTY) == rule
    assert grammar.rules == {rule.name: A}
