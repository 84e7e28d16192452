import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate, islice, pairwise
from typing import TypeAlias, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.chat.answer import AnswerEvent, Called, Delta, Finished
from curtilage.client.errors import EnclaveError
from curtilage.client.pseudonyms.restore import (
    MAX_STAND_INS,
    AnswerRestorer,
    Restorer,
)
from curtilage.client.remote.reasons import EnclaveFailure
from support.examples import examples
from support.samples import Sample

VALUES = {f"⟦PERSON_{number}⟧": f"Person {number}" for number in range(1, 21)} | {
    f"⟦EMAIL_{number}⟧": f"p{number}@x.example" for number in range(1, 5)
}
DATES = {"19 May 1980": "12 May 1980", "9 May 1980": "2 May 1980"}
FINISHED = Finished(finish_reason="stop", prompt_tokens=4, completion_tokens=2)
PARTS = [*VALUES, "hello ", "⟦", "⟦P", " a", ". ", "⟧", "⟦PERSON_", "1", "⟧⟧", "⟦X_1⟧"]
DATE_PARTS = [*DATES, "1", "9", " May", " 19", "80", ", ", "⟦PERSON_1⟧", "x", " "]


def replaced(text: str, values: dict[str, str]) -> str:
    """What a restorer must make of a text, without any streaming."""
    either = "|".join(map(re.escape, sorted(values, key=len, reverse=True)))
    form = rf"(?<![\w])(?:{either})(?![\w])" if "19 May 1980" in values else either
    bare = rf"(?<!\w)(?:{either.replace('⟦', '').replace('⟧', '')})(?!\w)"
    return re.sub(
        f"{form}|{bare}",
        lambda match: values.get(match[0]) or values[f"⟦{match[0]}⟧"],
        text,
    )


def restored(text: str, sizes: Sequence[int], values: dict[str, str]) -> str:
    restorer = Restorer(values)
    shown, at = "", 0
    for size in sizes:
        shown += restorer.push(text[at : at + size])
        at += size
        if at >= len(text):
            break
    return shown + restorer.push(text[at:]) + restorer.close()


def numbers(seed: int) -> Iterator[int]:
    """Yield a linear congruential generator's numbers: cheap, the same each run."""
    while True:
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        yield seed >> 33


def test_random_chunkings_restore_as_the_whole_does(sample: Sample) -> None:
    drawn = numbers(1)
    for _ in range(20_000 if sample.every else 2_000):
        count = 1 + next(drawn) % 6
        text = "".join(PARTS[next(drawn) % len(PARTS)] for _ in range(count)) + "."
        sizes = [1 + each % 7 for each in islice(drawn, len(text))]
        assert restored(text, sizes, VALUES) == replaced(text, VALUES)


@given(
    st.lists(st.sampled_from(DATE_PARTS), max_size=12).map("".join),
    st.lists(st.integers(0, 4), max_size=60),
)
def test_dates_restore_as_the_whole_does(text: str, sizes: list[int]) -> None:
    values = DATES | {"⟦PERSON_1⟧": "Ann"}
    restorer = Restorer(values)
    whole = restorer.push(text + ".") + restorer.close()
    assert restored(text + ".", sizes, values) == whole


@given(st.text(), st.lists(st.integers(1, 3), max_size=40))
def test_ordinary_text_passes_unchanged_and_at_once(
    text: str, sizes: list[int]
) -> None:
    # In small letters: a capital may begin a stand-in without its brackets.
    text = text.replace("⟦", "").lower()
    restorer, at = Restorer(VALUES), 0
    for size in sizes:
        assert restorer.push(text[at : at + size]) == text[at : at + size]
        at += size


def test_only_what_could_become_a_token_is_held() -> None:
    restorer = Restorer(VALUES)
    assert restorer.push("Dear ⟦PER") == "Dear "
    assert restorer.push("SONG") == "⟦PERSONG"
    assert restorer.push(" ⟦PERSON_1") == " "
    assert restorer.push("2") == ""
    assert restorer.push("⟧") == ""
    assert restorer.push(", who") == "Person 12, who"


@pytest.mark.parametrize("end", ["⟦", "⟦PERSON", "⟦PERSON_1"])
def test_an_answer_that_ends_inside_a_token_is_incomplete(end: str) -> None:
    restorer = Restorer(VALUES)
    assert restorer.push(f"Dear {end}") == "Dear "
    with pytest.raises(EnclaveError) as cut:
        restorer.close()
    assert cut.value.reason is EnclaveFailure.ANSWER_INCOMPLETE


def test_an_answer_may_end_like_a_date_begins() -> None:
    restorer = Restorer(DATES)
    assert restorer.push("Room 19") == "Room "
    assert restorer.close() == "19"


def test_a_date_is_restored_only_as_a_word_of_its_own() -> None:
    assert restored("19 May 1980", [], DATES) == "12 May 1980"
    assert restored("on 9 May 1980.", [], DATES) == "on 2 May 1980."
    for other in ("119 May 1980", "19 May 19805", "29 May 1980"):
        assert restored(other, [3], DATES) == other


def test_neighbours_are_restored_one_by_one() -> None:
    text = "⟦PERSON_1⟧⟦PERSON_2⟧ ⟦PERSON_12⟧"
    assert restored(text, [1] * 40, VALUES) == "Person 1Person 2 Person 12"


