"""All patterns of identifiers and regulated content.

They find what Presidio lacks, misses or finds in quadratic time (classifier design,
hazards F2 to F8). There is one module for each subject; secrets are in ``secrets``.
This module runs nothing.
"""

from curtilage.client.detection.detectors.patterns.contact import CONTACT
from curtilage.client.detection.detectors.patterns.government_ids import IDENTITY
from curtilage.client.detection.detectors.patterns.health_and_finance import (
    FINANCE,
    HEALTH,
)
from curtilage.client.detection.detectors.patterns.legal import LEGAL
from curtilage.client.detection.detectors.patterns.personal_attributes import ATTRIBUTES
from curtilage.client.detection.detectors.patterns.postal_address import ADDRESSES
from curtilage.client.detection.detectors.patterns.references import REFERENCES

PATTERNS = (
    *CONTACT,
    *ADDRESSES,
    *IDENTITY,
    *FINANCE,
    *HEALTH,
    *ATTRIBUTES,
    *LEGAL,
    *REFERENCES,
)
