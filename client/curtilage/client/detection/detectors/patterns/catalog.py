"""All patterns of identifiers and regulated content, and what a number run is.

What Presidio lacks, misses or does in quadratic time (classifier design,
hazards F2 to F8). The patterns stand by subject in ``recognizers_*`` and
``health_and_finance``; those of secrets in ``secrets``. Nothing here runs.
"""

from curtilage.client.detection.detectors.patterns.contact import CONTACT
from curtilage.client.detection.detectors.patterns.government_ids import (
    IDENTITY,
    SSN_LABEL,
    SSN_REACH,
)
from curtilage.client.detection.detectors.patterns.health_and_finance import (
    FINANCE,
    HEALTH,
)
from curtilage.client.detection.detectors.patterns.legal import LEGAL
from curtilage.client.detection.detectors.patterns.personal_attributes import ATTRIBUTES
from curtilage.client.detection.detectors.patterns.postal_address import ADDRESSES

__all__ = ["HARMLESS_RUN", "NUMBER_RUN", "PATTERNS", "SSN_LABEL", "SSN_REACH"]

PATTERNS = (
    *CONTACT,
    *ADDRESSES,
    *IDENTITY,
    *FINANCE,
    *HEALTH,
    *ATTRIBUTES,
    *LEGAL,
)

NUMBER_RUN = r"\d(?:(?:[^\w\n]|_){0,3}\d){6,}"
_YEAR = r"(?:19|20)\d\d"
# Between the texts of a query that are read as one (``inspection.JOINT``).
_JOINT = "\x1e"
# What a long run may be instead: a grouped amount, a list of years, a decimal
# with a short integer part; a year at the end of one text and a number at the
# beginning of the next. Nothing else is known well enough.
HARMLESS_RUN = (
    r"\d{1,3}(?:,\d{3}){2,6}(?:\.\d{1,4})?|\d{1,3},\d{3}\.\d{2}|"
    rf"{_YEAR}(?:[ ,/\-\u2013\u2014{_JOINT}]{{1,3}}{_YEAR}){{1,7}}|"
    rf"{_YEAR}{_JOINT}\d{{1,4}}|\d{{1,4}}{_JOINT}{_YEAR}|\d{{1,2}}\.\d{{1,16}}"
)
