"""What a policy brings itself: detectors, lists, models, and their errors."""

import hashlib
from collections.abc import Callable
from textwrap import dedent

import pytest

from curtilage.policy.decision.decide import decide
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.attachments import NO_FILES
from curtilage.policy.document.detection_plan import ExclusionList, OwnDetector
from curtilage.policy.document.load import PLAIN_WORDS, load_policy, pack_text
from curtilage.policy.document.model import Policy
from curtilage.policy.errors import PolicyError, Problem
from support.inspections import inspection_of

HEAD = """\
version: 1
default: {decision: enclave}
rules:
- {id: any-uncertain, when: "uncertain.*", then: local}
"""
SALT = "0123456789abcdef" * 2
DIGEST = "ab" * 32
FILES = {
    "names.txt": b"# projects\nBlue Falcon\nCanary\n",
    "lists/customers": f"{DIGEST}\n".encode(),
    "people.txt": b"Ada Lovelace\n",
    "broken": b"\xff",
    "empty": b"",
    "words": b"hunter2\n",
}


def files(name: str) -> bytes:
    if name not in FILES:
        raise FileNotFoundError(name)
    return FILES[name]


def load(text: str, read: Callable[[str], bytes] | None = files) -> Policy:
    return load_policy(HEAD + dedent(text), source="p.yaml", files=read)


def only_problem_of(text: str, read: Callable[[str], bytes] | None = files) -> Problem:
    with pytest.raises(PolicyError) as caught:
        load(text, read)
    assert caught.value.__cause__ is None
    (problem,) = caught.value.problems
    return problem


def test_every_kind_of_detector_loads() -> None:
    policy = load(
        f"""\
        detectors:
        - {{id: project, kind: dictionary, class: org.dictionary.project,
           file: names.txt, base_score: 80, exclude: [Blue]}}
        - {{id: customer, kind: edm, class: org.edm.customer, file: lists/customers,
           salt: {SALT}, base_score: 95}}
        - {{id: ticket, kind: regex, class: org.confidential, pattern: "T-[0-9]{{6}}",
           base_score: 40, context: [ticket], boost: 40, window: 9, validate: luhn}}
        - {{id: site, kind: dictionary, class: org.dictionary.project,
           entries: [Hangar 7], base_score: 80}}
        """
    )
    assert policy.plan.detectors == (
        OwnDetector(
            id="project",
            kind="dictionary",
            data_class="org.dictionary.project",
            base_score=80,
            entries=("Blue Falcon", "Canary"),
            exclude=("Blue",),
        ),
        OwnDetector(
            id="customer",
            kind="edm",
            data_class="org.edm.customer",
            base_score=95,
            entries=(DIGEST,),
            salt=SALT,
        ),
        OwnDetector(
            id="ticket",
            kind="regex",
            data_class="org.confidential",
            base_score=40,
            pattern="T-[0-9]{6}",
            context=("ticket",),
            window=9,
            boost=40,
            validate="luhn",
        ),
        OwnDetector(
            id="site",
            kind="dictionary",
            data_class="org.dictionary.project",
            base_score=80,
            entries=("Hangar 7",),
        ),
    )
    own = {"org.dictionary.project", "org.edm.customer"}
    assert {name for name in policy.classes if name.startswith("org.")} == {
        "org.confidential",
        *own,
    }


REGEX = "id: x, kind: regex, class: org.confidential, base_score: 9"
WORDS = "id: x, kind: dictionary, class: org.confidential, base_score: 9"
EDM = "id: x, kind: edm, class: org.edm.x, base_score: 9"


