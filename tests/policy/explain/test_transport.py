import re
from dataclasses import replace
from textwrap import dedent

import pytest

from curtilage.policy.decision.decide import Decision, decide
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.addresses import (
    is_loopback,
    parse_address,
    registrable_domain,
    same_owner,
)
from curtilage.policy.document.load import PROFILES, load_policy, load_profile
from curtilage.policy.document.model import Policy
from curtilage.policy.document.sections import (
    DEFAULT_FRAMES,
    MAX_ACCEPTED,
    CoverTraffic,
    Transport,
)
from curtilage.policy.errors import PolicyError, Problem
from curtilage.policy.expectations import expectations_from, transport_expectations
from curtilage.policy.explain.transport import (
    ALIKE,
    NO_COVER,
    NO_MIRROR,
    NOTHING,
    UNSAFE,
    cover_percent,
    transport_in_words,
)
from curtilage.wire.shaping import PADDED, UNPADDED
from support.inspections import inspection_of

SMALL = """\
version: 1
rules: [{id: any-uncertain, when: "uncertain.*", then: local}]
"""
FRAMES = "{frame_bytes: 256, period_ms: 20, first_bucket: 32, buckets: 4}"


def load(section: str) -> Transport:
    return load_policy(SMALL + dedent(section)).transport


def only_problem_of(text: str) -> Problem:
    with pytest.raises(PolicyError) as caught:
        load_policy(SMALL + dedent(text))
    (problem,) = caught.value.problems
    return problem


def words(transport: Transport) -> dict[str, str]:
    return dict(transport_in_words(transport))


# --- what is accepted ---------------------------------------------------------


def test_an_absent_section_accepts_only_the_releases_default() -> None:
    policy = load_policy(SMALL)
    assert policy.transport == Transport()
    assert transport_expectations(policy) == {PADDED}
    assert policy.transport.cover is None
    assert policy.transport.mirror is None
    assert policy.transport.gateway is None


@pytest.mark.parametrize("name", PROFILES)
def test_shipped_profiles_accept_nothing_unsafe(name: str) -> None:
    assert transport_expectations(load_profile(name)) == {PADDED}


def test_the_section_is_read() -> None:
    transport = load(f"""\
        transport:
          accept: [{FRAMES}]
          cover: {{delay_s: [1, 9], share: 25}}
          mirror: https://keys.example.org/demo/ohttp-keys
          gateway: https://enclave.example.net
        """)
    (frames,) = transport.accept
    wanted = replace(PADDED, frame_bytes=256, period_ms=20, first_bucket=32, buckets=4)
    assert frames.parameters() == wanted
    assert transport.cover is not None
    assert (transport.cover.delay_s, transport.cover.share) == ((1, 9), 25)
    assert transport.mirror == "https://keys.example.org/demo/ohttp-keys"
    assert transport.gateway == "https://enclave.example.net"
    assert not transport.unsafe_unpadded


def test_cover_has_defaults() -> None:
    cover = load("transport: {cover: {}}\n").cover
    assert cover is not None
    assert (cover.delay_s, cover.share) == ((0, 10), 100)


def test_unsafe_unpadded_adds_and_replaces_nothing() -> None:
    policy = load_policy(SMALL + "transport: {unsafe_unpadded: true}\n")
    assert transport_expectations(policy) == {PADDED, UNPADDED}


def test_unsafe_unpadded_may_stand_alone() -> None:
    text = "transport: {accept: [], unsafe_unpadded: true}\n"
    assert transport_expectations(load_policy(SMALL + text)) == {UNPADDED}


def test_an_empty_list_accepts_nothing() -> None:
    policy = load_policy(SMALL + "transport: {accept: []}\n")
    assert transport_expectations(policy) == frozenset()


def test_expectations_without_attestation_accept_no_shape() -> None:
    assert expectations_from(load_policy(SMALL)).transport == frozenset()


def test_the_digest_covers_the_section() -> None:
    some = load_policy(SMALL + f"transport: {{accept: [{FRAMES}]}}\n")
    assert some.digest != load_policy(SMALL).digest


