"""Check digits of the numbers that states issue to people; pure arithmetic.

Every function takes the matched text with its separators and returns whether the check
holds. If a number contains a date of birth, the date must exist too, which is stronger
evidence than a check digit. No check proves that a number was ever issued.

The shapes and dates are ours. The arithmetic is python-stdnum's if it has a function
that gives the same for every number of that shape. It does not for EMSO (a remainder of
1 has no check digit) and for PPS, RIC and CURP (it refuses letters, places and words
that it does not know), and it has none for the others.
"""

from collections.abc import Sequence

from stdnum import ean
from stdnum.at import vnr
from stdnum.au import tfn
from stdnum.bg import egn
from stdnum.dk import cpr
from stdnum.ee import ik
from stdnum.es import dni
from stdnum.fr import nir
from stdnum.gb import nhs
from stdnum.gr import vat as afm
from stdnum.it import codicefiscale
from stdnum.jp import in_
from stdnum.lv import pvn
from stdnum.nl import bsn
from stdnum.no import fodselsnummer as fnr
from stdnum.nz import ird
from stdnum.pl import pesel
from stdnum.pt import cc, nif
from stdnum.ro import cnp

from curtilage.client.detection.detectors.patterns.check_digits import (
    digits_of,
    luhn_of,
    mod11_10,
)

_MONTHS = range(1, 13)
_DAYS = range(1, 32)
_TEN = 10  # the remainder without a digit


def weighted(digits: str, weights: Sequence[int]) -> int:
    """Return the sum of digits times weights, up to the shorter of the two."""
    return sum(int(d) * w for d, w in zip(digits, weights, strict=False))


def _is_date(month: str, day: str, *shifts: int) -> bool:
    """Return whether a month, possibly shifted, and a day can be a date."""
    shifted = (int(month) - shift for shift in (0, *shifts))
    return int(day) in _DAYS and any(month in _MONTHS for month in shifted)


def _exact(text: str, count: int) -> str:
    """Return the digits if the count is right and they are not all equal; else ""."""
    digits = digits_of(text)
    return digits if len(digits) == count and len(set(digits)) > 1 else ""


def _plain(text: str) -> str:
    """Return the letters and digits, as capitals."""
    return "".join(char for char in text.upper() if char.isalnum() and char.isascii())


def uk_nhs(text: str) -> bool:
    """Return whether ten digits are an NHS number of the United Kingdom (modulo 11)."""
    digits = _exact(text, 10)
    return bool(digits) and nhs.checksum(digits) == 0


def de_idnr(text: str) -> bool:
    """Return whether eleven digits are a German tax number (ISO 7064, MOD 11,10)."""
    digits = _exact(text, 11)
    return bool(digits) and digits[0] != "0" and mod11_10(digits)


def es_nif(text: str) -> bool:
    """Return whether a Spanish DNI or NIE has its letter (modulo 23).

    A foreigner's begins with X, Y or Z, which count as 0, 1 and 2.
    """
    plain = _plain(text)
    body = plain[:-1].translate({88: "0", 89: "1", 90: "2"})
    if len(plain) != 9 or not body.isdecimal():  # noqa: PLR2004 - Ministerio del Interior
        return False
    return dni.calc_check_digit(body) == plain[-1]


def it_cf(text: str) -> bool:
    """Return whether an Italian code has its last letter (a sum modulo 26)."""
    plain = _plain(text)
    if len(plain) != 16 or plain[-1].isdigit():  # noqa: PLR2004 - Agenzia delle Entrate
        return False
    return codicefiscale.calc_check_digit(plain[:15]) == plain[15]


def pt_cc(text: str) -> bool:
    """Return whether a Portuguese card's number has its check digit (Luhn's kind)."""
    plain = _plain(text)
    if len(plain) != 12 or not plain[-1].isdecimal():  # noqa: PLR2004 - Instituto dos Registos
        return False
    return cc.calc_check_digit(plain[:11]) == plain[11]


