"""Check digits and checksums of identifiers; pure arithmetic.

Every function takes the matched text and returns whether the check holds. A check that
holds makes a finding certain; a failing one removes nothing that another detector
found.

The arithmetic is python-stdnum's if it has a pure function for it. Luhn is ours, since
``pan`` needs the sums of all prefixes of a run, and so is ISIN's: the library accepts a
letter as the check digit. Its ``is_valid`` is not used, since it depends on the current
date and on lists of issued numbers.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from types import MappingProxyType

from stdnum import verhoeff as dihedral
from stdnum.iso7064 import mod_11_2, mod_11_10, mod_97_10
from stdnum.us import rtn

_GROUP = re.compile(r"\d+")
_PAN_DIGITS = range(12, 20)
_PAN_FIRST = frozenset("23456")  # ISO/IEC 7812-1: of card issuers
# The groups printed on cards, and their halves.
_PAN_GROUPS = frozenset(
    {(4, 4, 4, 4), (4, 4, 4, 4, 3), (4, 6, 5), (4, 6, 4), (8, 8), (4, 4, 4, 1)}
    | {(6, 10), (6, 13), (4, 4, 8), (8, 4, 4), (4, 8, 4), (4, 12), (12, 4), (6, 6, 4)}
)
_PAN_DICTATED = frozenset({14, 15, 16, 19})  # numbers dictated digit by digit
_LEAST_SERIES = 5  # groups; a card is printed in four
# Separators inside a number, which may also be at a line's end.
_JOINED = re.compile(
    "(?:[^\\w,;|\t=<>^%$\u20ac\u00a3\u00a5\u20b9*\u00d7\u00f7+]|_){1,3}"
)
YEAR = r"(?:19|20)\d\d"
_DAY = r"(?:0?[1-9]|[12]\d|3[01])"
TIME = r"(?:[01]?\d|2[0-4]):[0-5]\d(?::[0-5]\d(?:[.,]\d{1,9})?)?"
# A date in one of the usual orders, and a time after it.
MOMENT = (
    rf"(?:{_DAY}(?P<a>[./\-]){_DAY}(?P=a){YEAR}|{YEAR}(?P<b>[./\-])"
    rf"(?:0?[1-9]|1[0-2])(?P=b){_DAY})(?:[ ,T]{{1,2}}{TIME})?(?![._\-/:]?\d)"
)
_MOMENT = re.compile(rf"(?<![\d./\-]){MOMENT}")
_VIN_CHARS = 17
_VIN_WEIGHTS = (8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2)
_VIN_VALUES = dict(
    zip(
        "ABCDEFGHJKLMNPRSTUVWXYZ",
        (*range(1, 9), *range(1, 6), 7, 9, *range(2, 10)),
        strict=True,
    )
)
_ABA_DIGITS = 9
_IBAN_CHARS = range(15, 35)
_IBAN_DIGITS = 7  # Malta's has the fewest
_MAX_CHARS = 512
_SSN_DIGITS = 9
_IMEI_DIGITS = 15
_NPI_DIGITS = 10
_DEA_DIGITS = 7
_ISIN_CHARS = 12
_SWIFT_CHARS = (8, 11)
# ISO 3166-1, and XK, which SWIFT uses.
_COUNTRIES = frozenset(
    re.findall(
        "[A-Z]{2}",
        """
AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO
BQ BR BS BT BV BW BY BZ CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ
DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO FR GA GB GD GE GF GG GH GI GL GM GN GP
GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE JM JO JP KE KG
KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML
MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE
PF PG PH PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL
SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG UM
US UY UZ VA VC VE VG VI VN VU WF WS XK YE YT ZA ZM ZW
""",
    )
)


def digits_of(text: str) -> str:
    """Return the decimal digits of a text, of any script, as ASCII."""
    return "".join(str(int(char)) for char in text if char.isdecimal())


def luhn(text: str) -> bool:
    """Return whether 12 to 19 digits satisfy the Luhn formula (ISO/IEC 7812-1)."""
    digits = digits_of(text)
    # Zeros alone satisfy it, but are not a number.
    return len(digits) in _PAN_DIGITS and len(set(digits)) > 1 and luhn_of(digits)


def luhn_of(digits: str) -> bool:
    """Return whether ASCII digits of any count satisfy the Luhn formula."""
    return _luhn_sums(digits, doubled=len(digits) % 2)[-1] % 10 == 0


def imei(text: str) -> bool:
    """Return whether 15 digits are an IMEI (3GPP TS 23.003, annex B: Luhn)."""
    digits = digits_of(text)
    return len(digits) == _IMEI_DIGITS and len(set(digits)) > 1 and luhn_of(digits)


def npi(text: str) -> bool:
    """Return whether ten digits are a US provider number: Luhn after 80840."""
    digits = digits_of(text)
    return len(digits) == _NPI_DIGITS and luhn_of("80840" + digits)


def dea(text: str) -> bool:
    """Return whether two letters and seven digits are a DEA registration."""
    digits = digits_of(text)
    if len(digits) != _DEA_DIGITS or not any(map(int, digits)):
        return False
    odd, even = (sum(map(int, digits[at:6:2])) for at in (0, 1))
    return (odd + 2 * even) % 10 == int(digits[6])


def is_series(groups: Sequence[str]) -> bool:
    """Return whether five or more groups rise or fall by one step, or by one factor.

    "10 20 30 40 50" and "2 4 8 16 32" are lists. Numbers are not dictated in such
    groups, except with leading zeros, as in telephone numbers ("01 02 03 04 05").
    """
    if len(groups) < _LEAST_SERIES or max(map(len, groups)) == 1:
        return False
    if any(len(each) > 1 and each[0] == "0" for each in groups):
        return False
    numbers = [int(each) for each in groups]
    pairs = list(pairwise(numbers))
    if len({late - early for early, late in pairs}) == 1:
        return numbers[0] != numbers[1]
    return numbers[0] > 0 and all(
        late * numbers[0] == early * numbers[1] for early, late in pairs
    )


def pan(text: str) -> bool:
    """Return whether a run of digit groups contains a card number.

    "4111 1111 1111 1111 12/27" is one run; groups in a row are joined. Some part of any
    table satisfies Luhn, so the groups must be joined like a number's, or be grouped as
    on cards, or be single digits and nothing else.
    """
    text = _MOMENT.sub(" | ", text)
    groups = list(_GROUP.finditer(text))
    plain = [each[0] for each in groups]
    if is_series(plain):
        return False
    edges = (0, *accumulate(map(len, plain)))
    digits = digits_of(text)
    sums = _luhn_sums(digits), _luhn_sums(digits, doubled=1)
    between = [text[one.end() : two.start()] for one, two in pairwise(groups)]
    return any(
        _is_card(plain, between, at, last)
        for at, start in enumerate(edges[:-1])
        for last, end in enumerate(edges[at + 1 : at + _PAN_DIGITS.stop], at)
        if end - start in _PAN_DIGITS
        and (sums[end % 2][end] - sums[end % 2][start]) % 10 == 0
        and len(set(digits[start:end])) > 1
    )


def _is_card(
    groups: Sequence[str], between: Sequence[str], first: int, last: int
) -> bool:
    """Return whether groups up to the last are joined or grouped like a card's."""
    joints = between[first:last]
    lines = sum("\n" in each for each in joints)
    joined = all(map(_JOINED.fullmatch, joints))
    if joined and lines == 0:
        return True
    if groups[first][0] not in _PAN_FIRST:
        return False
    lengths = tuple(map(len, groups[first : last + 1]))
    # A number may be broken at one line's end, but not at several.
    if (joined and lines == 1) or lengths in _PAN_GROUPS:
        return True
    around = (*groups[max(first - 1, 0) : first], *groups[last + 1 : last + 2])
    return (
        len(lengths) in _PAN_DICTATED
        and max(lengths) == 1 < min(map(len, around), default=2)
        and len(set(joints)) == 1
    )


