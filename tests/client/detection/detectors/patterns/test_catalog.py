import re

import pytest

from curtilage.client.detection.detectors.patterns import check_digits as checks
from curtilage.client.detection.detectors.patterns.catalog import PATTERNS
from curtilage.client.detection.detectors.patterns.matcher import PatternSet
from curtilage.client.detection.detectors.patterns.number_rows import HARMLESS_RUN
from curtilage.client.detection.detectors.patterns.secrets import SECRETS
from curtilage.client.detection.detectors.readings import readings
from curtilage.client.detection.detectors.scanner import scan
from curtilage.policy.decision.classes import is_class
from support.equipment import own
from support.examples import examples
from support.growth import grows_at_most, seconds_of

RULES = (*PATTERNS, *SECRETS)

CAUGHT = [
    # contact
    ("a@b.com", "identifier.direct.email"),
    ("alice@hospital.local", "identifier.direct.email"),
    ("bob@corp.internal", "identifier.direct.email"),
    ("root@localhost", "identifier.direct.email"),
    ("user@intranet.lan", "identifier.direct.email"),
    ("mail me: o'neil+x@a-b.co.uk.", "identifier.direct.email"),
    ("reach bob at corp dot com", "identifier.direct.email"),
    ("call me at 555-0100", "identifier.direct.phone"),
    ("(212) 555-0100", "identifier.direct.phone"),
    ("+49 30 901820", "identifier.direct.phone"),
    ("fax: 212 555 0100", "identifier.direct.fax"),
    ("I moved to 12 Old Mill Lane", "identifier.direct.address"),
    ("Lindenstraße 7", "identifier.direct.address"),
    ("P.O. Box 1234", "identifier.direct.address"),
    ("PSC 1437, Box 3833", "identifier.direct.address"),
    ("host 10.1.2.3 is down", "identifier.direct.ip"),
    ("fe80::1ff:fe23:4567:890a", "identifier.direct.ip"),
    ("aa:bb:cc:dd:ee:ff", "identifier.direct.mac"),
    ("VIN 1M8GDM9AXKP042788", "identifier.direct.vehicle"),
    ("my username is jd_1984", "identifier.direct.username"),
    ("see linkedin.com/in/some-body", "identifier.direct.url_personal"),
    ("Springfield, IL 62704", "identifier.quasi.zip"),
    # government
    ("536-22-1234", "identifier.direct.gov_id.us_ssn"),
    ("536 22 1234", "identifier.direct.gov_id.us_ssn"),
    ("ssn 536221234", "identifier.direct.gov_id.us_ssn"),
    ('ssn: "536", "22", "1234"', "identifier.direct.gov_id.us_ssn"),
    ('{"ssn": ["536", "22", "1234"]}', "identifier.direct.gov_id.us_ssn"),
    ("536, 22,\n\n1234 is my SSN", "identifier.direct.gov_id.us_ssn"),
    ("social security: 53.6221234", "identifier.direct.gov_id.us_ssn"),
    ("ssn 536,221,234", "identifier.direct.gov_id.us_ssn"),
    ("SS# 536-22-1234", "identifier.direct.gov_id.us_ssn"),
    ("p a s s w o r d i s h u n t e r 2", "secret.password"),
    ("p a s s w o r d : t u l i p 9", "secret.password"),
    ("last four of my social is 1234", "identifier.direct.gov_id.us_ssn"),
    (
        "QQ 12 34 56 C is no nino but AB 12 34 56 C is",
        "identifier.direct.gov_id.uk_nino",
    ),
    ("passport number X1234567", "identifier.direct.passport"),
    ("driver's license: D123-4567", "identifier.direct.licence"),
    ("national id 1234567", "identifier.direct.gov_id.other"),
    ("RSSMRA85T10A562S", "identifier.direct.gov_id.it_cf"),
    # money
    ("2221000000000009", "financial.pan"),
    ("6304000000000000", "financial.pan"),
    ("4111 1111 1111 1111", "financial.pan"),
    ("4111-1111-1111-1111 thanks", "financial.pan"),
    ("3530 1113 3330 0000", "financial.pan"),
    ("5018 0000 0009 12/27", "financial.pan"),
    ('{"pan": ["4111", "1111", "1111", "1111"]}', "financial.pan"),
    ("4111\t\t\t\t1111\t\t\t\t1111\t\t\t\t1111", "financial.pan"),
    ("4111\n\n1111\n\n1111\n\n1111", "financial.pan"),
    ("4111/* */1111/* */1111/* */1111", "financial.pan"),
    ("12 34\n5678\n4111\n1111\n1111\n1111", "financial.pan"),
    ("GB82 WEST 1234 5698 7654 32", "financial.iban"),
    ("GB82 WEST 1234 5698 7654 33", "financial.iban"),
    ("cvv is 123", "financial.cvv"),
    ("account number 12345678", "financial.account"),
    ("routing number 021000021", "financial.aba"),
    ("my salary is $85,000", "financial.income"),
    ("credit score of 640", "financial.credit_score"),
    ("xxxx-xxxx-xxxx-1234", "financial.pan_masked"),
    # health
    ("MRN 00482913", "health.mrn"),
    ("mrn: A-48291", "health.mrn"),
    ("member id W1234 56", "health.plan_id"),
    ("medicare number 1EG4-TE5-MK73", "health.plan_id"),
    ("A1c of 9.2", "health.lab"),
    # attributes
    ("born March 3rd, 1982", "identifier.quasi.dob"),
    ("dob 12 May 1980", "identifier.quasi.dob"),
    ("DOB: 3/4/1980", "identifier.quasi.dob"),
    ("on March 3rd, 1982", "identifier.quasi.date"),
    ("a 93-year-old", "identifier.quasi.age90"),
    ("I am 45", "identifier.quasi.age"),
    # secrets
    ("my password is hunter2", "secret.password"),
    ("the wifi passcode: correcthorse", "secret.password"),
    ("password for the server is Tr0ub4dor&3", "secret.password"),
    ("p a s s w o r d is hunter2x", "secret.password"),
    ("my pin is 4821", "secret.password"),
    ("AKIAIOSFODNN7EXAMPLE", "secret.api_key"),
    ("sk-proj-abcdefghijklmnop1234", "secret.api_key"),
    ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "secret.api_key"),
    ("-----BEGIN OPENSSH PRIVATE KEY-----", "secret.private_key"),
    ("-----BEGIN PGP PRIVATE KEY BLOCK-----", "secret.private_key"),
    ("postgres://app:s3cret@db/prod", "secret.dsn"),
    ("redis://:s3cret@cache:6379", "secret.dsn"),
    ("Authorization: Bearer abcdef123456789", "secret.token"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "secret.token"),
    ("API_KEY=abcd1234efgh", "secret.api_key"),
    ("db --password=hunter2", "secret.password"),
    # law
    ("this is attorney-client privileged", "legal.privilege"),
    ("Case No. 1:20-cv-01234", "legal.docket"),
    ("Internal use only", "org.confidential"),
    ("ECCN 3A001", "export.eccn"),
    # ages and births
    ("a 34 year old man", "identifier.quasi.age"),
    ("34 y/o", "identifier.quasi.age"),
    ("(34F)", "identifier.quasi.age"),
    ("aged 93", "identifier.quasi.age90"),
    ("12 May 1980 is my date of birth? no: dob 1980", "identifier.quasi.dob"),
    # a mistyped card does not leave (F7)
    ("4111 1111 1111 1112", "financial.pan"),
    ("card no 411111111111112", "financial.pan"),
    ("4111111111111112", "uncertain.number_run"),
    # addresses and births as other countries write them
    ("Bahnhofstr. 7a", "identifier.direct.address"),
    ("Am Alten Markt 3", "identifier.direct.address"),
    ("Nørrebros Allé 8", "identifier.direct.address"),
    ("née le 1er avril 1975", "identifier.quasi.dob"),
    ("nata a Roma il 07/06/1969", "identifier.quasi.dob"),
    ("your date of birth. It's 11/3/1995", "identifier.quasi.dob"),
    ("a female beekeeper from Ohio", "identifier.quasi.gender"),
    ("a beekeeper from 62704, 47 years old", "identifier.quasi.zip"),
    ("född den 12/5 1980", "identifier.quasi.dob"),
    ("født 4. marts 1975", "identifier.quasi.dob"),
    ("office@dr-weber.example", "identifier.direct.email"),
    ("info@localhost", "identifier.direct.email"),
    ("anna@10.0.0.5", "identifier.direct.email"),
    ("anna@v2.example.org", "identifier.direct.email"),
    ("anna@latest.example", "identifier.direct.email"),
    ("infos@clinic.example", "identifier.direct.email"),
    ("github.com/jdoe is mine", "identifier.direct.url_personal"),
    ("45 top of the hill road", "identifier.direct.address"),
    # runs
    ("my number 12.34.567", "uncertain.number_run"),
    ("one two three four five six seven", "uncertain.number_run"),
    ("id_1_2_3_4_5_6_7", "uncertain.number_run"),
]
HARMLESS = [
    "between 1990-2000",
    "the seasons 2022/2023, 2023/2024 and 2024/2025",
    "in 2012, 2015, 2018",
    "a budget of 1,000,000 dollars",
    "pi is 3.14159265",
    "version 3.11.4 of Python",
    "the C4 model, S3 and EKS",
    "my password is not working",
    "why was my password rejected",
    "how do I reset my PIN?",
    "127.0.0.1 and 0.0.0.0",
    "meet at 12:30",
    "a table:\n1234\n5678\n",
    "def f(a, b): return a @ b",
    "git clone git@git.example:psf/requests.git",
    "report it to security@project.example or noreply@git.example",
    "see https://github.com/psf/requests for it",
    "pip install git+https://github.com/psf/requests.git@v2.32.0",
    "npm install lodash@4.17.21 react@latest, uses: actions/checkout@v4",
    "6 red tulips in a row and 10 copies of Wall Street Journal",
    "2 hours to drive there",
    "my password is valid",
]