def test_a_rewritten_answer_is_restored_without_offsets() -> None:
    """Others cut it at the places of the question: "Mike. Wh" (litellm 14516)."""
    text = "⟦PERSON_2⟧, who is older than ⟦PERSON_1⟧. Who? ⟦PERSON_2⟧."
    shown = "Person 2, who is older than Person 1. Who? Person 2."
    assert restored(text, [7, 2, 30], VALUES) == shown


def test_a_value_that_looks_like_a_token_is_not_restored_again() -> None:
    values = {"⟦PERSON_1⟧": "⟦PERSON_2⟧", "⟦PERSON_2⟧": "Ann"}
    assert restored("⟦PERSON_1⟧", [], values) == "⟦PERSON_2⟧"


NAMES = {
    "⟦PERSON_1⟧": "Anna Berg",
    "⟦PERSON_12⟧": "Ben",
    "⟦PERSONNE_2⟧": "Luc",
    "⟦ID_3⟧": "7-B",
}


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("PERSON_1 must send the roster.", "Anna Berg must send the roster."),
        ("Dear PERSON_1, dear PERSON_12!", "Dear Anna Berg, dear Ben!"),
        ("It is PERSON_1", "It is Anna Berg"),
        ("PERSON_1's roster; PERSON_1\u2019s", "Anna Berg's roster; Anna Berg\u2019s"),
        ("PERSON_1s Dienstplan", "Anna Bergs Dienstplan"),
        ("Person_1 and Personne_2", "Anna Berg and Luc"),
        ("**PERSON_1** *PERSON_1* `PERSON_12`", "**Anna Berg** *Anna Berg* `Ben`"),
        ("_PERSON_1_, __PERSON_1__", "_Anna Berg_, __Anna Berg__"),
        ("___PERSON_12___.", "___Ben___."),
        ("PERSON\\_1 and PERSON\\_12.", "Anna Berg and Ben."),
        ('[PERSON_1], (PERSON_1), "PERSON_1"', '[Anna Berg], (Anna Berg), "Anna Berg"'),
        ("PERSON_1/PERSON_12: PERSON_1", "Anna Berg/Ben: Anna Berg"),
        ("| PERSON_1 | ID_3 |", "| Anna Berg | 7-B |"),
        ("Ask PERSON_1... or PERSON_12.", "Ask Anna Berg... or Ben."),
        ("⟦PERSON_1 and PERSON_1⟧", "⟦Anna Berg and Anna Berg⟧"),
        ("⟦PERSON_1⟧ is PERSON_1", "Anna Berg is Anna Berg"),
    ],
)
def test_a_token_without_its_brackets_is_restored(said: str, shown: str) -> None:
    for size in (1, 2, 3, 7, len(said)):
        assert restored(said, [size] * len(said), NAMES) == shown
    restorer = Restorer(NAMES)
    restorer.push(said)
    restorer.close()
    assert restorer.unrestored == 0


@pytest.mark.parametrize(
    ("said", "count"),
    [
        ("MY_PERSON_1 = 4", 1),
        ("PERSON_1_AGE and PERSON_1_2", 2),
        ("_PERSON_1 and PERSON_1_", 2),
        ("__PERSON_1_ x", 1),
        ("$PERSON_1 %PERSON_1% @PERSON_1 #PERSON_1", 4),
        ("row.PERSON_1 PERSON_1.age PERSON_1->age", 3),
        ("PERSON_1(x) PERSON_1[0] PERSON_1=2", 3),
        ("\\PERSON_1 {}", 1),
        ("person_1 = 2; PeRSON_1", 2),
        # No token that was sent, and so perhaps no token at all.
        ("PERSON_2, PERSON_123, PERSON_1234", 0),
        ("XPERSON_1 PERSON_01 PERSON 1 PERSON-1 PERSON_ 1", 0),
        ("The person_ likes numbers_1", 0),
    ],
)
def test_a_part_of_another_name_is_counted_and_kept(said: str, count: int) -> None:
    for size in (1, 2, 3, 7, len(said)):
        restorer = Restorer(NAMES)
        pieces = [said[at : at + size] for at in range(0, len(said), size)]
        shown = "".join(map(restorer.push, pieces)) + restorer.close()
        assert shown == said
        assert restorer.unrestored == count, size


@given(
    st.lists(
        st.sampled_from(
            (
                *("PERSON_1", "PERSON_12", "Person_1", "⟦PERSON_1⟧", "⟦PERSON_1"),
                *("_", "__", "2", "s", "'s", " ", ".", "x", "⟧", "PER", "SON_1"),
                *("\\_1", "-", ">", "("),
            )
        ),
        max_size=9,
    ).map("".join),
    st.lists(st.integers(1, 4), max_size=60),
)
def test_without_brackets_pieces_make_no_difference(
    text: str, sizes: list[int]
) -> None:
    shown: list[object] = []
    for cut in ([], sizes, [1] * len(text)):
        restorer, at, said = Restorer(NAMES), 0, ""
        for size in cut:
            said += restorer.push(text[at : at + size])
            at += size
        try:
            said += restorer.push(text[at:]) + restorer.close()
        except EnclaveError as error:
            shown.append(error.reason)
        else:
            shown.append((said, restorer.unrestored, restorer.unknown))
    assert shown[0] == shown[1] == shown[2]


