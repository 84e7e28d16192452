"""The tree of data classes: the names that a finding can have.

A class is a leaf of the tree, written with dots. Inner names, such as
``identifier.direct``, are not classes; a pattern reaches below them with ``.*``.
A name outside the tree is an error: a policy that contains one does not
load, and a finding that has one counts as ``uncertain.error``.

Two branches grow with each policy: ``org.dictionary.<name>`` and
``org.edm.<name>`` exist where a detector of that policy finds them.
"""

import re
from collections.abc import Iterator
from typing import Final

# Identifiers that a state issues, by ISO 3166 country. ``other`` is for a
# number that a context word marks as official without saying which kind.
_GOV_IDS: Final = (
    "us_ssn us_itin uk_nino uk_nhs ca_sin au_tfn au_medicare nz_ird "
    "at_svnr be_nrn bg_egn ch_ahv cz_rc de_id de_svnr de_tax_id dk_cpr ee_ik "
    "es_nie es_nif fi_hetu fr_nir gr_amka hr_oib hu_taj ie_pps it_cf lt_ak lv_pk "
    "nl_bsn no_fnr pl_pesel pt_nif ro_cnp se_pnr si_emso sk_rc "
    "br_cpf cn_ric il_tz in_aadhaar in_pan in_voter jp_my_number kr_rrn mx_curp "
    "ng_nin ph_umid sg_nric th_tnin tr_tckn za_id other"
)

# Grouped as regulations group them, so that a pack can name a branch. ``quasi`` holds
# attributes that identify a person only in combination; rules that count ``distinct``
# classes depend on it. ``public`` is a well-known person, who counts as a person unless
# the policy and the other findings permit the name to be sent. ``uncertain`` has a
# class for each kind of uncertainty, so that the audit trail distinguishes a timeout
# from an attachment.
_LEAVES: Final = {
    "identifier.direct": (
        "person email phone fax address passport licence username ip mac device "
        "vehicle biometric photo url_personal"
    ),
    "identifier.direct.gov_id": _GOV_IDS,
    "identifier.quasi": (
        "date dob age age90 zip city nationality gender employer occupation url"
    ),
    "identifier.public": "figure",
    "financial": (
        "pan pan_masked cvv expiry track iban account aba swift crypto tax_id "
        "income balance credit_score"
    ),
    "health": "condition medication procedure lab mrn plan_id npi dea provider",
    "special": (
        "ethnicity religion politics union sex_life orientation genetic biometric "
        "criminal"
    ),
    "secret": "api_key private_key password token dsn high_entropy",
    "legal": "privilege docket",
    "export": "itar eccn cui noforn",
    "org": "confidential",
    "topic": "health special finance legal hr",
    "marker": "first_person addressee case",
    "uncertain": (
        "number_run opaque_blob language oversize timeout waited error undecodable "
        "attachment stale_policy obfuscation name"
    ),
}

CLASSES: Final[frozenset[str]] = frozenset(
    f"{parent}.{leaf}" for parent, leaves in _LEAVES.items() for leaf in leaves.split()
)
UNCERTAIN_ERROR: Final = "uncertain.error"
STALE_POLICY: Final = "uncertain.stale_policy"
# The detectors did not finish: at another time they may.
UNFINISHED: Final = frozenset(
    {UNCERTAIN_ERROR, "uncertain.timeout", "uncertain.waited"}
)
PATTERN_CHARS: Final = 512  # an alternative list of some thirty names; bounds expand()

# The author chooses the name, and logs show it: letters, digits, underscores only.
_OWN = re.compile(r"org\.(?:dictionary|edm)\.[a-z][a-z0-9_]{0,63}")
_NAME = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)*(?:\.\*)?")


def is_class(name: str) -> bool:
    """Return whether ``name`` is a leaf of the tree, or may be one of a policy."""
    return name in CLASSES or is_own_class(name)


def is_own_class(name: str) -> bool:
    """Return whether ``name`` is one that a policy's own detectors may find."""
    return _OWN.fullmatch(name) is not None


def is_uncertain(name: str) -> bool:
    """Return whether ``name`` is a class for something that could not be determined."""
    return name.startswith("uncertain.")


def expand(pattern: str, *, own: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return the classes that a pattern names; never an empty set.

    A pattern is a class (``financial.pan``), everything below a name
    (``health.*``), or one name with alternatives in braces, each of which may
    end in ``.*`` (``identifier.direct.{gov_id.*,passport}``).

    Args:
        pattern: without spaces at either end.
        own: the classes of the policy's own detectors, in addition to ``CLASSES``.

    Raises:
        ValueError: not a pattern, or it names nothing in the tree; the message
            is fit for the author of a policy.
    """
    if len(pattern) > PATTERN_CHARS:
        raise ValueError(f"a class pattern has at most {PATTERN_CHARS} characters")
    tree = CLASSES | own if own else CLASSES
    # Each alternative must name something by itself. Were only their union checked, a
    # misspelt one would hide behind its neighbours and its rule would never fire.
    found = (_expand_name(name, tree) for name in _alternatives(pattern))
    return frozenset[str]().union(*found)


def _alternatives(pattern: str) -> Iterator[str]:
    head, brace, rest = pattern.partition("{")
    if not brace:
        yield pattern
        return
    # One pair, at the end: ``a.{b,c}.{d,e}`` would multiply, and a rule with two pairs
    # would be hard to read.
    if not rest.endswith("}") or not head.endswith("."):
        raise ValueError(f"{pattern!r}: braces must be last, after a dot: a.{{b,c}}")
    for alternative in rest[:-1].split(","):
        yield head + alternative.strip()


def _expand_name(name: str, tree: frozenset[str]) -> frozenset[str]:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a class pattern")
    if not name.endswith(".*"):
        if name in tree:
            return frozenset({name})
        # An inner name would never match: findings have leaf classes. Three messages
        # distinguish the three mistakes for the author.
        if any(each.startswith(name + ".") for each in tree):
            raise ValueError(
                f"{name!r} is not a class; write {name + '.*'!r} for all below"
            )
        if is_own_class(name):
            raise ValueError(
                f"unknown class {name!r}: no detector of this policy finds it"
            )
        raise ValueError(f"unknown class {name!r}")
    # Keep the dot: ``health.*`` must not include ``healthcare.x``.
    below = frozenset(each for each in tree if each.startswith(name[:-1]))
    if not below:
        raise ValueError(f"unknown class {name!r}: nothing in the tree lies below it")
    return below