@examples(("text", "data_class"), CAUGHT)
def test_own_detectors_find(text: str, data_class: str) -> None:
    (spans,) = scan([text], own())
    assert data_class in {span.data_class for span in spans}


@pytest.mark.parametrize("text", HARMLESS)
def test_own_patterns_leave_alone(text: str) -> None:
    (spans,) = scan([text], own())
    kept = ("identifier.direct.", "financial.", "secret.", "uncertain.number_run")
    assert [span for span in spans if span.data_class.startswith(kept)] == []


def test_every_rule_has_a_class_of_the_tree_and_a_name_of_its_own() -> None:
    assert [rule.id for rule in RULES if not is_class(rule.data_class)] == []
    assert len({rule.id for rule in RULES}) == len(RULES)


def test_a_pattern_drops_a_match_that_its_check_refutes() -> None:
    (rule,) = (each for each in PATTERNS if each.id == "pan")
    (reading,) = readings("4111 1111 1111 1112")
    assert list(PatternSet([rule]).find(reading)) == []


@pytest.mark.parametrize(
    "number",
    ["4111111111111111", "2221000000000009", "6304000000000000", "5018 0000 0009",
     "4000000000000000006", "378282246310005"],
)  # fmt: skip
def test_luhn_accepts_any_issuer(number: str) -> None:
    assert checks.luhn(number)