# --- what is refused ----------------------------------------------------------


@pytest.mark.parametrize(
    ("inside", "path", "said"),
    [
        ("accept: {}", "transport.accept", "expected a list"),
        (
            f"accept: [{FRAMES.replace('frame_bytes: 256, ', '')}]",
            "transport.accept[0].frame_bytes",
            "missing",
        ),
        ("accept: [1]", "transport.accept[0]", "expected keys and values"),
        (
            f"accept: [{FRAMES[:-1]}, jitter: 1}}]",
            "transport.accept[0].jitter",
            "unknown key",
        ),
        (
            f"accept: [{FRAMES.replace('256', '63')}]",
            "transport.accept[0]",
            "frame_bytes outside 64..16384",
        ),
        (
            f"accept: [{FRAMES.replace('20', '0')}]",
            "transport.accept[0]",
            "period_ms outside 1..1000",
        ),
        (
            f"accept: [{FRAMES.replace('32', '1')}]",
            "transport.accept[0]",
            "first_bucket outside 2..",
        ),
        (
            f"accept: [{FRAMES.replace('buckets: 4', 'buckets: 17')}]",
            "transport.accept[0]",
            "buckets outside 1..16",
        ),
        (
            f"accept: [{FRAMES.replace('32', '60000').replace('4', '16')}]",
            "transport.accept[0]",
            "the longest answer is too long",
        ),
        (f"accept: [{FRAMES}, {FRAMES}]", "transport.accept[1]", "parameters twice"),
        ("unsafe_unpadded: yes", "transport.unsafe_unpadded", "true or false"),
        ("cover: true", "transport.cover", "expected keys and values"),
        ("cover: {share: 0}", "transport.cover.share", "greater than or equal to 1"),
        ("cover: {share: 101}", "transport.cover.share", "less than or equal to 100"),
        ("cover: {delay_s: [9, 1]}", "transport.cover", "ends before it begins"),
        ("cover: {delay_s: [0, 3601]}", "transport.cover.delay_s[1]", "3600"),
        ("cover: {delay_s: [-1, 1]}", "transport.cover.delay_s[0]", "equal to 0"),
        ("cover: {delay_s: [1]}", "transport.cover.delay_s", "expected [least, gr"),
        ("cover: {delay_s: [0, 10, 20]}", "transport.cover.delay_s", "expected [lea"),
        ("cover: {delay_s: 5}", "transport.cover.delay_s", "expected a list"),
        ("cover: {every: 5}", "transport.cover.every", "unknown key"),
        ("cover: {classes: []}", "transport.cover.classes", "at least 1 item"),
        ("cover: {classes: [nope]}", "transport.cover.classes[0]", "unknown class"),
        (
            "{cover: {}, unsafe_unpadded: true}",
            "transport.cover",
            "distinguished from answers that are not padded",
        ),
        ("mirror: keys.example", "transport.mirror", "expected https://host"),
        ("mirror: http://keys.example/", "transport.mirror", "use https"),
        ("mirror: 'https://u:p@k.example'", "transport.mirror", "without user"),
        ("mirror: 'https://k.example/?c=1'", "transport.mirror", "query"),
        ("mirror: 'https://k.example/#c'", "transport.mirror", "fragment"),
        ("mirror: 'https://k.example:99999/'", "transport.mirror", "expected"),
        ("mirror: https://Keys.example/", "transport.mirror", "lower case"),
        ("mirror: 'https://k.example./'", "transport.mirror", "expected"),
        (f"mirror: https://{'a.' * 500}b/", "transport.mirror", "expected"),
        ("mirror: 'http://127.0.0.1:1/'", "transport.mirror", "development"),
        ("gateway: http://localhost", "transport.gateway", "development"),
        ("gateway: https://g.example/x", "transport.gateway", "nothing after it"),
        ("gateway: ftp://g.example", "transport.gateway", "expected https"),
        (
            "{mirror: https://a.g.example/x, gateway: https://b.g.example}",
            "transport.mirror",
            "one owner",
        ),
        (
            "{mirror: 'https://127.0.0.1:1/', gateway: 'https://127.0.0.1:2'}",
            "transport.mirror",
            "one owner",
        ),
        ("jitter: 3", "transport.jitter", "unknown key"),
    ],
)
def test_transport_is_refused_with_its_line(inside: str, path: str, said: str) -> None:
    inside = inside if inside.startswith("{") else f"{{{inside}}}"
    problem = only_problem_of(f"transport: {inside}\n")
    assert (problem.path, problem.line) == (path, 3)
    assert said in problem.message