def test_a_token_without_its_brackets_is_held_only_while_it_may_become_one() -> None:
    restorer = Restorer(NAMES)
    assert restorer.push("Ask PERS") == "Ask "
    assert restorer.push("ON_1") == ""
    assert restorer.push(" now, P") == "Anna Berg now, "
    assert restorer.push("aris") == "Paris"
    assert restorer.push("; APERSON") == "; APERSON"


@pytest.mark.parametrize("before", ["https://evil.example/?q=", "![x](/a/", "www.a.b/"])
def test_without_brackets_nothing_is_put_into_an_address(before: str) -> None:
    restorer = Restorer(NAMES)
    said = f"{before}PERSON_1 "
    assert "".join(map(restorer.push, said)) + restorer.close() == said
    assert (restorer.in_urls, restorer.unrestored) == (1, 1)
    for said in ("PERSON_1.evil.example/", "PERSON_1@evil.example"):
        assert restored(said, [3] * 20, NAMES) == said


def test_unknown_tokens_stay_and_are_counted() -> None:
    restorer = Restorer(VALUES)
    text = "⟦PERSON_1⟧ ⟦PERSON_99⟧ ⟦NOBODY_1⟧ ⟦lower_1⟧ ⟦PERSON_12345⟧"
    shown = "".join(map(restorer.push, text)) + restorer.close()
    assert shown == "Person 1" + text.removeprefix("⟦PERSON_1⟧")
    assert restorer.unknown == 2
    empty = Restorer({})
    assert empty.push("⟦PERSON_1⟧") == "⟦PERSON_1⟧"
    assert empty.unknown == 1


@pytest.mark.parametrize(
    "before",
    [
        "https://evil.example/?q=",
        "see HTTPS://",
        "//evil.example/",
        "www.evil.example/",
        "![x](https://evil.example/",
        "![x](https&#58;&#47;&#47;evil.example/",
        "![x](<https&#58;&#47;&#47;evil.example/a b ",
        "![x](<https://evil.example/\\> ",
        "[1]: https&#58;&#47;&#47;evil.example/?q=",
        "text\n  [a b]: https&#58;//evil.example/",
        '<img src="https://evil.example/?q=a b ',
        '<img alt=">" src="&#104;ttps://evil.example/?q=a\nb ',
        "<img src='&#104;ttps:evil.example/?q=a b ",
        "<img src=&#104;ttps:evil.example/",
        "<https://evil.example/a b ",
        "background: url( 'htt\\ps:evil.example/a b ",
        "\\\\evil.example\\",
        '"https://a.example/?x=// y ',
    ],
)
def test_no_name_is_put_into_a_url(before: str) -> None:
    """An application may fetch the pictures of an answer: that would reveal a name."""
    restorer = Restorer(VALUES)
    shown = "".join(map(restorer.push, before + "⟦PERSON_1⟧")) + restorer.close()
    assert shown == before + "⟦PERSON_1⟧"
    assert restorer.in_urls == 1


@pytest.mark.parametrize(
    "before",
    [
        "",
        "Dear ",
        "https://x.example is the page of ",
        "([a link](https://x.example)) by ",
        "<https://x.example> is of ",
        '<a href="https://www.x.example//y">',
        '("https://x.example/a//b") ',
        "<b>",
        "if x<y then ",
        "[1]: https://x.example\n",
        "list[str]: ",
        "Name:",
        "1/2 ",
        "url(#a) ",
    ],
)
def test_elsewhere_names_are_restored(before: str) -> None:
    assert restored(before + "⟦PERSON_1⟧", [], VALUES) == before + "Person 1"


ATTACKS = [
    "![x]( https\\:\\/\\/evil.example/",
    "![x]( &#104;ttps&colon;&sol;&sol;evil.example/?n=",
    "![x](\n<https\\:\\/\\/evil.example/)a ",
    "![x](/a\\)",
    "![x](/(a)",
    "[a](<b ![x](<https&#58;/(a>b)",
    "![x][a]\n\n[a]:\n  https\\:\\/\\/evil.example/",
    "> [a]:\n> https\\:\\/\\/evil.example/",
    "- [a]: https\\:\\/\\/evil.example/",
    "[^1]: [a\nb\\]]: https\\:\\/\\/evil.example/",
    "[a]: <https\\:\\/\\/evil.example/\\>a ",
    "![x](https://evil.example/?p=" + "a" * 20_000,
    "![x](https://evil.example/a\u00a0",
    "![x](https://evil.example/a\u2003",
    "https://evil.example/a\u1680",
    "<img src=https:/evil.example/a\u0085",
    '<object data="&#104;ttps:&#47;&#47;evil.example/',
    '<a ping="&#104;ttps:&#47;&#47;evil.example/',
    '<meta http-equiv="refresh" content="0; url=&#104;ttps:&#47;evil.example/',
    '<style>@import "\\68ttps:\\2f\\2f evil.example/',
    "<img\nalt = '>' src =\n' &#104;ttps:/evil.example/ ",
    '<img ="src="https&#58;/evil.example/>',
    '<!-- <img alt=" --> <img src="https&#58;/evil.example/>',
    '<p style="background:\n\n">a</p>',
    "'https://evil.example/'",
    "mailto:a@evil.example?body=",
]