def pl_pesel(text: str) -> bool:
    """Return whether eleven digits are a Polish number: a date, and modulo 10.

    The century is added to the month: 80, 20, 40 or 60.
    """
    digits = _exact(text, 11)
    if not digits or not _is_date(digits[2:4], digits[4:6], 20, 40, 60, 80):
        return False
    return pesel.calc_check_digit(digits[:10]) == digits[10]


def se_pnr(text: str) -> bool:
    """Return whether ten or twelve digits are a Swedish number: a date, and Luhn.

    A coordination number adds 60 to the day; the century is not summed.
    """
    digits = digits_of(text)
    if len(digits) == 12 and digits[:2] in {"18", "19", "20"}:  # noqa: PLR2004 - Skatteverket
        digits = digits[2:]
    if len(digits) != 10 or len(set(digits)) == 1:  # noqa: PLR2004 - Skatteverket
        return False
    return _is_date(digits[2:4], f"{int(digits[4:6]) % 60:02}") and luhn_of(digits)


def fi_hetu(text: str) -> bool:
    """Return whether a Finnish code has its last sign (modulo 31), and a date."""
    plain = _plain(text)
    digits = digits_of(plain[:-1])
    if len(digits) != 9 or not _is_date(digits[2:4], digits[:2]):  # noqa: PLR2004 - DVV
        return False
    return "0123456789ABCDEFHJKLMNPRSTUVWXY"[int(digits) % 31] == plain[-1]


def ca_sin(text: str) -> bool:
    """Return whether nine digits are a Canadian insurance number (Luhn)."""
    digits = _exact(text, 9)
    return bool(digits) and digits[0] not in "08" and luhn_of(digits)


def au_tfn(text: str) -> bool:
    """Return whether nine digits are an Australian tax number (modulo 11)."""
    digits = _exact(text, 9)
    return bool(digits) and tfn.checksum(digits) == 0


def de_kvnr(text: str) -> bool:
    """Return whether a letter and nine digits are a German health insurance number.

    The letter counts as its place in the alphabet, in two digits; weights are 1 and 2.
    """
    plain = _plain(text)
    if len(plain) != 10 or not plain[0].isalpha() or not plain[1:].isdecimal():  # noqa: PLR2004 - GKV-Spitzenverband
        return False
    digits = f"{ord(plain[0]) - 64:02}{plain[1:9]}"
    total = sum(
        sum(divmod(int(d) * w, 10)) for d, w in zip(digits, (1, 2) * 5, strict=True)
    )
    return total % 10 == int(plain[9])


def de_svnr(text: str) -> bool:
    """Return whether a German pension number has its check digit, and a date."""
    plain = _plain(text)
    if len(plain) != 12 or not plain[8].isalpha():  # noqa: PLR2004 - VKVV, section 2
        return False
    digits = f"{plain[:8]}{ord(plain[8]) - 64:02}{plain[9:11]}"
    if not digits.isdecimal() or not _is_date(plain[4:6], plain[2:4]):
        return False
    weights = (2, 1, 2, 5, 7, 1, 2, 1, 2, 1, 2, 1)
    total = sum(
        sum(divmod(int(d) * w, 10)) for d, w in zip(digits, weights, strict=True)
    )
    return total % 10 == int(plain[11])


def fr_nir(text: str) -> bool:
    """Return whether a French number has its key: 97 less the rest modulo 97.

    Corsica's departments 2A and 2B count as 19 and 18.
    """
    plain = "".join(char for char in text.upper() if char.isalnum())
    digits = _exact(plain.replace("2A", "19").replace("2B", "18"), 15)
    return bool(digits) and nir.calc_check_digits(digits[:13]) == digits[13:]


def nl_bsn(text: str) -> bool:
    """Return whether nine digits pass the Dutch test of eleven."""
    digits = _exact(text, 9)
    return bool(digits) and bsn.checksum(digits) == 0


def be_nrn(text: str) -> bool:
    """Return whether a Belgian number has its key; from 2000 on with a 2 before."""
    digits = _exact(text, 11)
    if not digits or not 0 <= int(digits[2:4]) % 20 <= 12:  # noqa: PLR2004 - months; BIS numbers add 20 or 40
        return False
    keys = {97 - int(century + digits[:9]) % 97 for century in ("", "2")}
    return int(digits[9:]) in keys