@pytest.mark.parametrize(
    "number", ["4111111111111112", "0000000000000000", "79927398713"]
)
def test_luhn_refuses(number: str) -> None:
    assert not checks.luhn(number)


def test_checksums_of_other_identifiers() -> None:
    assert checks.iban("GB82 WEST 1234 5698 7654 32")
    assert not checks.iban("GB82 WEST 1234 5698 7654 33")
    assert not checks.iban("GB82")
    assert checks.aba("021000021")
    assert not checks.aba("021000022")
    assert not checks.aba("1")
    assert checks.vin("1M8GDM9AXKP042788")
    assert not checks.vin("1M8GDM9A0KP042788")
    assert not checks.vin("1M8")
    assert checks.ssn("536-22-1234")
    assert not checks.ssn("666-22-1234")
    assert not checks.ssn("536-22")
    assert checks.ip_address("192.0.2.1")
    assert not checks.ip_address("999.1.1.1")
    assert not checks.ip_address("127.0.0.1")


@pytest.mark.parametrize(
    ("text", "data_class"),
    [(f"my number was {run} as my {word} has it", "uncertain.number_run")
     for run in ("53.6221234", "536,221,234") for word in ("SSN", "social security")],
)  # fmt: skip
def test_an_amount_near_an_ssn_is_not_harmless(text: str, data_class: str) -> None:
    (spans,) = scan([text], own())
    assert data_class in {span.data_class for span in spans}


@pytest.mark.parametrize("name", ["pan", "ssn-spread", "ssn-spread-before"])
@pytest.mark.parametrize(
    "pump", ["1 ", "1\n\n\n", "1.......", "ssn ", "ssn 1,", "12345 "]
)
def test_time_of_a_spread_number_is_linear(name: str, pump: str) -> None:
    (rule,) = (each for each in PATTERNS if each.id == name)
    detector = PatternSet([rule])

    def seconds(length: int) -> float:
        reading = next(readings((pump * length)[:length]))
        return seconds_of(lambda: list(detector.find(reading)))

    assert grows_at_most(seconds, lengths=(4000, 16000), factor=8)


def test_a_card_is_found_inside_any_run() -> None:
    assert checks.pan("12 3456 4111 1111 1111 1111 12 34 56 78")
    assert not checks.pan("12 3456 4111 1111 1111 1112")
    assert not checks.pan("1 " * 5000)


JOINT = "\x1e"


@pytest.mark.parametrize(
    "text",
    [
        f"what happened in 2024{JOINT}2025 will tell",
        f"sales of 2024{JOINT}1500 words, please",
        f"in a list of 12{JOINT}2019 was better",
        "2024, 2025, 2026",
        "1998 - 2004",
    ],
)
def test_years_next_to_numbers_of_the_next_text_are_no_run(text: str) -> None:
    (spans,) = scan([text], own())
    assert "uncertain.number_run" not in {span.data_class for span in spans}


@pytest.mark.parametrize(
    "text",
    [
        f"my ssn starts 536{JOINT}22{JOINT}1234 it ends",
        f"4111 1111{JOINT}1111 1111",
        f"212 555{JOINT}0100",
        "20241986 1",
        "2024 1234567",
    ],
)
def test_a_number_split_over_texts_is_a_run(text: str) -> None:
    (spans,) = scan([text], own())
    assert "uncertain.number_run" in {span.data_class for span in spans}


def test_a_truncated_card_number_is_no_card_number() -> None:
    for text in ("411111******1111", "card 411111******1111", "4111 11** **** 1111"):
        (spans,) = scan([text], own())
        found = {span.data_class for span in spans}
        assert "financial.pan_masked" in found
        assert not found & {"financial.pan", "uncertain.number_run"}


def test_harmless_run_is_no_number_of_seven_digits_in_a_row() -> None:
    assert not re.fullmatch(HARMLESS_RUN, "20242025")
    assert re.fullmatch(HARMLESS_RUN, "2024 2025")