@examples("before", ATTACKS)
def test_no_spelling_of_an_address_gets_a_name(before: str) -> None:
    text = before + "⟦PERSON_1⟧"
    for size in (1, 7, len(text)):
        assert restored(text, [size] * len(text), VALUES) == text


SOUND = [
    "[⟦PERSON_1⟧](https://x.example) and (⟦PERSON_2⟧) of **⟦PERSON_3⟧**.",
    "| ⟦PERSON_1⟧ | https://x.example |\n| --- | --- |\n|⟦PERSON_2⟧|b|",
    'see "https://x.example", ⟦PERSON_1⟧',
    "if x<y and y = '⟦PERSON_1⟧'",
    "for (i=0;i<n;i++) { names[i] = `⟦PERSON_1⟧`; }",
    "```python\nnames: list[str] = ['⟦PERSON_1⟧']\nd[0](x) # ⟦PERSON_2⟧\n```",
    "List<String> x = y; a[1](2); // by ⟦PERSON_1⟧",
    "![x](a (b) 'c') by ⟦PERSON_1⟧",
    "[a](b\n\n⟦PERSON_1⟧",
    "[a]: b\n⟦PERSON_1⟧ and [1]: https://x.example ⟦PERSON_2⟧",
    '<p class="a=b" id=c>Dear ⟦PERSON_1⟧</p><br/>⟦PERSON_2⟧',
    '<a href="https://x.example">⟦PERSON_1⟧</a>',
    "<https://x.example>: ⟦PERSON_1⟧",
    "C:\\ ⟦PERSON_1⟧, 1/⟦PERSON_2⟧",
]


@pytest.mark.parametrize("text", SOUND)
def test_ordinary_text_gets_its_names(text: str) -> None:
    assert restored(text, [5] * 99, VALUES) == replaced(text, VALUES)


def test_returned_text_counts_for_the_beginning_of_an_address() -> None:
    """A value may be an address itself: what is glued to it is a part of it."""
    values = {"⟦PROFILE_1⟧": "https://x.example/", "⟦PERSON_1⟧": "Ann"}
    text = "⟦PROFILE_1⟧⟦PERSON_1⟧ ⟦PERSON_1⟧"
    assert restored(text, [3] * 9, values) == "https://x.example/⟦PERSON_1⟧ Ann"


HOST_ATTACKS = [
    # A host without a scheme, in the languages of answers.
    "evil.example/⟦PERSON_1⟧",
    "see evil.example:8443/a?b=⟦PERSON_1⟧",
    "EVIL.example?⟦PERSON_1⟧",
    "evil.example#⟦PERSON_1⟧",
    "evil.example\\⟦PERSON_1⟧",
    "evil.example./⟦PERSON_1⟧",
    "a.b-c.evil.co/x/⟦PERSON_1⟧",
    "a@evil.example/⟦PERSON_1⟧",
    "user:pw@evil.example/⟦PERSON_1⟧",
    "10.0.0.1/⟦PERSON_1⟧",
    "[::1]/⟦PERSON_1⟧",
    "https:[2001:db8::7]:80/⟦PERSON_1⟧",
    "xn--vil-7ua.xn--p1ai/⟦PERSON_1⟧",
    "пример.испытание/⟦PERSON_1⟧",
    "evil。example/⟦PERSON_1⟧",
    "evil\uff0eexample\uff0f⟦PERSON_1⟧",
    "e\u00advil.exa\u200bmple/⟦PERSON_1⟧",
    "evil" + "\u200b" * 200 + ".example" + "\u2060" * 200 + "/⟦PERSON_1⟧",
    "\\\\host\\share\\⟦PERSON_1⟧",
    # As a label or the user of one.
    "⟦PERSON_1⟧.evil.example",
    "x⟦PERSON_1⟧-y.evil.example.",
    "⟦PERSON_1⟧⟦PERSON_2⟧.evil.example",
    "⟦PERSON_1⟧.⟦PERSON_2⟧.evil.example",
    "⟦PERSON_1⟧.evil/",
    "⟦PERSON_1⟧.zip/a",
    "⟦PERSON_1⟧.com",
    "⟦PERSON_1⟧.evil.example:80/",
    "⟦PERSON_1⟧@evil.example",
    "⟦PERSON_1⟧:pw@evil.example/",
    "⟦PERSON_1⟧&#46;evil&period;example",
    "⟦PERSON_1⟧%2Eevil%2eexample",
    "⟦PERSON_1⟧\u200b.evil\u00ad.example",
    "⟦PERSON_1⟧。evil.example",
    "⟦PERSON_1⟧" + "-" * 400 + ".evil.example",
    # Marks as references.
    "https&#58;&#47;&#47;evil.example/⟦PERSON_1⟧",
    "https&#x3a;//evil.example/⟦PERSON_1⟧",
    "https&colon;&sol;&sol;evil&period;example&sol;⟦PERSON_1⟧",
    "evil&#46;example/⟦PERSON_1⟧",
    "evil&#46example&#47⟦PERSON_1⟧",
    "ht&#116;ps&#58;evil⟦PERSON_1⟧",
    "evil.example%2F⟦PERSON_1⟧",
    "https%3A%2F%2Fevil.example%2F⟦PERSON_1⟧",
    "evil&shy;.example&ZeroWidthSpace;/⟦PERSON_1⟧",
    # Any scheme.
    "<irc:⟦PERSON_1⟧>",
    "<made-up+1.x:a b ⟦PERSON_1⟧>",
    "irc:evil/⟦PERSON_1⟧",
    "tel:+1?x=⟦PERSON_1⟧",
    "data:text/html,⟦PERSON_1⟧",
    "sip:a@⟦PERSON_1⟧",
    # Other languages of documents.
    "[[evil.example/⟦PERSON_1⟧]]",
    "[img]evil.example/⟦PERSON_1⟧[/img]",
    "[img]evil.example/a b ⟦PERSON_1⟧[/img]",
    "[url=evil.example/⟦PERSON_1⟧]a[/url]",
    "\\includegraphics{evil.example/⟦PERSON_1⟧}",
    "\\includegraphics[width=2cm]{⟦PERSON_1⟧}",
    "\\graphicspath{{//evil.example/}}\\includegraphics {a b ⟦PERSON_1⟧}",
    "\\href{a {b} ⟦PERSON_1⟧}{c}",
    "\\input{|curl -d ⟦PERSON_1⟧}",
    "\\url{a ⟦PERSON_1⟧}",
    "image::evil.example/⟦PERSON_1⟧[]",
    ".. image:: evil.example/⟦PERSON_1⟧.png",
    "link:evil.example/⟦PERSON_1⟧[a]",
    "{{evil.example/a?⟦PERSON_1⟧}}",
    '"a":evil.example/⟦PERSON_1⟧',
    "!evil.example/⟦PERSON_1⟧!",
    "<!-- evil.example/⟦PERSON_1⟧ -->",
    # Code that is drawn may build its address.
    '```vega-lite\n{"data": {"values": [{"n": "⟦PERSON_1⟧"}]}}\n```',
    "~~~~ {.mermaid}\n```\n~~~\nA[⟦PERSON_1⟧]\n~~~~",
    "> ```plantuml\n> !$a = ⟦PERSON_1⟧\n> ```",
    "::: mermaid\nA[⟦PERSON_1⟧]\n:::",
    "@startuml\n!$a = ⟦PERSON_1⟧\n@enduml",
    "```mermaid\na ``` ⟦PERSON_1⟧\n",
    '<script>var a = "⟦PERSON_1⟧"</script> ⟦PERSON_2⟧',
    # What a terminal obeys.
    "\x1b]52;c;⟦PERSON_1⟧\x07",
    "\x1b]0;a b\n⟦PERSON_1⟧\x1b\\ ⟦PERSON_2⟧",
    "\x9d52;c;⟦PERSON_1⟧",
    "⟦PERSON_1⟧\x1b[2J",
    "⟦PERSON_1⟧-x\x07",
    "\x00⟦PERSON_1⟧",
    "\u202e⟦PERSON_1⟧",
    "\u2066a ⟦PERSON_1⟧",
]