@pytest.mark.parametrize(
    ("entry", "path", "said"),
    [
        (f"{REGEX}, pattern: a, name: b", ".name", "unknown key"),
        (f"{REGEX}, pattern: '(?=a)'", ".pattern", "look-around"),
        (f"{REGEX}, pattern: ''", ".pattern", "at least 1 char"),
        (f"{REGEX}, pattern: {'a' * 1001}", ".pattern", "at most 1000 char"),
        (
            "id: x, kind: topic, class: org.edm.x, base_score: 9",
            ".kind",
            "expected 're",
        ),
        (f"{REGEX.replace('x', 'X', 1)}, pattern: a", ".id", "pattern"),
        (REGEX, "", "of kind regex has 'pattern', and one"),
        (f"{REGEX}, file: words", "", "of kind regex has 'pattern'"),
        (f"{REGEX}, pattern: a, file: words", "", "of kind regex has 'pattern'"),
        (f"{REGEX}, pattern: a, salt: {SALT}", "", "'salt' is required for"),
        (f"{REGEX}, pattern: a, boost: 9", "", "'boost' needs 'context'"),
        (f"{REGEX}, pattern: a, boost: 101", ".boost", "less than or equal"),
        (f"{REGEX}, pattern: a, window: 1001", ".window", "less than or equal"),
        (f"{REGEX}, pattern: a, window: 0", ".window", "greater than or equal"),
        (f"{REGEX}, pattern: a, validate: Luhn", ".validate", "pattern"),
        (f"{REGEX}, pattern: a, context: ['']", ".context[0]", "at least 1 char"),
        (WORDS, "", "has 'entries' or 'file', and one"),
        (f"{WORDS}, file: words, entries: [a]", "", "has 'entries' or 'file'"),
        (f"{WORDS}, entries: []", ".entries", "at least 1 item"),
        (f"{WORDS}, pattern: a", "", "has 'entries' or 'file'"),
        (f"{WORDS}, file: missing", ".file", "the file cannot be read"),
        (f"{WORDS}, file: broken", ".file", "the file is not UTF-8"),
        (f"{WORDS}, file: empty", ".file", "the file has no entry"),
        (f"{WORDS}, file: /etc/passwd", ".file", "pattern"),
        (f"{WORDS}, file: a/../../b", ".file", "no '..'"),
        (f"{WORDS}, file: a//b", ".file", "no '..'"),
        (f"{WORDS}, file: ../b", ".file", "pattern"),
        (f"{EDM}, file: lists/customers", "", "'salt' is required for"),
        (f"{EDM}, file: lists/customers, salt: abcd", ".salt", "pattern"),
        (f"{EDM}, entries: [{DIGEST}], salt: {SALT}", "", "has 'file', and one"),
        (f"{EDM}, file: words, salt: {SALT}", ".file", "line 1 of the file"),
    ],
)
def test_a_detector_is_refused(entry: str, path: str, said: str) -> None:
    problem = only_problem_of(f"detectors:\n- {{{entry}}}\n")
    assert problem.path == f"detectors[0]{path}"
    assert problem.line == 6
    assert said in problem.message
    assert "hunter2" not in problem.message


@pytest.mark.parametrize(
    ("data_class", "said"),
    [
        ("org.project", "unknown class 'org.project'"),
        ("org.dictionary.Project", "not a class pattern"),
        ("org.dictionary", "unknown class 'org.dictionary'"),
        ("org.dictionary.a.b", "unknown class"),
        ("health.*", "expected one class"),
        ("health.{lab,mrn}", "expected one class"),
        ("topics", "unknown class"),
    ],
)
def test_a_detector_finds_one_class(data_class: str, said: str) -> None:
    entry = f"id: x, kind: regex, class: '{data_class}', base_score: 9, pattern: a"
    problem = only_problem_of(f"detectors:\n- {{{entry}}}\n")
    assert problem.path == "detectors[0].class"
    assert said in problem.message


def test_detectors_have_different_ids() -> None:
    problem = only_problem_of(
        f"detectors:\n- {{{REGEX}, pattern: a}}\n- {{{REGEX}, pattern: b}}\n"
    )
    assert (problem.line, problem.path) == (7, "detectors[1].id")
    assert " detector " in problem.message
    assert " id" in problem.message


def test_files_need_someone_who_reads_them() -> None:
    problem = only_problem_of(f"detectors:\n- {{{WORDS}, file: words}}\n", read=None)
    assert problem.message == NO_FILES


def test_a_file_is_read_once() -> None:
    asked: list[str] = []

    def read(name: str) -> bytes:
        asked.append(name)
        return files(name)

    load(
        f"""\
        detectors:
        - {{{WORDS}, file: words}}
        - {{{WORDS.replace("x", "y", 1)}, file: words}}
        exclude:
        - {{class: identifier.direct.person, dictionary: words}}
        """,
        read,
    )
    assert asked == ["words"]


PROJECT = "org.dictionary.project"
OWN = f"""\
detectors:
- {{id: project, kind: dictionary, class: {PROJECT}, entries: [x], base_score: 80}}
"""


