"""What is known to be broken: the list itself, and what a policy makes of it."""

import re
from datetime import date
from pathlib import Path

import pytest

from curtilage.attest.amd_tcb import Product, Tcb
from curtilage.attest.evidence import DeviceKind, Tee
from curtilage.policy.breaks import (
    Break,
    Default,
    Needs,
    highest,
    known_breaks,
    parse_breaks,
)
from curtilage.policy.document.load import load_policy, profile_text
from curtilage.policy.errors import PolicyError
from curtilage.policy.expectations import expectations_from
from curtilage.policy.explain.attestation import attestation_in_words
from curtilage.policy.explain.breaks import break_in_words, left_open

ROWS = known_breaks().rows
GENUINE = {tee.value for tee in Tee if not tee.emulated} | {
    kind.value for kind in DeviceKind if not kind.emulated
}
KEY = "A" * 42
LEVELS = "bl: 1, tee: 1, snp: 1, ucode: 1"


def section(
    product: str = "Genoa",
    *,
    more: str = "",
    tees: str = "sev-snp",
    environment: str = "production",
    tdx: str = "",
) -> str:
    fmc = "fmc: 1, " if product == "Turin" else ""
    return f"""
attestation:
  environment: {environment}
  trust_anchors: [{{kind: amd, product: {product}}}, {{kind: intel}}]
  required_cpu_tees: [{tees}]
  releases:
    names: [one]
    log:
      origin: example.org/log
      key: {KEY}E=
      witnesses: [{{name: first.example, key: {KEY}I=}}]
      quorum: 1
    max_checkpoint_age_s: 172800
  snp:
    min_version: 3
    vmpl: [0]
    allow_vlek: false
    allow_masked_chip: false
    min_tcb: [{{product: {product}, {fmc}{LEVELS}}}]
  freshness: {{max_key_lifetime_s: 43200, max_evidence_age_s: 60, clock_skew_s: 0}}
{tdx}{more}"""


def accept(*names: str) -> str:
    entries = ", ".join(f"{{id: {name}, reason: A reason.}}" for name in names)
    return f"  accept_broken: [{entries}]\n"


def problems(text: str) -> dict[str, str]:
    with pytest.raises(PolicyError) as caught:
        load_policy(profile_text("default") + text)
    return {each.path: each.message for each in caught.value.problems}


# --- the list -----------------------------------------------------------------


def test_every_row_has_a_source_and_a_date() -> None:
    assert date.fromisoformat(known_breaks().as_of).year >= 2026
    for row in ROWS:
        assert re.fullmatch(r"https://\S+", row.source), row.id
        assert row.published <= known_breaks().as_of, row.id
        assert len(row.effect) <= 260, row.id
        assert row.effect[0] != row.effect[0].upper() or row.effect[:4] == "Rome"
    assert len({row.id for row in ROWS}) == len(ROWS)


def test_interposers_are_stated_for_every_kind() -> None:
    for name in ("tee-fail", "battering-ram", "wiretap", "ddrop"):
        row = known_breaks().named(name)
        assert row is not None
        assert row.kinds == GENUINE
        assert not row.products
        assert (row.default, row.needs) == (Default.STATE, Needs.HANDS)


def test_no_row_affects_what_is_emulated() -> None:
    emulated = {tee.value for tee in Tee if tee.emulated}
    products = {product.value for product in Product}
    assert known_breaks().of(emulated, products) == ()


ROW = """
as_of = "2026-11-29"
[[break]]
id = "one"
name = "One"
published = "2026-11"
kinds = ["sev-snp"]
products = ["Genoa"]
needs = "software"
default = "raise"
effect = "it breaks"
source = "https://example.org/"
levels = { Genoa = { snp = 9 } }
"""