@examples("text", HOST_ATTACKS)
def test_no_host_diagram_or_command_gets_a_name(text: str) -> None:
    for size in (1, 2, 7, len(text)):
        assert restored(text, [size] * len(text), VALUES) == text


ORDINARY = [
    "Dr. ⟦PERSON_1⟧, e.g. ⟦PERSON_2⟧, i.e. ⟦PERSON_3⟧.",
    "and/or ⟦PERSON_1⟧ and ⟦PERSON_2⟧/⟦PERSON_3⟧, his/her/⟦PERSON_4⟧",
    "Node.js and ⟦PERSON_1⟧; use config.yaml, ⟦PERSON_2⟧!",
    "at 5 p.m.⟦PERSON_1⟧ said; by 3.5/10 ⟦PERSON_2⟧",
    "It ended.⟦PERSON_1⟧ left.Then ⟦PERSON_2⟧.Then ⟦PERSON_3⟧.",
    "Name:⟦PERSON_1⟧ Tel.:⟦PERSON_2⟧ Re:⟦PERSON_3⟧",
    "⟦PERSON_1⟧'s, ⟦PERSON_2⟧\u2019s, ⟦PERSON_3⟧s, Mr ⟦PERSON_4⟧-⟦PERSON_5⟧",
    "⟦PERSON_1⟧... ⟦PERSON_2⟧…? ⟦PERSON_3⟧!",
    "«⟦PERSON_1⟧» “⟦PERSON_2⟧” (⟦PERSON_3⟧) [⟦PERSON_4⟧] {⟦PERSON_5⟧}",
    "**⟦PERSON_1⟧** *⟦PERSON_2⟧* _⟦PERSON_3⟧_ `⟦PERSON_4⟧` ~~⟦PERSON_5⟧~~",
    "- ⟦PERSON_1⟧: 50%, ⟦PERSON_2⟧: 3 & 4, ⟦PERSON_3⟧ & ⟦PERSON_4⟧",
    "| Name | Age |\n|:---|---:|\n| ⟦PERSON_1⟧ | 5 |\n|⟦PERSON_2⟧|6|",
    "Save it as ⟦PERSON_1⟧.docx, ⟦PERSON_2⟧.pdf or Letter_⟦PERSON_3⟧.txt.",
    "C:\\Users\\⟦PERSON_1⟧\\a.txt and /home/⟦PERSON_2⟧/a.txt",
    "Version 1.2.3 by ⟦PERSON_1⟧, 12.05.1980 ⟦PERSON_2⟧, $3.50/⟦PERSON_3⟧",
    "Write to clinic.example or ask ⟦PERSON_1⟧ at clinic.example.",
    "See clinic.example/portal, ⟦PERSON_1⟧. Ward 3.1/a: ⟦PERSON_2⟧",
    "Mail x@clinic.example: ⟦PERSON_1⟧; cc ⟦EMAIL_1⟧, @ ⟦PERSON_2⟧",
    "O&#39;Brien &amp; ⟦PERSON_1⟧ &lt;⟦PERSON_2⟧&gt; &quot;⟦PERSON_3⟧&quot;",
    '{"name": "⟦PERSON_1⟧", "email":"⟦EMAIL_1⟧","next":"⟦PERSON_2⟧"}',
    "name: ⟦PERSON_1⟧\nward: 3\nwho:\n  - ⟦PERSON_2⟧\n",
    "name,age\n⟦PERSON_1⟧,5\n⟦PERSON_2⟧;6",
    "```python\n# ⟦PERSON_1⟧\nx = y.name('⟦PERSON_2⟧')[1:2]\n```\n⟦PERSON_3⟧",
    "```\n⟦PERSON_1⟧\n```\n~~~text\n⟦PERSON_2⟧\n~~~",
    "```mermaid\nA-->B\n```\n⟦PERSON_1⟧ and a dot, ⟦PERSON_2⟧",
    "\\textbf{⟦PERSON_1⟧} \\section{Letter to ⟦PERSON_2⟧} \\href{a}{b} ⟦PERSON_3⟧",
    "From: ⟦PERSON_1⟧\r\nTo: ⟦PERSON_2⟧\r\n\r\nDear ⟦PERSON_3⟧,",
    "⟦PERSON_1⟧ さん。⟦PERSON_2⟧。次に ⟦PERSON_3⟧",
    "Q: ⟦PERSON_1⟧? A: no, U.S. ⟦PERSON_2⟧, Ph.D., St. ⟦PERSON_3⟧",
    "10:30 ⟦PERSON_1⟧; 08/09/2024 ⟦PERSON_2⟧; 1.2.2024⟦PERSON_3⟧",
    "Mail x@chart.example, or me @ work, for the map\n⟦PERSON_1⟧",
    "Use ```dot``` or ``map`` here\n⟦PERSON_1⟧",
    "::: info\n⟦PERSON_1⟧\n:::\nx ~~~ y :: z\n⟦PERSON_2⟧",
    "<p>⟦PERSON_1⟧</p><b>⟦PERSON_2⟧</b> <!-- ⟦PERSON_3⟧ -->",
]


