import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.detection.persons import settled
from curtilage.policy.decision.findings import Finding, Normalization, Where

SOMEBODY = "marker.first_person"
ADDRESSEE = "marker.addressee"
ROLES = ("system", "developer", "user", "assistant", "tool")
NAMES = (
    SOMEBODY,
    ADDRESSEE,
    "marker.case",
    "special.religion",
    "topic.special",
    "topic.health",
    "topic.finance",
    "identifier.direct.person",
    "health.condition",
)


def finding(
    name: str,
    *,
    role: str = "user",
    score: int = 60,
    detector: str = "lexicon",
    end: int = 20,
) -> Finding:
    return Finding(
        data_class=name,
        detector=detector,
        start=0,
        end=end,
        score=score,
        validated=False,
        normalization=Normalization.RAW,
        where=Where(message=0, role=role, json_path="content"),
    )


FINDINGS = st.builds(
    finding,
    st.sampled_from(NAMES),
    role=st.sampled_from(ROLES),
    score=st.integers(0, 100),
    end=st.integers(0, 400),
)


@pytest.mark.parametrize(
    ("role", "name"),
    [
        ("assistant", SOMEBODY),
        ("tool", SOMEBODY),
        ("user", ADDRESSEE),
        ("system", ADDRESSEE),
        ("developer", ADDRESSEE),
    ],
)
def test_you_is_the_user_if_addressed(role: str, name: str) -> None:
    (found,) = settled([finding(ADDRESSEE, role=role)])
    assert found.data_class == name


def test_an_impersonal_special_word_is_a_topic() -> None:
    (found,) = settled([finding("special.religion")])
    assert (found.data_class, found.score) == ("topic.special", 40)


@pytest.mark.parametrize(
    "person",
    [
        SOMEBODY,
        "identifier.direct.email",
        "identifier.public.figure",
        "uncertain.name",
    ],
)
def test_a_special_word_of_somebody_is_his(person: str) -> None:
    found = settled([finding("special.religion"), finding(person)])
    assert {each.data_class for each in found} == {"special.religion", person}


def test_you_of_an_assistant_makes_special_words_the_users() -> None:
    said = [finding("special.religion"), finding(ADDRESSEE, role="assistant")]
    assert settled(said)[0].data_class == "special.religion"


def test_what_no_list_of_words_found_is_never_a_topic() -> None:
    (found,) = settled([finding("special.biometric", detector="patterns")])
    assert found.data_class == "special.biometric"


@pytest.mark.parametrize(
    ("name", "score", "end", "after"),
    [
        ("topic.health", 40, 200, 50),
        ("topic.hr", 49, 20, 50),
        ("topic.health", 80, 20, 80),
        ("topic.health", 39, 20, 39),
        ("topic.health", 40, 201, 40),
        ("topic.finance", 40, 20, 40),
    ],
)
def test_a_topic_counts_earlier_in_a_short_text_about_somebody(
    name: str, score: int, end: int, after: int
) -> None:
    topic = finding(name, score=score, end=end, detector="ner")
    assert settled([topic, finding(SOMEBODY)])[0].score == after
    assert settled([topic])[0].score == score


@given(st.lists(FINDINGS, max_size=6), FINDINGS)
def test_one_finding_more_makes_none_less(known: list[Finding], more: Finding) -> None:
    before, after = settled(known), settled([*known, more])
    for old, new in zip(before, after, strict=False):
        assert new.score >= old.score
        same = new.data_class == old.data_class
        assert same or (old.data_class, new.data_class[:8]) == (
            "topic.special",
            "special.",
        )
