"""Numbers of states: each made by a generator of its own, then spoilt.

The generators are written from the rules of the issuing states, in another way
than the checks: they try every check digit with a formula of their own.
"""

import string
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.client.detection.detectors.patterns import (
    national_check_digits as national,
)
from curtilage.client.detection.detectors.patterns.government_ids import IDENTITY
from curtilage.client.detection.detectors.patterns.matcher import PatternSet
from curtilage.client.detection.detectors.readings import Reading
from curtilage.policy.decision.findings import Normalization
from support.examples import examples

GOV = "identifier.direct.gov_id."
PATTERNS = PatternSet(IDENTITY)
RULES = {rule.id: rule for rule in IDENTITY}


def digit_sum(digits: str, weights: list[int]) -> int:
    total = 0
    for at in range(len(weights)):
        total += int(digits[at]) * weights[at]
    return total


def fr(serial: int) -> str:
    body = f"1{serial % 100:02}05{1 + serial % 95:02}{serial % 990:03}{serial % 999:03}"
    return body + f"{97 - (int(body) % 97):02}"


def nl(serial: int) -> str:
    for number in range(100000000 + serial * 11, 999999999):
        text = str(number)
        if (digit_sum(text, [9, 8, 7, 6, 5, 4, 3, 2]) - int(text[8])) % 11 == 0:
            return text
    raise AssertionError


def be(serial: int) -> str:
    body = f"{serial % 100:02}0712{serial % 998 + 1:03}"
    return body + f"{97 - int(body) % 97:02}"


def pt(serial: int) -> str:
    body = f"2{serial % 10_000_000:07}"
    rest = 11 - digit_sum(body, [9, 8, 7, 6, 5, 4, 3, 2]) % 11
    return body + str(0 if rest > 9 else rest)


def ie(serial: int) -> str:
    body = f"{serial % 10_000_000:07}"
    value = digit_sum(body, [8, 7, 6, 5, 4, 3, 2]) % 23
    return body + ("W" if value == 0 else string.ascii_uppercase[value - 1])


def dk(serial: int) -> str:
    for tail in range(serial % 5000, 10000):
        text = f"110785{tail:04}"
        if digit_sum(text, [4, 3, 2, 7, 6, 5, 4, 3, 2, 1]) % 11 == 0:
            return f"{text[:6]}-{text[6:]}"
    raise AssertionError


def cz(serial: int) -> str:
    for tail in range(serial % 5000, 10000):
        text = f"855712{tail:04}"
        if int(text) % 11 == 0:
            return f"{text[:6]}/{text[6:]}"
    raise AssertionError


def ro(serial: int) -> str:
    body = f"1850712{40:02}{serial % 999:03}"
    rest = digit_sum(body, [2, 7, 9, 1, 4, 6, 3, 5, 8, 2, 7, 9]) % 11
    return body + ("1" if rest == 10 else str(rest))


def at(serial: int) -> str:
    for number in range(100 + serial % 800, 1000):
        head, date = str(number), "120785"
        check = digit_sum(head + date, [3, 7, 9, 5, 8, 4, 2, 1, 6]) % 11
        if check < 10:
            return f"{head}{check} {date}"
    raise AssertionError


def luhn_digit(body: str) -> str:
    doubled = [int(d) * (2 if (len(body) - at) % 2 else 1) for at, d in enumerate(body)]
    return str(-sum(n - 9 if n > 9 else n for n in doubled) % 10)


def gr_amka(serial: int) -> str:
    body = f"120785{serial % 10000:04}"
    return body + luhn_digit(body)


def gr_afm(serial: int) -> str:
    body = f"{serial % 90_000_000 + 1_000_000:08}"
    return body + str(digit_sum(body, [256, 128, 64, 32, 16, 8, 4, 2]) % 11 % 10)


def hu(serial: int) -> str:
    body = f"{serial % 90_000_000 + 1_000_000:08}"
    return body + str(digit_sum(body, [3, 7, 3, 7, 3, 7, 3, 7]) % 10)


def bg(serial: int) -> str:
    body = f"850712{serial % 1000:03}"
    return body + str(digit_sum(body, [2, 4, 8, 5, 10, 9, 7, 3, 6]) % 11 % 10)