@examples("text", ORDINARY)
def test_ordinary_answers_get_all_their_names(text: str) -> None:
    for size in (1, 2, 7, len(text)):
        assert restored(text, [size] * len(text), VALUES) == replaced(text, VALUES)


def test_a_name_is_returned_as_soon_as_its_word_has_ended() -> None:
    restorer = Restorer(VALUES)
    assert restorer.push("Dear ⟦PERSON_1⟧") == "Dear "
    assert restorer.push(",") == "Person 1,"
    assert restorer.push(" ⟦PERSON_2⟧.evil") == " "
    assert restorer.push(".example ") == "⟦PERSON_2⟧.evil.example "
    assert restorer.in_urls == 1


MARKS = [*PARTS, "https://x/", " ", '"', "](", ")", "<img ", "a=", ">", "[a]:", "\n"]


@given(
    st.lists(
        st.sampled_from(
            [
                *("'", "\\", "url(", "<", "<style>", ".evil", ".x/", "@", "&#4", "6;"),
                *("%2", "F", "```", "mermaid", "\\href{", "}", "\x1b", "\u200b", "."),
                *(*MARKS, "irc:", "\u202e", "。", "10.0.0.1"),
            ]
        ),
        max_size=40,
    ),
    st.lists(st.integers(1, 9), max_size=60),
)
def test_addresses_are_seen_in_any_chunking(parts: list[str], sizes: list[int]) -> None:
    text = "".join(parts) + "."
    assert restored(text, sizes, VALUES) == restored(text, [], VALUES)


def test_an_address_of_any_length_remains_open() -> None:
    restorer = Restorer(VALUES)
    assert len(restorer.push("![x](" + "a" * 10_000)) == 10_005
    for _ in range(2_000):
        assert restorer.push("a ⟦PERSON_1⟧ ") == "a ⟦PERSON_1⟧ "
    assert restorer.push("\n\n⟦PERSON_1⟧ ") == "\n\nPerson 1 "


def test_an_answer_of_nothing_but_stand_ins_is_broken() -> None:
    """Each is looked at, and an answer may be large: that would take minutes."""
    restorer = Restorer(VALUES)
    shown = restorer.push("⟦PERSON_1⟧ " * MAX_STAND_INS)
    assert shown == "Person 1 " * MAX_STAND_INS
    with pytest.raises(EnclaveError) as broken:
        restorer.push("⟦PERSON_1⟧ ")
    assert broken.value.reason is EnclaveFailure.ANSWER_BROKEN


def test_a_restorer_shows_no_value() -> None:
    assert repr(Restorer(VALUES)) == f"<Restorer: {len(VALUES)}>"


def events(*given: AnswerEvent) -> list[AnswerEvent]:
    restorer = AnswerRestorer(VALUES)
    return [event for each in given for event in restorer.push(each)]