def test_a_policy_accepts_so_many_and_no_more() -> None:
    def accepting(count: int) -> str:
        each = (FRAMES.replace("20", str(20 + more)) for more in range(count))
        return f"transport: {{accept: [{', '.join(each)}]}}\n"

    assert len(load(accepting(MAX_ACCEPTED)).accept) == MAX_ACCEPTED
    problem = only_problem_of(accepting(MAX_ACCEPTED + 1))
    assert problem.path == "transport.accept"
    assert problem.message == f"expected at most {MAX_ACCEPTED} items"


def test_a_duplicate_is_reported_at_the_second_place() -> None:
    problem = only_problem_of(
        f"transport:\n  accept:\n    - {FRAMES}\n    - {FRAMES}\n"
    )
    assert (problem.line, problem.path) == (6, "transport.accept[1]")


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (100, "each query that is kept local is followed by a sealed request without"),
        (50, "of 100 queries that are kept local, 50 are followed by a sealed request"),
        (1, "of 100 queries that are kept local, one is followed by a sealed request"),
    ],
)
def test_cover_is_described(share: int, said: str) -> None:
    section = f"transport: {{cover: {{share: {share}}}}}\n"
    assert words(load(section))["cover"].startswith(said)


@pytest.mark.parametrize(
    ("at_home", "share", "percent"),
    [(0, 100, 0), (50, 100, 100), (80, 100, 400), (80, 25, 100), (20, 50, 12)],
)
def test_cover_has_a_cost(at_home: int, share: int, percent: int) -> None:
    cover = CoverTraffic(share=share)
    assert cover_percent(cover, at_home=at_home) == percent


def test_the_cost_of_cover_is_described() -> None:
    cost = words(load("transport: {cover: {share: 50}}\n"))["cost"]
    added = dict(re.findall(r"(\d+) [a-z ]+: (\d+) %", cost))
    assert added == {"20": "12", "50": "50", "80": "200"}
    assert " 100 queries " in cost
    assert " 32 KiB " in cost
    assert "cost" not in words(Transport())


def test_cover_may_be_for_some_classes() -> None:
    section = "transport: {cover: {classes: ['health.*', legal.docket]}}\n"
    cover = words(load(section))["cover"]
    assert " health.* or legal.docket " in cover


LIMITED = load_policy(SMALL + "transport: {cover: {classes: ['health.*']}}\n")


@pytest.mark.parametrize(
    ("found", "pinned", "floor", "wanted"),
    [
        ("health.lab", False, RoutingClass.PUBLIC, True),
        ("legal.docket", False, RoutingClass.PUBLIC, False),
        ("uncertain.error", False, RoutingClass.PUBLIC, False),
        (None, False, RoutingClass.PUBLIC, False),
        # Their contents are unknown, so each may be of the classes.
        (None, True, RoutingClass.PUBLIC, True),
        (None, False, RoutingClass.RESTRICTED, True),
    ],
)
def test_cover_is_for_the_classes_that_are_named(
    found: str | None, floor: RoutingClass, *, pinned: bool, wanted: bool
) -> None:
    def decision_under(policy: Policy) -> Decision:
        alone = Finding(
            data_class=found or "",
            detector="test",
            start=0,
            end=1,
            score=100,
            validated=True,
            normalization=Normalization.RAW,
            where=Where(message=0, role="user", json_path="content"),
        )
        inspection = inspection_of(
            findings=() if found is None else (alone,),
            payload_digest=bytes(32),
            messages=1,
            pinned=pinned,
            floor=floor,
        )
        return decide(policy.rulebook, inspection)

    assert LIMITED.wants_cover(decision_under(LIMITED)) is wanted
    everything = load_policy(SMALL + "transport: {cover: {}}\n")
    assert everything.wants_cover(decision_under(everything))
    nothing = load_policy(SMALL)
    assert not nothing.wants_cover(decision_under(nothing))