def hr(serial: int) -> str:
    body, product = f"{serial % 9_000_000_000 + 10**9:010}", 10
    for char in body:
        total = (int(char) + product) % 10
        product = 2 * (10 if total == 0 else total) % 11
    return body + str((11 - product) % 10)


def baltic(serial: int) -> str:
    body = f"3850712{serial % 1000:03}"
    rest = digit_sum(body, [1, 2, 3, 4, 5, 6, 7, 8, 9, 1]) % 11
    if rest == 10:
        rest = digit_sum(body, [3, 4, 5, 6, 7, 8, 9, 1, 2, 3]) % 11
    return body + str(0 if rest == 10 else rest)


def lv(serial: int) -> str:
    body = f"1207851{serial % 1000:03}"
    check = (1101 - digit_sum(body, [1, 6, 3, 7, 9, 10, 5, 8, 4, 2])) % 11 % 10
    return f"{body[:6]}-{body[6:]}{check}"


def si(serial: int) -> str:
    for number in range(serial % 500, 1000):
        body = f"120798550{number:03}"
        rest = digit_sum(body, [7, 6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2]) % 11
        if rest != 1:
            return body + str(0 if rest == 0 else 11 - rest)
    raise AssertionError


def no(serial: int) -> str:
    for number in range(serial % 500, 1000):
        body = f"120785{number:03}"
        one = -digit_sum(body, [3, 7, 6, 1, 8, 9, 4, 5, 2]) % 11
        two = -digit_sum(body + str(one % 10), [5, 4, 3, 2, 7, 6, 5, 4, 3, 2]) % 11
        if one < 10 and two < 10:
            return f"{body}{one}{two}"
    raise AssertionError


def ch(serial: int) -> str:
    body = f"756{serial % 10**9:09}"
    return body + str(-digit_sum(body, [1, 3] * 6) % 10)


def br(serial: int) -> str:
    body = f"{serial % 10**8 + 10**8:09}"
    for first in (10, 11):
        rest = digit_sum(body, list(range(first, 1, -1))) % 11
        body += str(0 if rest < 2 else 11 - rest)
    return f"{body[:3]}.{body[3:6]}.{body[6:9]}-{body[9:]}"


def cn(serial: int) -> str:
    body = f"110105194912{serial % 28 + 1:02}{serial % 1000:03}"
    weights = [7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2]
    return body + "10X98765432"[digit_sum(body, weights) % 11]


def mx(serial: int) -> str:
    body = f"BOXW850712HNERX{string.ascii_uppercase[serial % 26]}0"
    order = "0123456789ABCDEFGHIJKLMN\u00d1OPQRSTUVWXYZ"
    total = sum(order.find(body[at]) * (18 - at) for at in range(17))
    return body + str((10 - total % 10) % 10)


def il(serial: int) -> str:
    body = f"{serial % 90_000_000 + 10**7:08}"
    return body + luhn_digit(body)


def jp(serial: int) -> str:
    body = f"{serial % 10**10 + 10**10:011}"
    rest = digit_sum(body[::-1], [2, 3, 4, 5, 6, 7, 2, 3, 4, 5, 6]) % 11
    return body + str(0 if rest <= 1 else 11 - rest)


def nz(serial: int) -> str:
    for number in range(4_900_000 + serial % 10_000, 9_999_999):
        body = f"0{number:07}"
        rest = digit_sum(body, [3, 2, 7, 6, 5, 4, 3, 2]) % 11
        if rest != 1:
            return f"{body[1:]}{0 if rest == 0 else 11 - rest}"
    raise AssertionError


def aadhaar(serial: int) -> str:
    # Verhoeff by its permutation and the group of the pentagon's symmetries.
    def product(a: int, b: int) -> int:
        turn = a % 5 + (b % 5 if a < 5 else -(b % 5))
        return turn % 5 + (0 if (a < 5) == (b < 5) else 5)

    def step(digit: int, times: int) -> int:
        for _ in range(times % 8):
            digit = (1, 5, 7, 6, 2, 8, 3, 0, 9, 4)[digit]
        return digit

    body = f"{serial % 10**9 + 2 * 10**10:011}"
    for last in "0123456789":
        check = 0
        for at_, char in enumerate(reversed(body + last)):
            check = product(check, step(int(char), at_))
        if check == 0:
            return body + last
    raise AssertionError


