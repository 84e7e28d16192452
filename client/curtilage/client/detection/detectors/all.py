"""Builds all detectors of a plan: the only module that knows every one of them.

Other modules know only their own kind; the scanner runs whatever it is given.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from typing import Final

from curtilage.client.detection.detectors.anomalies import (
    DictatedNumberDetector,
    InvisibleDetector,
    LanguageDetector,
    NumberRunDetector,
    ObfuscationDetector,
    OpaqueDetector,
    UndecodableDetector,
)
from curtilage.client.detection.detectors.cache import FindingsCache
from curtilage.client.detection.detectors.model.detector import ner_detectors
from curtilage.client.detection.detectors.names.capitals import NameDetector
from curtilage.client.detection.detectors.patterns.catalog import PATTERNS
from curtilage.client.detection.detectors.patterns.matcher import PatternSet
from curtilage.client.detection.detectors.patterns.secrets import SECRETS
from curtilage.client.detection.detectors.policy_detectors import (
    or_broken,
    own_detectors,
)
from curtilage.client.detection.detectors.presidio.engine import (
    PRESIDIO,
    PresidioOnDemand,
)
from curtilage.client.detection.detectors.presidio.operator import (
    YAML,
    from_entry_point,
    from_yaml,
)
from curtilage.client.detection.detectors.scanner import (
    AS_WRITTEN,
    EVERY_FORM,
    NOT_COMPACT,
    Equipment,
    Scanner,
)
from curtilage.client.detection.detectors.topics.household import HouseholdDetector
from curtilage.client.detection.detectors.topics.lexicon import LexiconDetector
from curtilage.client.detection.detectors.topics.markers import PersonMarkerDetector
from curtilage.client.detection.detectors.topics.mixed import MixedDetector
from curtilage.client.detection.detectors.topics.pictures import PictureDetector
from curtilage.policy.decision.findings import Normalization
from curtilage.policy.document.detection_plan import DetectionPlan, PresidioPlan

WARM_UP_TEXT: Final = "Please write a short letter about what we did this week."
"""Clearly English, and without digits: it loads nothing that only few texts need."""


def scanner_of(plan: DetectionPlan) -> Scanner:
    """Return all detectors of a plan, warm; takes seconds.

    Never raises if a detector cannot be built. One that fails on every text replaces
    it, so that every query is kept local.
    """
    first, last = equipment_of(plan)
    # Libraries load and compile at first use, which a query's deadline does not allow
    # for. For libraries that other texts need, the query's clock is paused.
    Scanner(first, last).scan([WARM_UP_TEXT])
    return Scanner(
        first,
        last,
        exits=plan.exit_classes if plan.scan == "early_exit" else (),
        lists=plan.lists,
        cache=FindingsCache(digest_of(plan)),
    )


def equipment_of(plan: DetectionPlan) -> tuple[Equipment, Equipment]:
    """Return all detectors of a plan, in the order in which they run.

    First those that always run, then those that search for names, which are slow.
    """
    build = partial(PresidioOnDemand, plan.recognizers)
    presidio = or_broken(PRESIDIO, build, EVERY_FORM - {Normalization.COMPACT})
    first = (
        *_own_but_names(plan.languages),
        *([presidio] if plan.recognizers else []),
        *own_detectors(plan.detectors),
        *_operator_recognizers(plan.presidio),
    )
    return first, ner_detectors(plan.ner, plan.languages)


def _operator_recognizers(plan: PresidioPlan) -> Equipment:
    forms = EVERY_FORM - {Normalization.COMPACT}
    builds = {
        f"presidio.{point[0]}": partial(from_entry_point, plan, point)
        for point in plan.entry_points
    }
    if plan.recognizers:
        builds[YAML] = partial(from_yaml, plan)
    return tuple(or_broken(name, build, forms) for name, build in builds.items())


def digest_of(plan: DetectionPlan) -> bytes:
    """Return SHA-256 of a plan; findings under another plan are not valid for it."""
    return hashlib.sha256(json.dumps(plan.to_fields()).encode()).digest()


def own_equipment() -> Equipment:
    """Return this project's own detectors, each with the readings that it takes."""
    return (*_own_but_names(("en",)), (NameDetector(), AS_WRITTEN))


def _own_but_names(languages: Sequence[str]) -> Equipment:
    return (
        (UndecodableDetector(), NOT_COMPACT),
        (ObfuscationDetector(), AS_WRITTEN),
        (InvisibleDetector(), AS_WRITTEN),
        or_broken("language", partial(LanguageDetector, languages), NOT_COMPACT),
        (NumberRunDetector(), EVERY_FORM),
        (DictatedNumberDetector(), EVERY_FORM),
        (PatternSet((*PATTERNS, *SECRETS)), EVERY_FORM),
        (OpaqueDetector(), AS_WRITTEN),
        (LexiconDetector(), NOT_COMPACT),
        (HouseholdDetector(), NOT_COMPACT),
        (MixedDetector(), NOT_COMPACT),
        (PictureDetector(), AS_WRITTEN),
        (PersonMarkerDetector(), NOT_COMPACT),
    )
