import json
from textwrap import dedent

import pytest

from curtilage.policy.document.checks import Tree
from curtilage.policy.document.load import load_policy, read_tree
from curtilage.policy.document.model import Policy
from curtilage.policy.document.recognizers import entities_of, recognizers_of
from curtilage.policy.errors import PolicyError

LONG = "x" * 1001
ONE = "{name: One, supported_entity: E, deny_list: [canary]"


def tree(text: str) -> Tree:
    return read_tree(dedent(text), lambda _: (), source="r")


def test_a_recognizer_is_taken_as_presidio_means_it() -> None:
    (made,) = recognizers_of(
        tree(
            r"""
            recognizers:
            - name: Zip
              supported_language: de
              supported_entity: ZIP
              patterns:
              - {name: zip, regex: '(\b\d{5}\b)', score: 0.01}
              - {regex: x, score: 1}
              deny_list: [Mr., 42]
              context: [zip, code]
              score_thresholds: {ZIP: 0.2}
            """
        )
    )
    assert json.loads(made) == {
        "name": "Zip",
        "entity": "ZIP",
        "patterns": [
            {"name": "zip", "regex": r"(\b\d{5}\b)", "score": 0.01},
            {"name": "pattern", "regex": "x", "score": 1.0},
        ],
        "deny_list": ["Mr.", "42"],
        "deny_list_score": 1.0,
        "context": ["zip", "code"],
        "score_thresholds": {"ZIP": 0.2},
    }
    assert entities_of((made,)) == ("ZIP",)