def test_an_answer_is_restored_event_by_event() -> None:
    shown = events(
        Delta(text="Dear ⟦PER"), Delta(text="SON_1⟧"), Delta(text=" ⟦X_1⟧."), FINISHED
    )
    assert [event.text for event in shown if isinstance(event, Delta)] == [
        "Dear ",
        "Person 1 ⟦X_1⟧.",
    ]
    end = shown[-1]
    assert isinstance(end, Finished)
    assert (end.unknown_tokens, end.completion_tokens) == (1, 2)
    assert end.unrestored == 1


def test_log_probabilities_do_not_survive_restoring() -> None:
    (shown, _) = events(Delta(text="⟦PERSON_1⟧", logprobs=(("⟦", -0.5),)), FINISHED)
    assert isinstance(shown, Delta)
    assert shown.logprobs == ()


def test_held_text_is_returned_before_the_end() -> None:
    restorer = AnswerRestorer(DATES)
    shown = [*restorer.push(Delta(text="19 May 1980")), *restorer.push(FINISHED)]
    assert [type(event) for event in shown] == [Delta, Finished]
    with pytest.raises(EnclaveError):
        events(Delta(text="⟦PERSON"), FINISHED)


@pytest.mark.parametrize(
    "text",
    [
        "{}\u0301.evil.example/x",
        "{}\U0001f600.evil.example/",
        "{}\u2122.evil.example",
        "i\u2764.example/{}",
        "\U0001f600.example/{}",
    ],
)
def test_signs_and_accents_may_be_letters_of_a_host(text: str) -> None:
    restorer = Restorer({"⟦PERSON_1⟧": "Okafor"})
    shown = restorer.push(text.format("⟦PERSON_1⟧")) + restorer.close()
    assert "Okafor" not in shown


def test_prose_without_spaces_is_not_a_host() -> None:
    restorer = Restorer({"⟦PERSON_1⟧": "Okafor"})
    text = "⟦PERSON_1⟧" + "\uff0c\u4ed6\u4eca\u5929\u6765\u4e86\u3002" * 60
    assert (restorer.push(text) + restorer.close()).startswith("Okafor\uff0c")


OWN = {"⟦PERSON_1⟧": 'Ann "Q" Smith', "⟦PLACE_1⟧": "Ulm"}


def shown_of(*events: AnswerEvent) -> list[AnswerEvent]:
    restorer = AnswerRestorer(OWN)
    return [each for event in events for each in restorer.push(event)]


def called(arguments: object, *, choice: int = 0) -> Delta:
    call = Called(index=0, name="find", arguments=json.dumps(arguments))
    return Delta(text="", choice=choice, calls=(call,))


END = Finished(finish_reason="tool_calls", prompt_tokens=1, completion_tokens=2)


def test_arguments_are_restored_and_stay_json() -> None:
    given = {"who": ["⟦PERSON_1⟧", "PERSON_1's"], "⟦PLACE_1⟧": 7, "is": None}
    call, end = shown_of(called(given), END)
    assert isinstance(call, Delta)
    assert json.loads(call.calls[0].arguments) == {
        "who": ['Ann "Q" Smith', 'Ann "Q" Smith\'s'],
        "Ulm": 7,
        "is": None,
    }
    assert end == END


def test_a_stand_in_in_an_address_in_arguments_is_kept_and_counted() -> None:
    given = {"url": "https://example.org/?q=⟦PERSON_1⟧", "no": "⟦PERSON_7⟧"}
    call, end = shown_of(called(given), END)
    assert isinstance(call, Delta)
    assert json.loads(call.calls[0].arguments) == given
    assert end == replace(END, unknown_tokens=1, unrestored=2)


def test_text_before_a_call_is_complete_at_the_call() -> None:
    *texts, call, _ = shown_of(Delta(text="Hello PERSON_1"), called({}), END)
    said = [each.text for each in texts if isinstance(each, Delta)]
    assert "".join(said) == 'Hello Ann "Q" Smith'
    assert isinstance(call, Delta)
    assert call.calls


def test_each_of_several_answers_is_restored_by_itself() -> None:
    pieces = ("a ⟦PER", "b ⟦PLACE", "SON_1⟧", "_1⟧")
    deltas = [Delta(text=each, choice=at % 2) for at, each in enumerate(pieces)]
    end = replace(END, finish_reason="stop", others=("length",))
    *events, last = shown_of(*deltas, end)
    said = {0: "", 1: ""}
    for event in events:
        assert isinstance(event, Delta)
        said[event.choice] += event.text
    assert said == {0: 'a Ann "Q" Smith', 1: "b Ulm"}
    assert last == end


@pytest.mark.parametrize(
    "value", ['"\\ud800"', "NaN", "1e999", "9" * 5000, "[" * 3000 + "]" * 3000]
)
def test_arguments_that_do_not_stay_json_are_a_broken_answer(value: str) -> None:
    call = Called(index=0, name="find", arguments=f'{{"who": {value}}}')
    with pytest.raises(EnclaveError) as error:
        shown_of(Delta(text="", calls=(call,)), END)
    assert error.value.reason is EnclaveFailure.ANSWER_BROKEN
    assert error.value.__cause__ is None