def pt_nif(text: str) -> bool:
    """Return whether nine digits are a Portuguese tax number (modulo 11)."""
    digits = _exact(text, 9)
    if not digits or digits[0] == "0":
        return False
    return nif.calc_check_digit(digits[:8]) == digits[8]


def ie_pps(text: str) -> bool:
    """Return whether an Irish number has its check letter (modulo 23)."""
    plain = "".join(char for char in text.upper() if char.isalnum())
    digits, letters = plain[:7], plain[7:]
    if not digits.isdecimal() or not letters.isalpha() or not letters.isascii():
        return False
    total = weighted(digits, range(8, 1, -1))
    if len(letters) > 1 and letters[1] != "W":
        total += 9 * (ord(letters[1]) - ord("A") + 1)
    return "WABCDEFGHIJKLMNOPQRSTUV"[total % 23] == letters[0]


def dk_cpr(text: str) -> bool:
    """Return whether a Danish number passes modulo 11; many since 2007 do not."""
    digits = _exact(text, 10)
    return (
        bool(digits) and _is_date(digits[2:4], digits[:2]) and cpr.checksum(digits) == 0
    )


def cz_rc(text: str) -> bool:
    """Return whether ten digits are a Czech or Slovak birth number (modulo 11).

    Women's months are 50 more; 20 and 70 more where a day's numbers ran out.
    """
    digits = _exact(text, 10)
    if not digits or not _is_date(digits[2:4], digits[4:6], 20, 50, 70):
        return False
    return int(digits[:9]) % 11 % _TEN == int(digits[9])


def ro_cnp(text: str) -> bool:
    """Return whether thirteen digits are a Romanian number (modulo 11; 10 as 1)."""
    digits = _exact(text, 13)
    if not digits or digits[0] == "0" or not _is_date(digits[3:5], digits[5:7]):
        return False
    return cnp.calc_check_digit(digits[:12]) == digits[12]


def at_svnr(text: str) -> bool:
    """Return whether ten digits are an Austrian insurance number (modulo 11)."""
    digits = _exact(text, 10)
    if not digits or digits[0] == "0" or int(digits[4:6]) not in _DAYS:
        return False
    if not 1 <= int(digits[6:8]) <= 15:  # noqa: PLR2004 - 13 to 15 where a day's numbers ran out
        return False
    return vnr.calc_check_digit(digits) == digits[3]


def gr_amka(text: str) -> bool:
    """Return whether eleven digits are a Greek number: a date, and Luhn."""
    digits = _exact(text, 11)
    return bool(digits) and _is_date(digits[2:4], digits[:2]) and luhn_of(digits)


def gr_afm(text: str) -> bool:
    """Return whether nine digits are a Greek tax number (powers of two, modulo 11)."""
    digits = _exact(text, 9)
    return bool(digits) and afm.calc_check_digit(digits[:8]) == digits[8]


def hu_taj(text: str) -> bool:
    """Return whether nine digits are a Hungarian insurance number (modulo 10)."""
    digits = _exact(text, 9)
    weights = (3, 7) * 4
    return bool(digits) and weighted(digits[:8], weights) % 10 == int(digits[8])


def bg_egn(text: str) -> bool:
    """Return whether ten digits are a Bulgarian number (modulo 11; 10 as 0)."""
    digits = _exact(text, 10)
    if not digits or not _is_date(digits[2:4], digits[4:6], 20, 40):
        return False
    return egn.calc_check_digit(digits[:9]) == digits[9]


def hr_oib(text: str) -> bool:
    """Return whether eleven digits are a Croatian number (ISO 7064, MOD 11,10)."""
    digits = _exact(text, 11)
    return bool(digits) and mod11_10(digits)