def test_a_list_of_this_form_is_read() -> None:
    (row,) = parse_breaks(ROW).rows
    assert row == Break(
        id="one",
        name="One",
        published="2026-11",
        kinds=frozenset({"sev-snp"}),
        products=frozenset({"Genoa"}),
        needs=Needs.SOFTWARE,
        default=Default.RAISE,
        effect="it breaks",
        source="https://example.org/",
        levels={"Genoa": Tcb(bl=0, tee=0, snp=9, ucode=0)},
        evaluation=0,
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('source = "https://example.org/"\n', ""),
        ("https://example.org/", "http://example.org/"),
        ("https://example.org/", ""),
        ("2026-11-29", "29 November"),
        ('published = "2026-11"', 'published = "2026-13"'),
        ('published = "2026-11"', 'published = "2026-12"'),
        ('"sev-snp"', '"emulated-sev-snp"'),
        ('"sev-snp"', '"sgx"'),
        ('["sev-snp"]', "[]"),
        ('"raise"', '"ignore"'),
        ('"raise"', '"state"'),
        ('"raise"', '"refuse"'),
        ('"software"', '"money"'),
        ("levels = { Genoa = { snp = 9 } }\n", ""),
        ("snp = 9", "snp = 256"),
        ("snp = 9", "snp = true"),
        ("snp = 9", "cpu = 9"),
        ("{ snp = 9 }", "{ }"),
        ("Genoa = {", "Turin = {"),
        ('id = "one"', 'id = "One"'),
        ('effect = "it breaks"', 'effect = ""'),
        ('effect = "it breaks"', 'effects = "it breaks"'),
        ("[[break]]", "[[broken]]"),
        ("[[break]]", "more = 1\n[[break]]"),
    ],
)
def test_a_list_of_another_form_is_refused(old: str, new: str) -> None:
    assert old in ROW
    with pytest.raises(ValueError, match=r"."):
        parse_breaks(ROW.replace(old, new, 1))


def test_an_id_is_given_once() -> None:
    rows = ROW[ROW.index("[[break]]") :]
    with pytest.raises(ValueError, match="twice"):
        parse_breaks(ROW + rows)


def test_levels_are_compared_one_by_one() -> None:
    one = Tcb(bl=1, tee=2, snp=3, ucode=4, fmc=5)
    other = Tcb(bl=5, tee=4, snp=3, ucode=2, fmc=1)
    assert highest(one, other) == Tcb(bl=5, tee=4, snp=3, ucode=4, fmc=5)
    assert highest(one, None) == one


# --- what is refused ------------------------------------------------------------


def test_production_refuses_milan() -> None:
    found = problems(section("Milan"))
    assert set(found) == {
        "attestation.trust_anchors[0].product",
        "attestation.snp.min_tcb[0].product",
    }
    for said in found.values():
        assert "BadFuse (2026-05, https://arxiv.org/abs/2605.12990)" in said
        assert "accept_broken" in said


@pytest.mark.parametrize("tees", ["sev-snp", "azure-snp", "tdx, azure-snp"])
def test_every_kind_with_such_a_report_is_affected(tees: str) -> None:
    tdx = "  tdx: {statuses: [UpToDate]}\n" if "tdx" in tees else ""
    assert problems(section("Milan", tees=tees, tdx=tdx))


def test_milan_is_accepted_with_a_reason() -> None:
    policy = load_policy(
        profile_text("default") + section("Milan", more=accept("badfuse"))
    )
    assert policy.attestation is not None
    assert policy.attestation.accepted_breaks == {"badfuse": "A reason."}
    said = [text for label, text in attestation_in_words(policy) if label == "broken"]
    assert said[0].startswith("BadFuse (2026-05, by software on the machine): ")
    assert said[0].endswith("; accepted: A reason.")


@pytest.mark.parametrize(
    "more",
    [
        "  accept_broken: [{id: badfuse}]\n",
        "  accept_broken: [{id: badfuse, reason: ''}]\n",
        "  accept_broken: [badfuse]\n",
    ],
)
def test_a_reason_must_be_given(more: str) -> None:
    assert any(
        "accept_broken[0]" in path for path in problems(section("Milan", more=more))
    )


def test_development_only_says_so() -> None:
    text = profile_text("default") + section("Milan", environment="development")
    policy = load_policy(text)
    labels = dict(attestation_in_words(policy))
    assert "broken" in labels
    assert expectations_from(policy).snp.min_tcb == {
        "Milan": Tcb(bl=1, tee=1, snp=1, ucode=1)
    }


def test_rome_cannot_be_accepted() -> None:
    for more in ("", accept("rome")):
        with pytest.raises(PolicyError) as caught:
            load_policy(profile_text("default") + section("Rome", more=more))
        said = {
            each.message
            for each in caught.value.problems
            if each.path == "attestation.trust_anchors[0].product"
        }
        assert any("Rome has SEV and SEV-ES" in each for each in said)
    assert any("nothing follows" in each.message for each in caught.value.problems)
    assert problems(section("Rome", environment="development"))