def dictated_cards(groups: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last index of a card's groups, whatever is in between.

    They are grouped as on a card, or digit by digit; and Luhn holds.
    """
    shapes = (*_PAN_GROUPS, *((1,) * count for count in _PAN_DICTATED))
    lengths = tuple(map(len, groups))
    for at, first in enumerate(groups):
        if first[0] not in _PAN_FIRST:
            continue
        for shape in shapes:
            end = at + len(shape)
            # Single digits are the number only if no more of them follow.
            around = (*lengths[max(at - 1, 0) : at], *lengths[end : end + 1])
            if (
                lengths[at:end] == shape
                and luhn("".join(groups[at:end]))
                and not (max(shape) == 1 and 1 in around)
            ):
                yield at, end - 1


def _luhn_sums(digits: str, doubled: int = 0) -> tuple[int, ...]:
    """Return the Luhn sums of all prefixes of a run of digits.

    Args:
        digits: ASCII digits.
        doubled: 0 if digits at even offsets count double, 1 if the others do.
    """
    values = (
        sum(divmod(2 * int(digit), 10)) if at % 2 == doubled else int(digit)
        for at, digit in enumerate(digits)
    )
    return tuple(accumulate(values, initial=0))


def iban(text: str) -> bool:
    """Return whether an IBAN satisfies ISO 13616 (remainder 1 modulo 97)."""
    plain = "".join(char for char in text.upper() if char.isalnum())
    if len(plain) not in _IBAN_CHARS or not plain.isascii():
        return False
    return plain[:2] in _COUNTRIES and mod97(plain[4:] + plain[:4])


def iban_first(text: str) -> bool:
    """Return whether a text is an IBAN, or one followed by words."""
    ends = [at for at, char in enumerate(text) if char in " -"]
    return len(digits_of(text)) >= _IBAN_DIGITS and any(
        iban(text[:end]) for end in (len(text), *reversed(ends))
    )


def mod97(text: str) -> bool:
    """Return whether letters and digits leave 1 modulo 97 (ISO 7064, MOD 97-10)."""
    plain = "".join(char for char in text.upper() if char.isalnum())
    if not plain.isascii() or not 2 < len(plain) <= _MAX_CHARS:  # noqa: PLR2004 - two check digits, and more
        return False
    return mod_97_10.checksum(plain) == 1


def mod11_2(text: str) -> bool:
    """Return whether digits and a last digit or X pass ISO 7064, MOD 11-2 (ISNI)."""
    plain = "".join(char for char in text.upper() if char.isalnum())
    if not plain[:-1].isdecimal() or not (plain[-1:].isdecimal() or plain[-1:] == "X"):
        return False
    return mod_11_2.checksum(plain) == 1


def mod11_10(text: str) -> bool:
    """Return whether digits pass ISO 7064, MOD 11,10."""
    digits = digits_of(text)
    return len(digits) > 1 and mod_11_10.checksum(digits) == 1


def verhoeff(text: str) -> bool:
    """Return whether digits pass Verhoeff's check (dihedral group of order ten).

    It finds every wrong digit and every swap of neighbours.
    """
    digits = digits_of(text)
    return len(set(digits)) > 1 and dihedral.checksum(digits) == 0


def isin(text: str) -> bool:
    """Return whether twelve characters are a security's number (ISO 6166: Luhn)."""
    plain = text.upper()
    if len(plain) != _ISIN_CHARS or not plain.isalnum() or not plain.isascii():
        return False
    return plain[:2].isalpha() and luhn_of("".join(str(int(c, 36)) for c in plain))


def swift(text: str) -> bool:
    """Return whether a code's country exists (ISO 9362); there is no check digit."""
    plain = text.upper()
    return plain[4:6] in _COUNTRIES and len(plain) in _SWIFT_CHARS


def aba(text: str) -> bool:
    """Return whether nine digits are an ABA routing number."""
    digits = digits_of(text)
    if len(digits) != _ABA_DIGITS or not any(map(int, digits)):
        return False
    return rtn.calc_check_digit(digits[:8]) == digits[8]


def vin(text: str) -> bool:
    """Return whether 17 characters are a vehicle number (49 CFR 565.15)."""
    plain = "".join(char for char in text.upper() if char.isalnum())
    if len(plain) != _VIN_CHARS or not plain.isascii():
        return False
    values = [
        _VIN_VALUES.get(char, -1) if char.isalpha() else int(char) for char in plain
    ]
    if min(values) < 0:
        return False
    remainder = sum(w * v for w, v in zip(_VIN_WEIGHTS, values, strict=True)) % 11
    return plain[8] == ("X" if remainder == 10 else str(remainder))  # noqa: PLR2004 - X is 10


def ssn(text: str) -> bool:
    """Return whether nine digits can be a US social security number.

    There is no check digit; areas 000, 666 and 900 up, group 00 and serial
    0000 were never issued.
    """
    digits = digits_of(text)
    if len(digits) != _SSN_DIGITS:
        return False
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    return (
        area not in {"000", "666"}
        and area < "900"
        and group != "00"
        and serial != "0000"
    )


def ip_address(text: str) -> bool:
    """Return whether a text is an address that can identify a machine.

    Loopback, unspecified and netmask-like addresses identify none.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (
        address.is_loopback or address.is_unspecified or text.startswith("255.")
    )


def is_no_machine(text: str) -> bool:
    """Return whether a text is an address that identifies no machine."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return not ip_address(text)


# The checks that a policy's own detectors may name under ``validate``.
NAMED: Mapping[str, Callable[[str], bool]] = MappingProxyType(
    {
        "aba": aba,
        "dea": dea,
        "iban": iban,
        "imei": imei,
        "ip_address": ip_address,
        "isin": isin,
        "luhn": luhn,
        "mod11_10": mod11_10,
        "mod11_2": mod11_2,
        "mod97": mod97,
        "npi": npi,
        "pan": pan,
        "ssn": ssn,
        "swift": swift,
        "verhoeff": verhoeff,
        "vin": vin,
    }
)