def test_a_value_stays_within_its_string_of_an_answer_that_is_json() -> None:
    restorer = AnswerRestorer({"⟦PERSON_1⟧": 'Ann "Q"\n\\Smith'}, formatted=True)
    pieces = ('{"who": "⟦PER', 'SON_1⟧", "is": "PERSON_1"}')
    events = [*map(restorer.push, (Delta(text=each) for each in pieces))]
    shown = [*(each for some in events for each in some), *restorer.push(END)]
    text = "".join(each.text for each in shown if isinstance(each, Delta))
    assert json.loads(text) == {"who": 'Ann "Q"\n\\Smith', "is": 'Ann "Q"\n\\Smith'}


Json: TypeAlias = "dict[str, Json] | list[Json] | str | float | None"
SAYS = st.sampled_from(["⟦PERSON_1⟧", "a", 'b"', "\\", "\n", "⟦PLACE_1⟧", " ", "{"])
STRINGS = st.lists(SAYS, max_size=4).map(" ".join)
SPOKEN = {**OWN, "⟦PERSON_1⟧": 'Ann\n"Q"\\ Smith'}


def in_strings(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    """Objects and lists, and their JSON as a string."""
    held = st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from("abc"), inner, max_size=3
    )
    return held | st.builds(
        partial(json.dumps, ensure_ascii=False), held, indent=st.none() | st.just(1)
    )


NESTED = st.recursive(
    STRINGS | st.none() | st.floats(allow_nan=False, allow_infinity=False),
    in_strings,
    max_leaves=8,
)


def read(value: Json) -> Json:
    """Return a value with each string of it that is JSON read as well."""
    if isinstance(value, dict):
        return {name: read(each) for name, each in value.items()}
    if isinstance(value, list):
        return [*map(read, value)]
    if isinstance(value, str) and value[:1] in {"{", "["}:
        with suppress(ValueError):
            return read(cast("Json", json.loads(value)))
    return value


def with_values(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: with_values(each) for name, each in value.items()}
    if isinstance(value, list):
        return [*map(with_values, value)]
    return replaced(value, SPOKEN) if isinstance(value, str) else value


@given(held=NESTED)
def test_json_within_arguments_stays_json_at_every_depth(held: Json) -> None:
    restorer = AnswerRestorer(SPOKEN)
    (call,) = restorer.push(called({"held": held}))
    assert isinstance(call, Delta)
    shown = json.loads(call.calls[0].arguments)
    assert read(shown) == with_values(read({"held": held}))


def test_json_in_a_string_of_arguments_is_as_it_was_written() -> None:
    given = {
        "held": '{"n":1.50, "n" :2, "x": "\\u0041"}',
        "prose": '{"who": ⟦PERSON_1⟧}',
    }
    (call,) = shown_of(called(given))
    assert isinstance(call, Delta)
    assert json.loads(call.calls[0].arguments) == {
        **given,
        "prose": '{"who": Ann "Q" Smith}',
    }


@given(held=NESTED, sizes=st.lists(st.integers(1, 9), max_size=60))
def test_json_within_an_answer_that_is_json_stays_json(
    held: Json, sizes: list[int]
) -> None:
    restorer = AnswerRestorer(SPOKEN, formatted=True)
    text = json.dumps({"held": held}, ensure_ascii=False)
    cuts = [*accumulate(sizes)]
    deltas = [
        Delta(text=text[start:end])
        for start, end in pairwise(
            [0, *(each for each in cuts if each < len(text)), len(text)]
        )
    ]
    said: list[AnswerEvent] = [*deltas, END]
    events = [each for event in said for each in restorer.push(event)]
    shown = "".join(each.text for each in events if isinstance(each, Delta))
    # Whatever was kept, and nothing else, is replaced here.
    assert with_values(read(json.loads(shown))) == with_values(read({"held": held}))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"held": "{\\"who\\": \\"⟦PERSON_1⟧\\"}"}', None),
        ('{"held": "\\n [\\"⟦PERSON_1⟧\\"]"}', None),
        ('{"held": "\\u005b\\"⟦PERSON_1⟧\\"]"}', None),
        ('{"held": "\\"⟦PERSON_1⟧\\""}', None),
        (
            '{"held": "{\\"in\\": \\"⟦PLACE_1⟧\\"}"}',
            '{"held": "{\\"in\\": \\"Ulm\\"}"}',
        ),
        (
            '{"held": "so \\"⟦PERSON_1⟧\\""}',
            '{"held": "so \\"Ann \\"Q\\" Smith\\""}',
        ),
        ('{"a": "{}", "b": "⟦PERSON_1⟧"}', '{"a": "{}", "b": "Ann \\"Q\\" Smith"}'),
    ],
    ids=["object", "list", "escaped", "string", "plain", "prose", "next"],
)
def test_no_value_needs_escapes_within_escapes(text: str, shown: str | None) -> None:
    restorer = AnswerRestorer(OWN, formatted=True)
    events = [
        each for event in (Delta(text=text), END) for each in restorer.push(event)
    ]
    said = "".join(each.text for each in events if isinstance(each, Delta))
    assert said == (shown or text)
    assert isinstance(events[-1], Finished)
    assert events[-1].unrestored == (shown is None)


def test_a_name_next_to_its_stand_in_in_arguments_is_a_broken_answer() -> None:
    with pytest.raises(EnclaveError):
        shown_of(called({"⟦PLACE_1⟧": 1, "Ulm": 2}), END)
