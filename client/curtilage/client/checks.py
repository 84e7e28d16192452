"""Check digits and checksums of identifiers; pure arithmetic.

Every function takes the matched text and tells whether the check holds. A
check that holds makes a finding certain; one that fails removes nothing that
another detector found.
"""

import ipaddress
import re
from itertools import accumulate

_GROUP = re.compile(r"\d+")
_PAN_DIGITS = range(12, 20)
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
_SSN_DIGITS = 9


def digits_of(text: str) -> str:
    """Return the decimal digits of a text, of any script, as ASCII."""
    return "".join(str(int(char)) for char in text if char.isdecimal())


def luhn(text: str) -> bool:
    """Tell whether 12 to 19 digits satisfy the Luhn formula (ISO/IEC 7812-1)."""
    digits = [int(char) for char in digits_of(text)]
    if len(digits) not in _PAN_DIGITS or len(set(digits)) == 1:
        return False
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def pan(text: str) -> bool:
    """Tell whether a run of digit groups holds a card number, whole or in part.

    "4111 1111 1111 1111 12/27" reads as one run; groups are joined in a row.
    """
    groups = _GROUP.findall(text)
    edges = (0, *accumulate(map(len, groups)))
    digits = digits_of(text)
    sums = _luhn_sums(digits), _luhn_sums(digits, doubled=1)
    return any(
        (sums[end % 2][end] - sums[end % 2][start]) % 10 == 0
        and len(set(digits[start:end])) > 1
        for at, start in enumerate(edges)
        for end in edges[at + 1 : at + _PAN_DIGITS.stop]
        if end - start in _PAN_DIGITS
    )


def _luhn_sums(digits: str, doubled: int = 0) -> tuple[int, ...]:
    """Return the Luhn sums of all beginnings of a run of digits.

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
    """Tell whether an IBAN satisfies ISO 13616 (remainder 1 modulo 97)."""
    plain = "".join(char for char in text.upper() if char.isalnum())
    if len(plain) not in _IBAN_CHARS or not plain.isascii():
        return False
    moved = plain[4:] + plain[:4]
    return int("".join(str(int(char, 36)) for char in moved)) % 97 == 1


def aba(text: str) -> bool:
    """Tell whether nine digits are an ABA routing number."""
    digits = [int(char) for char in digits_of(text)]
    if len(digits) != _ABA_DIGITS or not any(digits):
        return False
    weights = (3, 7, 1) * 3
    return sum(w * d for w, d in zip(weights, digits, strict=True)) % 10 == 0


def vin(text: str) -> bool:
    """Tell whether 17 characters are a vehicle number (49 CFR 565.15)."""
    plain = text.upper()
    if len(plain) != _VIN_CHARS:
        return False
    values = [
        _VIN_VALUES.get(char, -1) if char.isalpha() else int(char) for char in plain
    ]
    if min(values) < 0:
        return False
    remainder = sum(w * v for w, v in zip(_VIN_WEIGHTS, values, strict=True)) % 11
    return plain[8] == ("X" if remainder == 10 else str(remainder))  # noqa: PLR2004 - X is 10


def ssn(text: str) -> bool:
    """Tell whether nine digits can be a US social security number.

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
    """Tell whether a text is an address that could name a machine.

    Loopback, unspecified and netmask-like addresses name none.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (
        address.is_loopback or address.is_unspecified or text.startswith("255.")
    )
