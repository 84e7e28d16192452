from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.chat.query import Leaf
from curtilage.client.detection.turns import (
    JOINT,
    MAX_SEAM_CHARS,
    REACH,
    TURNS,
    seams,
    told_numbers,
)
from curtilage.policy.decision.findings import Where


def leaves(*texts: str, roles: str = "") -> list[Leaf]:
    names = {"u": "user", "a": "assistant"}
    return [
        Leaf(
            where=Where(
                message=at,
                role=names[roles[at] if roles else "u"],
                json_path="content",
            ),
            text=text,
        )
        for at, text in enumerate(texts)
    ]


def test_one_text_has_no_seam() -> None:
    assert seams(leaves("alone")) == ()
    assert seams([]) == ()


def test_short_texts_are_read_as_one() -> None:
    assert seams(leaves("a ", " b", "c")) == (JOINT.join("abc"),)


def test_only_what_is_near_a_joint_is_repeated() -> None:
    (seam,) = seams(leaves("x" * 5000, "y" * 5000))
    assert seam == "x" * REACH + JOINT + "y" * (REACH - 1)


def test_the_users_own_texts_are_read_as_one() -> None:
    found = seams(leaves("4111", "Next?", "1111", roles="uau"))
    assert found == (
        JOINT.join(("4111", "Next?", "1111")),
        JOINT.join(("4111", "1111")),
    )


def test_a_conversation_that_goes_on_keeps_its_seams() -> None:
    texts = [f"{number} " + "some words " * 60 for number in range(12)]
    before, after = seams(leaves(*texts[:-1])), seams(leaves(*texts))
    assert after[:-1] == before
    short = [f"turn {number}" for number in range(2000)]
    assert len(set(seams(leaves(*short))) - set(seams(leaves(*short[:-1])))) == 1


PARTS = st.lists(st.text(alphabet="ab1 ", max_size=700), min_size=2, max_size=12)


@given(PARTS)
def test_every_neighbourhood_of_a_joint_is_in_one_seam(texts: list[str]) -> None:
    found = seams(leaves(*texts))
    whole = JOINT.join(text.strip() for text in texts)
    reach = REACH // 2
    for at, char in enumerate(whole):
        if char == JOINT:
            near = whole[max(at - reach, 0) : at + reach]
            assert any(near in seam for seam in found)
    assert all(len(seam) <= MAX_SEAM_CHARS for seam in found)


@given(PARTS)
def test_seams_do_not_grow_beyond_the_texts(texts: list[str]) -> None:
    total = sum(len(text) + 1 for text in texts)
    assert sum(map(len, seams(leaves(*texts)))) <= 2 * total


def test_numbers_spelled_out_in_short_turns_are_joined() -> None:
    assert told_numbers(
        leaves("it begins 4111", "Next?", "then 1111", roles="uau")
    ) == ("4111 1111")
    assert told_numbers(leaves("only 4111")) == ""
    assert told_numbers(leaves("1 and 2", "3")) == ""
    assert told_numbers(leaves("9" + " long" * 20, "1", "2")) == "1 2"


def test_only_the_last_turns_are_joined() -> None:
    texts = [str(number) for number in range(TURNS + 3)]
    assert told_numbers(leaves(*texts)) == " ".join(texts[-TURNS:])