def baltic(text: str) -> bool:
    """Return whether eleven digits are an Estonian or Lithuanian number.

    Modulo 11 in two rounds; 10 after the second counts as 0.
    """
    digits = _exact(text, 11)
    if not digits or not _is_date(digits[3:5], digits[5:7]):
        return False
    return ik.calc_check_digit(digits) == digits[10]


def lv_pk(text: str) -> bool:
    """Return whether eleven digits are a Latvian number of the older kind.

    The newer kind begins with 32 and has no check digit.
    """
    digits = _exact(text, 11)
    if not digits or not _is_date(digits[2:4], digits[:2]):
        return False
    return pvn.calc_check_digit_pers(digits[:10]) == digits[10]


def si_emso(text: str) -> bool:
    """Return whether thirteen digits are an EMSO or JMBG (modulo 11)."""
    digits = _exact(text, 13)
    if not digits or not _is_date(digits[2:4], digits[:2]):
        return False
    rest = weighted(digits[:12], (7, 6, 5, 4, 3, 2) * 2) % 11
    return rest != 1 and (11 - rest) % 11 == int(digits[12])


def no_fnr(text: str) -> bool:
    """Return whether a Norwegian number has both its check digits (modulo 11).

    D numbers add 40 to the day, H numbers 40 to the month.
    """
    digits = _exact(text, 11)
    if not digits or not _is_date(digits[2:4], f"{int(digits[:2]) % 40:02}", 40):
        return False
    checks = fnr.calc_check_digit1(digits), fnr.calc_check_digit2(digits)
    return checks == (digits[9], digits[10])


def ch_ahv(text: str) -> bool:
    """Return whether thirteen digits from 756 on are a Swiss number (EAN-13)."""
    digits = _exact(text, 13)
    return digits.startswith("756") and ean.calc_check_digit(digits[:12]) == digits[12]


def br_cpf(text: str) -> bool:
    """Return whether eleven digits have both check digits of a Brazilian CPF."""
    digits = _exact(text, 11)
    return bool(digits) and all(
        weighted(digits[:count], range(count + 1, 1, -1)) * 10 % 11 % 10
        == int(digits[count])
        for count in (9, 10)
    )


def cn_ric(text: str) -> bool:
    """Return whether a Chinese number passes ISO 7064, MOD 11-2, and has a date."""
    plain = text.strip().upper()
    digits = digits_of(plain[:-1])
    if len(digits) != 17 or not _is_date(digits[10:12], digits[12:14]):  # noqa: PLR2004 - GB 11643
        return False
    rest = sum(int(d) * 2 ** (17 - at) for at, d in enumerate(digits)) % 11
    return "10X98765432"[rest] == plain[-1]


_CURP = "0123456789ABCDEFGHIJKLMN\u00d1OPQRSTUVWXYZ"


def mx_curp(text: str) -> bool:
    """Return whether a Mexican CURP has its check digit (modulo 10), and a date."""
    plain = text.upper()
    if len(plain) != 18 or any(char not in _CURP for char in plain):  # noqa: PLR2004 - RENAPO
        return False
    if not plain[4:10].isdecimal() or not _is_date(plain[6:8], plain[8:10]):
        return False
    values = (_CURP.index(char) for char in plain[:17])
    total = sum(v * w for v, w in zip(values, range(18, 1, -1), strict=True))
    return str(-total % 10) == plain[17]


def il_tz(text: str) -> bool:
    """Return whether nine digits are an Israeli number (Luhn's sum from the left)."""
    digits = _exact(text, 9)
    return bool(digits) and luhn_of(digits)


def jp_my_number(text: str) -> bool:
    """Return whether twelve digits are a Japanese My Number (modulo 11)."""
    digits = _exact(text, 12)
    return bool(digits) and in_.calc_check_digit(digits[:11]) == digits[11]


def nz_ird(text: str) -> bool:
    """Return whether eight or nine digits are a New Zealand tax number (modulo 11)."""
    digits = digits_of(text).zfill(9)
    if len(digits) != 9 or len(set(digits)) == 1:  # noqa: PLR2004 - IRD's own width
        return False
    return ird.calc_check_digit(digits[:8]) == digits[8]
