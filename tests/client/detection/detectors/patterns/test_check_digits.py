import string
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.detection.detectors.patterns import check_digits as checks

DIGITS = st.text(string.digits, min_size=11, max_size=18)
WEIGHTS = (8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2)


def with_last(body: str, check: Callable[[str], bool], signs: str) -> str:
    """Return the text with the one last sign that the check accepts."""
    found = [body + sign for sign in signs if check(body + sign)]
    assert len(found) == 1
    return found[0]


def changed(text: str, at: int, by: int) -> str:
    place = at % len(text)
    return text[:place] + str((int(text[place]) + by) % 10) + text[place + 1 :]


SINGLE = [checks.luhn_of, checks.verhoeff, checks.mod11_10]


@pytest.mark.parametrize("check", SINGLE, ids=[each.__name__ for each in SINGLE])
@given(body=DIGITS, at=st.integers(0, 18), by=st.integers(1, 9))
def test_any_one_wrong_digit_is_found(
    check: Callable[[str], bool], body: str, at: int, by: int
) -> None:
    if len(set(body)) == 1:
        return
    number = with_last(body, check, string.digits)
    assert not check(changed(number, at, by))


@given(body=DIGITS, at=st.integers(0, 16))
def test_verhoeff_finds_any_swap_of_neighbours(body: str, at: int) -> None:
    if len(set(body)) == 1:
        return
    number = with_last(body, checks.verhoeff, string.digits)
    place = at % (len(number) - 1)
    one, two = number[place], number[place + 1]
    if one != two:
        swapped = number[:place] + two + one + number[place + 2 :]
        assert not checks.verhoeff(swapped)


@given(body=st.text(string.digits, min_size=15, max_size=15))
def test_mod11_2_has_one_last_sign(body: str) -> None:
    number = with_last(body, checks.mod11_2, string.digits + "X")
    assert not checks.mod11_2(changed(number[:-1], 3, 1) + number[-1])


@given(bank=st.from_regex(r"[0-9]{6}[A-Z0-9]{6,20}", fullmatch=True))
def test_iban_is_made_as_the_standard_says(bank: str) -> None:
    moved = "".join(str(string.digits.find(c)) if c in string.digits
                    else str(10 + string.ascii_uppercase.find(c))
                    for c in f"{bank}DE00")  # fmt: skip
    iban = f"DE{98 - int(moved) % 97:02}{bank}"
    assert checks.iban(iban)
    assert checks.iban_first(f"{iban} and more")
    assert not checks.iban(f"DE{(int(iban[2:4]) + 1) % 100:02}{bank}")


@given(body=st.text("ABCDEFGHJKLMNPRSTUVWXYZ0123456789", min_size=17, max_size=17))
def test_vin_is_made_as_the_regulation_says(body: str) -> None:
    values = dict(zip("ABCDEFGHJKLMNPRSTUVWXYZ0123456789",
                      [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 7, 9, 2, 3, 4, 5, 6, 7, 8,
                       9, *range(10)], strict=True))  # fmt: skip
    rest = sum(values[c] * w for c, w in zip(body, WEIGHTS, strict=True)) % 11
    made = body[:8] + ("X" if rest == 10 else str(rest)) + body[9:]
    assert checks.vin(made)
    assert not checks.vin(made[:8] + ("0" if made[8] != "0" else "1") + made[9:])


@given(body=st.text(string.digits, min_size=8, max_size=8))
def test_aba_has_one_last_digit(body: str) -> None:
    if set(body) != {"0"}:
        number = with_last(body, checks.aba, string.digits)
        assert not checks.aba(changed(number, 0, 1))


@given(body=st.text(string.digits, min_size=14, max_size=14))
def test_imei_has_one_last_digit(body: str) -> None:
    if len(set(body)) > 1:
        number = with_last(body, checks.imei, string.digits)
        assert not checks.imei(changed(number, 5, 1))


@given(body=st.text(string.digits, min_size=9, max_size=9))
def test_npi_has_one_last_digit(body: str) -> None:
    assert not checks.npi(changed(with_last(body, checks.npi, string.digits), 2, 3))


@given(body=st.text(string.digits, min_size=6, max_size=6))
def test_dea_last_digit_is_that_of_its_sum(body: str) -> None:
    if set(body) != {"0"}:
        a, b, c, d, e, f = map(int, body)
        last = (a + c + e + 2 * (b + d + f)) % 10
        assert checks.dea(f"AB{body}{last}")
        assert not checks.dea(f"AB{body}{(last + 1) % 10}")


def test_isin_and_swift() -> None:
    assert checks.isin("US0378331005")
    assert not checks.isin("US0378331006")
    assert not checks.isin("0378331005")
    assert checks.swift("DEUTDEFF500")
    assert not checks.swift("TRANSFER")
    assert not checks.swift("DEUTDEFF50")


@pytest.mark.parametrize("name", sorted(checks.NAMED))
@given(text=st.text(max_size=40))
def test_named_check_answers_about_any_text(name: str, text: str) -> None:
    assert checks.NAMED[name](text) in {True, False}


@pytest.mark.parametrize("name", sorted(checks.NAMED))
def test_named_check_refuses_what_is_no_number(name: str) -> None:
    for text in ("", "0", "00000000", "letters only", "-", "²²²²²²²²²"):
        assert not checks.NAMED[name](text)


@pytest.mark.parametrize(
    ("text", "series"),
    [
        ("10 20 30 40 50 60 70 80 90 100", True),
        ("50 40 30 20 10", True),
        ("2 4 8 16 32 64", True),
        ("10 20 30 40", False),  # as few groups as a card has
        ("10 20 30 40 51", False),
        ("1 2 3 4 5 6", False),  # digit by digit
        ("01 02 03 04 05", False),  # a telephone number in France
        ("11 11 11 11 11", False),
    ],
)
def test_a_series_is_no_number(text: str, *, series: bool) -> None:
    assert checks.is_series(text.split()) is series


def test_a_series_that_passes_luhn_is_no_card() -> None:
    assert not checks.pan("10 20 30 40 50 60 70 80 90 100")
    assert checks.pan("4111 1111 1111 1111")