def nhs(serial: int) -> str:
    for number in range(400_000_000 + serial, 999_999_999):
        check = 11 - digit_sum(str(number), [10, 9, 8, 7, 6, 5, 4, 3, 2]) % 11
        if check != 10:
            return f"{number}{check % 11}"
    raise AssertionError


def de_tax(serial: int) -> str:
    return hr(serial + 10**9)


def letter(number: str) -> str:
    return number + "TRWAGMYFPDXBNJZSQVHLCKE"[int(number) % 23]


def es(serial: int) -> str:
    return letter(f"{serial % 10**8 + 10**7:08}")


def es_foreign(serial: int) -> str:
    return "Y" + letter(f"1{serial % 10**7:07}")[1:]


def italian(serial: int) -> str:
    body = f"RSSMRA85L12H{serial % 1000:03}"
    odd = dict(zip("0123456789", (1, 0, 5, 7, 9, 13, 15, 17, 19, 21), strict=True))
    table = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16)
    odd |= dict(zip(string.ascii_uppercase, (*table, 10, 22, 25, 24, 23), strict=True))
    total = sum(odd[char] for char in body[::2])
    total += sum(int(c) if c.isdigit() else ord(c) - 65 for c in body[1::2])
    return body + string.ascii_uppercase[total % 26]


def portuguese(serial: int) -> str:
    body = f"{serial % 10**8 + 10**7:08}4ZZ"
    values = [int(char, 36) for char in body]
    doubled = [2 * n - 9 if n > 4 else 2 * n for n in values[::-1][::2]]
    return body + str(-(sum(doubled) + sum(values[::-1][1::2])) % 10)


def polish(serial: int) -> str:
    body = f"850712{serial % 10**4:04}"
    return body + str(-digit_sum(body, [1, 3, 7, 9, 1, 3, 7, 9, 1, 3]) % 10)


def swedish(serial: int) -> str:
    body = f"850712{serial % 1000:03}"
    return f"{body[:6]}-{body[6:]}{luhn_digit(body)}"


def finnish(serial: int) -> str:
    body = f"120785{serial % 898 + 2:03}"
    last = "0123456789ABCDEFHJKLMNPRSTUVWXY"[int(body) % 31]
    return f"{body[:6]}-{body[6:]}{last}"


def canadian(serial: int) -> str:
    body = f"{serial % 10**7 + 10**7:08}"
    return body + luhn_digit(body)


def australian(serial: int) -> str:
    for number in range(100_000_000 + serial * 11, 999_999_999):
        if digit_sum(str(number), [1, 4, 3, 7, 5, 8, 6, 9, 10]) % 11 == 0:
            return str(number)
    raise AssertionError