def test_languages_with_context_of_their_own_are_recognizers_of_their_own() -> None:
    made = recognizers_of(
        tree(
            """
            recognizer_registry:
              recognizers:
              - name: Zip
                supported_entities: [ZIP]
                supported_languages: [{language: de, context: [plz]}, {language: en}]
                deny_list: [x]
                context: [zip]
              - {name: Off, supported_entity: OFF, deny_list: [x], enabled: false}
              - {name: Two, supported_entity: TWO, deny_list: [x],
                 supported_languages: [de, en]}
            """
        )
    )
    assert [json.loads(each)["context"] for each in made] == [["plz"], ["zip"], []]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "the file: expected keys"),
        ("{}", "recognizers: 1 to"),
        ("{recognizers: x}", "recognizers: expected a list"),
        ("{recognizers: [], more: 1}", "the file: unknown key 'more'"),
        ("{global_regex_flags: 2, recognizers: []}", "global_regex_flags: only"),
        ("{recognizers: [One]}", "recognizers[0]: expected keys"),
        (f"{{recognizers: [{ONE}, enabled: false}}]}}", "none of them is enabled"),
        (f"{{recognizers: [{ONE}, enabled: 1}}]}}", "enabled: true or false"),
        (f"{{recognizers: [{ONE}, pattern: []}}]}}", "unknown key 'pattern'"),
        (f"{{recognizers: [{ONE}, type: predefined}}]}}", "type: custom only"),
        (
            f"{{recognizers: [{ONE}, supported_entities: [F]}}]}}",
            "one supported_entity",
        ),
        ("{recognizers: [{name: One, deny_list: [x]}]}", "one supported_entity"),
        ("{recognizers: [{name: A, supported_entity: E}]}", "neither patterns nor"),
        (f"{{recognizers: [{ONE}, patterns: [{{regex: x}}]}}]}}", "score: expected"),
        (
            f"{{recognizers: [{ONE}, patterns: [{{score: 1}}]}}]}}",
            "expected text",
        ),
        (f"{{recognizers: [{ONE}, deny_list_score: 1.5}}]}}", "a score from 0 to 1"),
        (f"{{recognizers: [{ONE}, deny_list_score: true}}]}}", "a score from 0 to 1"),
        (f"{{recognizers: [{ONE}, deny_list_score: nan}}]}}", "a score from 0 to 1"),
        (f"{{recognizers: [{ONE}, score_thresholds: {{E: x}}}}]}}", "a score from 0"),
        (f"{{recognizers: [{ONE}, context: word}}]}}", "context: expected a list"),
        (
            f"{{recognizers: [{ONE}, patterns: [{{regex: x, score: 1, flags: 2}}]}}]}}",
            "patterns[0]: unknown key 'flags'",
        ),
        (
            f"{{recognizers: [{ONE}, supported_languages: [{{words: []}}]}}]}}",
            "supported_languages: unknown key 'words'",
        ),
        (f"{{recognizers: [{f'{ONE}}}, ' * 501}]}}", "recognizers: 1 to 500"),
        (
            f"{{recognizers: [{ONE}, context: [{'a, ' * 10_001}]}}]}}",
            "context: expected a list of at most 10000",
        ),
        (f"{{recognizers: [{ONE}, context: ['']}}]}}", "context: expected text"),
        (
            f"{{recognizers: [{ONE}, patterns: [{{score: 1, regex: {LONG}}}]}}]}}",
            "more than 1000 characters",
        ),
    ],
)
def test_it_refuses(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        recognizers_of(tree(text))
    assert said in str(caught.value)
    assert "canary" not in str(caught.value)


POLICY = """\
version: 1
rules:
- {id: any-uncertain, when: "uncertain.*", then: local}
- {id: own, when: "org.dictionary.badge", then: local}
detectors:
  presidio: PRESIDIO
"""
FILE = b"{recognizers: [{name: A, supported_entity: BADGE, deny_list: [canary]}]}"


def load(presidio: str, file: bytes = FILE) -> Policy:
    def read(_name: str) -> bytes:
        return file

    return load_policy(POLICY.replace("PRESIDIO", presidio), files=read)


def test_a_policy_has_them_in_plan_digest_and_classes() -> None:
    text = "{file: r.yaml, classes: {BADGE: org.dictionary.badge}}"
    policy = load(text)
    assert "org.dictionary.badge" in policy.classes
    assert policy.plan.presidio.classes == (("BADGE", "org.dictionary.badge"),)
    assert policy.digest != load(text, FILE + b"\n").digest
    assert type(policy.plan).from_fields(policy.plan.to_fields()) == policy.plan
    assert "canary" not in repr(policy)


POINT = "{name: badge, distribution: acme, version: '1.0'}"


def test_entry_points_may_find_more_than_the_file() -> None:
    policy = load(
        f"{{file: r.yaml, entry_points: [{POINT}], "
        "classes: {BADGE: org.dictionary.badge, MORE: identifier.direct.username}}"
    )
    assert policy.plan.presidio.entry_points == (("badge", "acme", "1.0"),)


@pytest.mark.parametrize(
    ("presidio", "file", "said"),
    [
        ("{classes: {BADGE: org.dictionary.badge}}", FILE, "'file' or 'entry_points'"),
        ("{file: r.yaml}", FILE, "this key is missing"),
        ("{file: r.yaml, classes: {BADGE: health.nothing}}", FILE, "health.nothing"),
        (
            "{file: r.yaml, classes: {OTHER: org.dictionary.badge}}",
            FILE,
            "no class for the entity 'BADGE'",
        ),
        (
            "{file: r.yaml, classes: {BADGE: org.dictionary.badge, C: health.lab}}",
            FILE,
            "no recognizer finds the entity 'C'",
        ),
        (
            "{file: r.yaml, classes: {BADGE: org.dictionary.badge}}",
            b"\xff",
            "the file is not UTF-8",
        ),
        (
            "{file: r.yaml, classes: {BADGE: org.dictionary.badge}}",
            b"recognizers: &a []",
            "of the file, line 1: recognizers: anchors are not accepted",
        ),
        (
            f"{{entry_points: [{POINT[:-17]}}}], classes: {{B: health.lab}}}}",
            FILE,
            "this key is missing",
        ),
    ],
)
def test_a_policy_refuses(presidio: str, file: bytes, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        load(presidio, file)
    assert said in str(caught.value)