def test_each_problem_has_its_own_line() -> None:
    with pytest.raises(PolicyError) as caught:
        load_policy(
            SMALL
            + "transport:\n"
            + "  mirror: http://keys.example/\n"
            + "  gateway: https://g.example/x\n"
            + "  cover: {share: 0}\n"
        )
    assert [(each.line, each.path) for each in caught.value.problems] == [
        (4, "transport.mirror"),
        (5, "transport.gateway"),
        (6, "transport.cover.share"),
    ]


def test_an_empty_section_is_a_section() -> None:
    assert load("transport: {}\n") == Transport()
    problem = only_problem_of("transport: null\n")
    assert (problem.path, problem.line) == ("transport", 3)


# --- owners -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("example.org", "example.org"),
        ("a.b.example.org", "example.org"),
        ("A.Example.ORG.", "example.org"),
        ("intranet", "intranet"),
        ("a.co.uk", "co.uk"),
        ("192.0.2.7", "192.0.2.7"),
        ("[2001:db8::1]", "[2001:db8::1]"),
    ],
)
def test_registrable_domain_is_the_last_two_labels(host: str, domain: str) -> None:
    assert registrable_domain(host) == domain


def test_literal_addresses_have_separate_owners() -> None:
    assert not same_owner("192.0.2.7", "198.51.2.7")
    assert same_owner("one.example.org", "two.example.org")
    assert not same_owner("example.org", "example.net")


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("[::1]", True),
        ("127.example.org", False),
        ("localhost.example.org", False),
        ("10.0.0.1", False),
    ],
)
def test_loopback_is_recognised_by_its_spelling(host: str, *, is_ours: bool) -> None:
    assert is_loopback(host) is is_ours


def test_parts_of_an_address() -> None:
    address = parse_address("https://[::1]:8443/a/b")
    assert (address.scheme, address.host, address.path) == ("https", "[::1]", "/a/b")


# --- words --------------------------------------------------------------------


def test_words_of_the_default() -> None:
    described = words(Transport())
    assert re.findall(r"[\d.]+ \w+", described["answers"]) == [
        "512 bytes",
        "50 ms",
        "7 lengths",
        "3.2 s",
        "204.8 s",
    ]
    assert (described["cover"], described["mirror"]) == (NO_COVER, NO_MIRROR)
    assert "gateway" not in described


def test_words_of_everything() -> None:
    described = words(
        load("""\
        transport:
          accept: [{frame_bytes: 256, period_ms: 20, first_bucket: 32, buckets: 1}]
          cover: {delay_s: [1, 9], share: 25}
          mirror: https://keys.example.org/x
          gateway: https://enclave.example.net
        """)
    )
    assert f"{ALIKE}, 0.64 s to 0.64 s" in described["answers"]
    assert re.findall(r"\d+", described["cover"]) == ["100", "25", "1", "9"]
    assert described["cover"].endswith("1 to 9 s later")
    assert described["mirror"].startswith("https://keys.example.org/x;")
    assert described["gateway"].startswith("https://enclave.example.net;")


def test_words_say_what_is_unsafe() -> None:
    both = list(transport_in_words(load("transport: {unsafe_unpadded: true}\n")))
    assert ("answers", UNSAFE) in both
    assert len([label for label, _ in both if label == "answers"]) == 2
    assert words(load("transport: {accept: []}\n"))["answers"] == NOTHING
    alone = load("transport: {accept: [], unsafe_unpadded: true}\n")
    assert words(alone)["answers"] == UNSAFE
    everybody = words(load("transport: {cover: {}}\n"))["cover"]
    assert everybody == words(load("transport: {cover: {share: 100}}\n"))["cover"]


def test_default_frames_are_the_wires() -> None:
    assert DEFAULT_FRAMES.parameters() == PADDED