@pytest.mark.parametrize(
    ("names", "index", "said"),
    [
        (("unheard-of",), 0, "no known break"),
        (("tee-fail",), 0, "nothing follows"),
        (("badfuse",), 0, "affects nothing"),
        (("intel-2026-08",), 0, "affects nothing"),
        (("entrysign", "entrysign"), 1, "twice"),
    ],
)
def test_what_is_accepted_must_have_an_effect(
    names: tuple[str, ...], index: int, said: str
) -> None:
    found = problems(section("Genoa", more=accept(*names)))
    assert said in found[f"attestation.accept_broken[{index}].id"]


# --- what is raised ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("product", "accepted", "snp"),
    [
        ("Genoa", (), 27),
        ("Genoa", ("rmpocalypse",), 23),
        ("Genoa", ("rmpocalypse", "entrysign"), 22),
        ("Genoa", ("rmpocalypse", "entrysign", "badram"), 1),
        ("Turin", (), 4),
        ("Turin", ("rmpocalypse",), 1),
        ("Milan", ("badfuse",), 23),
        ("Milan", ("badfuse", "badram"), 1),
    ],
)
def test_advisories_raise_the_levels(
    product: str, accepted: tuple[str, ...], snp: int
) -> None:
    text = section(product, more=accept(*accepted) if accepted else "")
    policy = load_policy(profile_text("default") + text)
    least = expectations_from(policy).snp.min_tcb[product]
    fmc = 1 if product == "Turin" else 0
    assert least == Tcb(fmc=fmc, bl=1, tee=1, snp=snp, ucode=1)
    said = dict(attestation_in_words(policy))["firmware"]
    assert f"snp {snp}, " in said
    for row in ROWS:
        enforced = product in row.levels and row.id not in accepted
        assert (row.name in said) is enforced


def test_a_policy_may_demand_more() -> None:
    text = section("Genoa").replace("snp: 1,", "snp: 99,")
    policy = load_policy(profile_text("default") + text)
    assert expectations_from(policy).snp.min_tcb["Genoa"].snp == 99


@pytest.mark.parametrize(
    ("number", "accepted", "environment", "least"),
    [
        (0, False, "production", 20),
        (17, False, "production", 20),
        (21, False, "production", 21),
        (17, True, "production", 17),
        (17, False, "development", 17),
    ],
)
def test_advisories_raise_intels_evaluation(
    number: int, *, accepted: bool, environment: str, least: int
) -> None:
    text = section(
        tees="sev-snp, tdx",
        tdx=f"  tdx: {{statuses: [UpToDate], min_tcb_evaluation_number: {number}}}\n",
        more=accept("intel-2026-08") if accepted else "",
        environment=environment,
    )
    policy = load_policy(profile_text("default") + text)
    assert expectations_from(policy).tdx.min_tcb_evaluation_number == least
    assert f"evaluation {least} or later" in dict(attestation_in_words(policy))["TDX"]


# --- what is left -------------------------------------------------------------------


def test_what_is_left_open_is_said() -> None:
    """All that affects the kinds, but for what the levels rule out."""
    policy = load_policy(profile_text("default") + section("Genoa"))
    assert policy.attestation is not None
    left = left_open(policy.attestation, {"sev-snp"}, {"Genoa"})
    ids = {row.id for row in left}
    assert ids >= {"ddrop", "tee-fail", "battering-ram", "wiretap", "stackwarp"}
    assert not ids & {"badram", "entrysign", "rmpocalypse", "badfuse", "rome"}
    said = [text for label, text in attestation_in_words(policy) if label == "broken"]
    assert said == [break_in_words(row) for row in left]


def test_what_is_accepted_is_left_open() -> None:
    text = section("Genoa", more=accept("entrysign"))
    policy = load_policy(profile_text("default") + text)
    assert policy.attestation is not None
    ids = {row.id for row in left_open(policy.attestation, {"sev-snp"}, {"Genoa"})}
    assert "entrysign" in ids
    assert "rmpocalypse" not in ids


def test_the_list_is_part_of_the_package() -> None:
    import curtilage.policy.breaks as module  # noqa: PLC0415 - its place is asked for

    assert Path(module.__file__).with_name("known_breaks.toml").is_file()