def rule(when: str, rest: str = "") -> str:
    return f"- {{id: own, when: '{when}', then: local{rest}}}\n"


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("org.dictionary.other", "no detector of this policy finds it"),
        ("org.edm.project", "no detector of this policy finds it"),
        ("org.edm.*", "nothing in the tree lies below it"),
        ("org.dictionary", "write 'org.dictionary.*'"),
    ],
)
def test_a_rule_names_declared_classes_only(when: str, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        load_policy(HEAD + rule(when) + OWN)
    (problem,) = caught.value.problems
    assert (problem.line, problem.path) == (5, "rules[1].when")
    assert said in problem.message


def route(policy: Policy, *findings: Finding) -> tuple[Route, str]:
    inspection = inspection_of(findings=findings, payload_digest=bytes(32), messages=1)
    decision = decide(policy.rulebook, inspection)
    return decision.route, decision.rule


def found(
    name: str, *, validated: bool = False, listed: tuple[str, ...] = ()
) -> Finding:
    return Finding(
        data_class=name,
        detector="test",
        start=0,
        end=5,
        score=60,
        validated=validated,
        normalization=Normalization.RAW,
        where=Where(message=0, role="user", json_path="content"),
        listed=listed,
    )


@pytest.mark.parametrize(
    "when", [PROJECT, "org.dictionary.*", "org.*", "org.{dictionary.*}"]
)
def test_a_rule_reaches_a_class_of_the_policys_own(when: str) -> None:
    policy = load_policy(HEAD + rule(when) + OWN)
    assert route(policy, found(PROJECT)) == (Route.LOCAL, "own")


def test_a_packs_rule_reaches_a_class_of_the_policys_own() -> None:
    policy = load_policy(HEAD + OWN + "packs: [legal_export]\n")
    assert route(policy, found(PROJECT)) == (Route.LOCAL, "confidential")


def test_distinct_counts_classes_of_the_policys_own() -> None:
    policy = load_policy(HEAD + rule("org.*", ", distinct: 2") + OWN)
    assert route(policy, found(PROJECT))[0] is Route.ENCLAVE
    assert route(policy, found(PROJECT), found("org.confidential"))[1] == "own"


def test_an_undeclared_class_is_not_known() -> None:
    policy = load_policy(HEAD + OWN)
    assert route(policy, found(PROJECT))[0] is Route.ENCLAVE
    other = found("org.dictionary.other")
    assert route(policy, other) == (Route.LOCAL, "any-uncertain")


LISTED = """\
- {id: name, when: identifier.direct.person, then: local}
exclude:
- {class: identifier.direct.person, dictionary: people.txt, unless: "health.*"}
"""
PERSON = "identifier.direct.person"


def test_a_list_says_what_does_not_count() -> None:
    policy = load(LISTED)
    assert policy.plan.lists == (
        ExclusionList(
            name="people.txt",
            # Whom everybody knows counts as a person, and is excluded with them.
            classes=(PERSON, "identifier.public.figure"),
            entries=("Ada Lovelace",),
        ),
    )
    inside = found(PERSON, listed=("other.txt", "people.txt"))
    assert route(policy, inside)[0] is Route.ENCLAVE
    assert route(policy, found(PERSON))[0] is Route.LOCAL
    assert route(policy, found(PERSON, listed=("other.txt",)))[0] is Route.LOCAL
    assert route(policy, inside, found(PERSON))[0] is Route.LOCAL
    assert route(policy, inside, found("health.lab"))[0] is Route.LOCAL
    certain = found(PERSON, validated=True, listed=("people.txt",))
    assert route(policy, certain)[0] is Route.LOCAL


@pytest.mark.parametrize(
    ("entry", "path", "said"),
    [
        ("class: secret.token, dictionary: words", "class", "cannot be excluded"),
        ("class: health.lab, dictionary: missing", "dictionary", "cannot be read"),
        ("class: health.lab, dictionary: a/../b", "dictionary", "no '..'"),
    ],
)
def test_a_list_is_refused(entry: str, path: str, said: str) -> None:
    problem = only_problem_of(f"exclude:\n- {{{entry}}}\n")
    assert problem.path == f"exclude[0].{path}"
    assert said in problem.message


MODEL = f"path: /m, sha256: {DIGEST}, labels: {{P: identifier.direct.person}}"


@pytest.mark.parametrize(
    ("ner", "path", "said"),
    [
        ("engine: spacy", "", "spacy needs 'path', 'sha256' and 'labels'"),
        (f"engine: spacy, path: /m, sha256: {DIGEST}", "", "spacy needs"),
        ("engine: transformers, path: /m", "", "transformers needs"),
        (f"engine: none, {MODEL}", "", "none takes no"),
        ("engine: embedded, path: /m", "", "embedded takes no"),
        ("engine: embedded, recall: 301", ".recall", "less than or equal to 300"),
        ("engine: embedded, recall: -1", ".recall", "greater than or equal to 0"),
        ("engine: embedded, url: x", ".url", "unknown key"),
        ("engine: flair", ".engine", "expected 'none'"),
        ("recall: 5", ".engine", "this key is missing"),
        (
            f"engine: spacy, path: /m, sha256: {DIGEST}, labels: {{P: person}}",
            ".labels.P",
            "unknown class 'person'",
        ),
    ],
)
def test_a_model_is_refused(ner: str, path: str, said: str) -> None:
    problem = only_problem_of(f"ner: {{{ner}}}\n")
    assert problem.path == f"ner{path}"
    assert said in problem.message


@pytest.mark.parametrize("digest", ["AB" * 32, "ab" * 31, "x"])
def test_a_models_digest_is_64_digits(digest: str) -> None:
    problem = only_problem_of(
        f"ner: {{engine: spacy, {MODEL.replace(DIGEST, digest)}}}\n"
    )
    assert problem.path == "ner.sha256"


def test_the_digest_covers_packs_and_files() -> None:
    text = HEAD + f"packs: [pci, secrets]\ndetectors:\n- {{{WORDS}, file: words}}\n"
    policy = load_policy(text, files=files)

    def sha256(content: bytes) -> str:
        return hashlib.sha256(content).hexdigest()

    lines = (
        "curtilage-policy-digest 1\n"
        f"policy {sha256(text.encode())}\n"
        f"pack pci {sha256(pack_text('pci').encode())}\n"
        f"pack secrets {sha256(pack_text('secrets').encode())}\n"
        f"file words {sha256(FILES['words'])}\n"
    )
    assert policy.digest == "sha256:" + sha256(lines.encode())
    other = load_policy(text, files=lambda _name: b"other\n")
    assert other.digest != policy.digest


def test_the_digests_input_is_not_a_policy() -> None:
    with pytest.raises(PolicyError, match=PLAIN_WORDS["model_type"]):
        load_policy("curtilage-policy-digest 1\npolicy 00\npack pci 00\n")


# --- the wall -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ("", False),
        ("detectors: []\n", False),
        ("detectors: {}\n", False),
        ("detectors: {wall: wanted}\n", False),
        ("detectors: {wall: required}\n", True),
        (f"detectors:\n  wall: required\n  own:\n  - {{{REGEX}, pattern: a}}\n", True),
    ],
)
def test_a_policy_can_demand_a_wall(text: str, *, required: bool) -> None:
    assert load(text).wall_required is required


def test_a_list_of_detectors_is_short_for_their_own_key() -> None:
    entry = f"- {{{REGEX}, pattern: a}}\n"
    short, long = (load(f"detectors:\n{key}{entry}") for key in ("", "  own:\n  "))
    assert short.document == long.document
    assert len(short.detectors) == 1


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("{wall: none}", "detectors.wall", "expected"),
        ("{wall: true}", "detectors.wall", "expected"),
        ("{walls: required}", "detectors.walls", "unknown key"),
        ("required", "detectors", "expected keys and values"),
        (
            f"{{own: [{{{REGEX}, pattern: a, more: 1}}]}}",
            "detectors.own[0].more",
            "unk",
        ),
    ],
)
def test_a_wrong_wall_is_refused(text: str, path: str, said: str) -> None:
    problem = only_problem_of(f"detectors: {text}\n")
    assert (problem.line, problem.path) == (5, path)
    assert said in problem.message


def test_ids_are_compared_under_their_own_key_too() -> None:
    two = f"  - {{{REGEX}, pattern: a}}\n" * 2
    problem = only_problem_of(f"detectors:\n  own:\n{two}")
    assert (problem.line, problem.path) == (8, "detectors.own[1].id")