def insured(serial: int) -> str:
    body = f"{serial % 10**8:08}"
    digits = [0, 1, *map(int, body)]
    sums = [n * (1, 2)[at % 2] for at, n in enumerate(digits)]
    return "A" + body + str(sum(n // 10 + n % 10 for n in sums) % 10)


def pension(serial: int) -> str:
    body, tail = "65120785", f"{serial % 100:02}"
    digits = [*map(int, body), 0, 1, *map(int, tail)]
    weights = (2, 1, 2, 5, 7, 1, 2, 1, 2, 1, 2, 1)
    sums = [n * w for n, w in zip(digits, weights, strict=True)]
    return f"{body}A{tail}{sum(n // 10 + n % 10 for n in sums) % 10}"


# rule, generator, check, labels, whether any one wrong digit is always found
NUMBERS: list[
    tuple[str, Callable[[int], str], Callable[[str], bool], tuple[str, ...], bool]
] = [
    ("fr-nir", fr, national.fr_nir, ("NIR", "numéro de sécurité sociale :"), True),
    ("nl-bsn", nl, national.nl_bsn, ("BSN", "my burgerservicenummer is"), True),
    ("be-nrn", be, national.be_nrn, ("rijksregisternummer", "numéro national:"), False),
    ("pt-nif", pt, national.pt_nif, ("NIF", "contribuinte n.º"), False),
    ("ie-pps", ie, national.ie_pps, ("PPS number", "PPSN:"), True),
    ("dk-cpr", dk, national.dk_cpr, ("CPR", "personnummer:"), False),
    ("cz-rc", cz, national.cz_rc, ("rodné číslo", "birth number"), False),
    ("sk-rc", cz, national.cz_rc, ("slovenské rodné číslo", "Slovak birth number"),
        False),
    ("ro-cnp", ro, national.ro_cnp, ("CNP", "cod numeric personal:"), False),
    ("at-svnr", at, national.at_svnr, ("SVNR", "Sozialversicherungsnummer"), False),
    ("gr-amka", gr_amka, national.gr_amka, ("AMKA", "\u0391\u039c\u039a\u0391:"), True),
    ("gr-afm", gr_afm, national.gr_afm, ("AFM", "\u0391\u03a6\u039c"), False),
    ("hu-taj", hu, national.hu_taj, ("TAJ", "TAJ szám:"), True),
    ("bg-egn", bg, national.bg_egn, ("EGN", "ЕГН:"), False),
    ("hr-oib", hr, national.hr_oib, ("OIB", "osobni identifikacijski broj:"), True),
    ("ee-ik", baltic, national.baltic, ("isikukood", "Estonian ID code:"), False),
    ("lt-ak", baltic, national.baltic, ("asmens kodas", "Lithuanian personal code"),
        False),
    ("lv-pk", lv, national.lv_pk, ("personas kods", "Latvian ID code"), False),
    ("si-emso", si, national.si_emso, ("EMŠO", "JMBG:"), True),
    ("no-fnr", no, national.no_fnr, ("fødselsnummer", "fnr:"), True),
    ("ch-ahv", ch, national.ch_ahv, ("AHV-Nr", "AVS"), True),
    ("br-cpf", br, national.br_cpf, ("CPF", "cadastro de pessoas físicas"), False),
    ("cn-ric", cn, national.cn_ric, ("身份证号", "resident identity card"), True),
    ("mx-curp", mx, national.mx_curp, ("CURP", "clave única de registro"), False),
    ("il-tz", il, national.il_tz, ("teudat zehut", "Israeli ID"), True),
    ("jp-my-number", jp, national.jp_my_number, ("My Number", "マイナンバー"), False),
    ("nz-ird", nz, national.nz_ird, ("IRD", "inland revenue no"), False),
    ("in-aadhaar", aadhaar, RULES["in-aadhaar"].check or bool, ("Aadhaar", "UIDAI"),
        True),
    ("uk-nhs", nhs, national.uk_nhs, ("NHS number", "NHS no."), True),
    ("de-tax-id", de_tax, national.de_idnr, ("Steuer-ID", "IdNr.:"), True),
    ("de-svnr", pension, national.de_svnr, ("Sozialversicherungsnummer", "SV-Nummer"),
        False),
    ("de-kvnr", insured, national.de_kvnr, ("Versichertennummer", "KVNR:"), True),
    ("es-nif", es, national.es_nif, ("DNI", "documento nacional de identidad:"), True),
    ("es-nie", es_foreign, national.es_nif, ("NIE", "número de extranjero:"), True),
    ("it-cf", italian, national.it_cf, ("codice fiscale", "CF:"), False),
    ("pt-cc", portuguese, national.pt_cc, ("cartão de cidadão", "CC:"), True),
    ("pl-pesel", polish, national.pl_pesel, ("PESEL", "nr PESEL:"), True),
    ("se-pnr", swedish, national.se_pnr, ("personnummer", "pnr"), True),
    ("fi-hetu", finnish, national.fi_hetu, ("henkilötunnus", "hetu:"), True),
    ("ca-sin", canadian, national.ca_sin, ("SIN:", "social insurance number"), True),
    ("au-tfn", australian, national.au_tfn, ("TFN", "tax file number:"), True),
]  # fmt: skip
IDS = [name for name, *_ in NUMBERS]
EXACT = [(make, check, exact) for _, make, check, _, exact in NUMBERS]
BARE = {rule.id.removesuffix("-bare") for rule in IDENTITY if rule.id.endswith("-bare")}


def found(text: str) -> dict[str, bool]:
    spans = PATTERNS.find(Reading(normalization=Normalization.RAW, text=text))
    return {span.detector: span.validated for span in spans}


def wrong(number: str, at_: int = -1) -> str:
    """Return the number with one digit changed."""
    places = [place for place, char in enumerate(number) if char.isdecimal()]
    place = places[at_]
    return number[:place] + str((int(number[place]) + 1) % 10) + number[place + 1 :]


@examples(("rule", "make", "check", "labels"), [each[:4] for each in NUMBERS])
def test_labelled_number_is_found_and_confirmed(
    rule: str,
    make: Callable[[int], str],
    check: Callable[[str], bool],
    labels: tuple[str, ...],
) -> None:
    for serial, label in zip((7, 123_457, 98_765), (*labels, labels[0]), strict=True):
        number = make(serial)
        assert check(number)
        assert found(f"here: {label} {number}, thanks")[rule]


@examples(("rule", "make", "check", "labels"), [each[:4] for each in NUMBERS])
def test_mistyped_number_behind_its_label_is_found_but_not_confirmed(
    rule: str,
    make: Callable[[int], str],
    check: Callable[[str], bool],
    labels: tuple[str, ...],
) -> None:
    number = next(
        bad
        for serial in range(50)
        if not check(bad := wrong(make(serial))) and not bad.endswith("X")
    )
    assert found(f"{labels[0]}: {number}")[rule] is False


@examples("rule", IDS)
def test_label_without_a_number_is_nothing(rule: str) -> None:
    label = next(labels[0] for name, _, _, labels, _ in NUMBERS if name == rule)
    assert rule not in found(f"what does {label} stand for?")
    assert rule not in found(f"where do I find the {label} on page 12?")
    assert rule not in found(f"the {label} has a check digit")


@pytest.mark.parametrize("rule", sorted(BARE & set(IDS)))
def test_bare_number_is_found_only_with_its_check(rule: str) -> None:
    make, check = next(
        (make, check) for name, make, check, _, _ in NUMBERS if name == rule
    )
    name = f"{rule}-bare"
    numbers = [make(serial) for serial in (7, 123_457, 98_765)]
    assert [found(f"it is {number} here").get(name) for number in numbers] == [True] * 3
    bad = [wrong(make(serial)) for serial in range(9)]
    refuted = [number for number in bad if not check(number)]
    assert len(refuted) >= 3
    assert not any(found(f"it is {number} here").get(name) for number in refuted)
    number = make(7)
    inside = [f"v{number}", f"{number}-7", f"1.{number}"]
    assert not any(found(text).get(name) for text in inside)


@pytest.mark.parametrize(("make", "check", "exact"), EXACT, ids=IDS)
@settings(deadline=None, max_examples=25)
@given(drawn=st.tuples(st.integers(0, 10**6), st.integers(0, 30)))
def test_check_finds_a_wrong_digit_where_it_promises_to(
    make: Callable[[int], str],
    check: Callable[[str], bool],
    exact: bool,
    drawn: tuple[int, int],
) -> None:
    serial, place = drawn
    number = make(serial)
    assert check(number)
    digits = sum(char.isdecimal() for char in number)
    if exact:
        assert not check(wrong(number, place % digits))


CHECKS = sorted(
    {check for _, _, check, _, _ in NUMBERS}, key=lambda each: each.__name__
)


@pytest.mark.parametrize("check", CHECKS, ids=[each.__name__ for each in CHECKS])
@given(text=st.text(max_size=24))
def test_check_answers_about_any_text(check: Callable[[str], bool], text: str) -> None:
    assert check(text) in {True, False}


@examples("check", CHECKS)
def test_check_refuses_what_is_no_number(check: Callable[[str], bool]) -> None:
    for text in ("", "0", "1" * 40, "0" * 9, "0" * 11, "0" * 13, "letters"):
        assert not check(text)


DATED = ("be-nrn", "dk-cpr", "cz-rc", "ro-cnp", "bg-egn", "ee-ik", "si-emso", "no-fnr")


@pytest.mark.parametrize("rule", DATED)
def test_check_wants_a_date_that_exists(rule: str) -> None:
    make, check = next((m, c) for name, m, c, _, _ in NUMBERS if name == rule)
    digits = "".join(char for char in make(5) if char.isdecimal())
    # No scheme of month shifts makes a month of 99.
    at_ = 3 if rule in {"ro-cnp", "ee-ik"} else 2
    spoilt = digits[:at_] + "99" + digits[at_ + 2 :]
    tails = (spoilt[:-2] + f"{tail:02}" for tail in range(100))
    assert not any(check(text) for text in tails)


def test_women_of_prague_and_men_of_the_thirties() -> None:
    assert national.cz_rc("710319/2745")
    assert not national.cz_rc("711319/2745")


def test_belgians_of_this_century_have_another_key() -> None:
    body = "050712123"
    key = 97 - int("2" + body) % 97
    assert national.be_nrn(f"{body}{key:02}")
    assert not national.be_nrn(f"{body}{(key + 1) % 97:02}")


def test_corsica_counts_as_nineteen_and_eighteen() -> None:
    for letters, number in (("2A", "19"), ("2B", "18")):
        body = int(f"17805{number}123456")
        assert national.fr_nir(f"1 78 05 {letters} 123 456 {97 - body % 97:02}")


def test_irish_second_letter_counts_nine_times() -> None:
    body = "1234567"
    total = digit_sum(body, [8, 7, 6, 5, 4, 3, 2]) + 9
    letter = "WABCDEFGHIJKLMNOPQRSTUV"[total % 23]
    assert national.ie_pps(f"{body}{letter}A")
    assert not national.ie_pps(f"{body}{letter}B")


SSN = [
    "536-22-1234", "SS# 536-22-1234", "ssn 536221234", "536 22 1234",
    "social security number is 536 22 1234", "last four of my ssn: 1234",
]  # fmt: skip
NO_SSN = ["666-22-1234", "000-22-1234", "900-22-1234", "536-00-1234", "536-22-0000",
          "a 1536-22-12345 part"]  # fmt: skip


@pytest.mark.parametrize("text", SSN)
def test_social_security_number_is_found(text: str) -> None:
    assert any(name.startswith("ssn") for name in found(text))


@pytest.mark.parametrize("text", NO_SSN)
def test_what_was_never_issued_is_no_bare_social_security_number(text: str) -> None:
    assert "ssn-grouped" not in found(text)


DOCUMENTS = {
    "passport": [
        "passport number X1234567", "Reisepass C01X00T47",
        "numéro de passeport 12AB34567",
    ],
    "driving-licence": [
        "driver's license: D123-4567", "Führerschein B072RRE2I55", "dl# S5300000",
        "medical license: A-12345",
    ],
    "official-number": [
        "national id 1234567", "my Personalausweis: L01X00T47", "tax id no 12-3456789",
    ],
    "itin": ["ITIN 912-70-1234", "itin: 912701234", "my ITIN is 999 88 1234"],
    "nino": ["AB 12 34 56 C", "nino AB123456C", "it is ab123456d ok"],
    "uk-nino": ["NI number LW-61-09-09-D", "NINO: LW 61 09 09, D"],
    "in-pan": ["ABCPD1234E", "PAN ABCPD1234E", "is AAAPL1234C valid?",
               "ABCPD 1234 E"],
    "fiscal-code": ["RSSMRA85T10A562S", "codice fiscale RSSMRA85T10A562S",
                    "cf: rssmra85t10a562s"],
    "ng-nin": ["NIN 12345678901", "BVN: 22334455667", "my NIN is 1234 567 8901"],
}  # fmt: skip
NO_DOCUMENTS = [
    "passport renewal takes 6 weeks", "is a driver's license needed?",
    "my license expires in May", "national parks in 12 states", "tax code of 1986",
    "QQ 12 34 56 C", "at 10:20:30 a train",
    "AT-10-20 30-A", "ABCXD1234E", "RSSMRA85T10A562", "pan 12345", "nin is a band",
]  # fmt: skip


@examples(
    ("rule", "text"),
    [(rule, text) for rule, texts in DOCUMENTS.items() for text in texts],
)
def test_document_is_found(rule: str, text: str) -> None:
    assert rule in found(text)


def test_a_finnish_number_of_this_century_is_found_with_spaces() -> None:
    last = "0123456789ABCDEFHJKLMNPRSTUVWXY"[280408094 % 31]
    assert found(f"it is 280408 A 094{last} here")["fi-hetu-bare"]


@pytest.mark.parametrize("text", NO_DOCUMENTS)
def test_talk_of_documents_is_none(text: str) -> None:
    assert found(text) == {}


def test_every_rule_of_identity_is_tried_here() -> None:
    tried = {*IDS, *(f"{rule}-bare" for rule in BARE), *DOCUMENTS}
    ssn = {"ssn-grouped", "ssn-spread", "ssn-spread-before", "ssn-labelled"}
    assert set(RULES) - tried == ssn


def test_classes_follow_the_countries() -> None:
    for name in IDS:
        if name not in {"gr-afm", "de-kvnr", "pt-cc"}:
            assert RULES[name].data_class == GOV + name.replace("-", "_")
