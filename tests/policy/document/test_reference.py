import re
from pathlib import Path
from typing import get_args

import pytest

from curtilage.policy.decision.classes import CLASSES
from curtilage.policy.decision.rules import RESERVED_IDS, WINDOW_CHARS
from curtilage.policy.document.attestation import (
    AcceptedBreak,
    Anchor,
    Attestation,
    Custody,
    Demand,
    Freshness,
    Gpu,
    Log,
    MinTCB,
    Nitro,
    Platforms,
    Releases,
    Snp,
    Tdx,
    Witness,
)
from curtilage.policy.document.detection_plan import (
    DEFAULT_RECALL,
    MAX_RECALL,
    MAX_WINDOW,
)
from curtilage.policy.document.dictionaries import MAX_ENTRIES, MAX_ENTRY_CHARS
from curtilage.policy.document.load import MAX_CHARS, MAX_DEPTH, MAX_NODES, PROFILES
from curtilage.policy.document.model import (
    PACKS,
    Approval,
    DetectorEntry,
    Document,
    ExclusionEntry,
    Limits,
    Ner,
    RuleEntry,
)
from curtilage.policy.document.packs import Cover, Pack
from curtilage.policy.document.routing import (
    MAX_TIERS,
    Classes,
    Routing,
    TierDemand,
)
from curtilage.policy.document.routing_settings import (
    Aim,
    Breaker,
    Budgets,
    Estimator,
    IntentName,
    Intents,
    Preference,
    Priors,
    TierEntry,
    Weights,
)
from curtilage.policy.document.sections import (
    MAX_ACCEPTED,
    MAX_DELAY_S,
    CoverTraffic,
    Frames,
    Transport,
)

REFERENCE = Path(__file__).parents[3] / "docs" / "policy-reference.md"
TEXT = REFERENCE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "section",
    [
        Document,
        Limits,
        Ner,
        DetectorEntry,
        RuleEntry,
        ExclusionEntry,
        Approval,
        Attestation,
        AcceptedBreak,
        Custody,
        Anchor,
        Releases,
        Log,
        Witness,
        Snp,
        MinTCB,
        Tdx,
        Nitro,
        Gpu,
        Platforms,
        Freshness,
        Demand,
        Transport,
        Frames,
        CoverTraffic,
        Routing,
        TierEntry,
        Priors,
        Classes,
        TierDemand,
        Intents,
        Estimator,
        Weights,
        Aim,
        Budgets,
        Breaker,
        Pack,
        Cover,
    ],
    ids=lambda section: section.__name__,
)
def test_reference_names_every_key(section: type[Document]) -> None:
    keys = {field.alias or name for name, field in section.model_fields.items()}
    assert {key for key in keys if key not in TEXT} == set()


def test_reference_names_every_class_family_and_leaf() -> None:
    leaves = {
        name.rsplit(".", 1)[1]
        for name in CLASSES
        if not name.startswith("identifier.direct.gov_id.")
    }
    words = set(re.findall(r"\w+", TEXT))
    assert leaves - words == set()


def test_reference_gives_the_numbers_of_the_code() -> None:
    for number in (f"{MAX_CHARS:,}", f"{MAX_NODES:,}", str(MAX_DEPTH)):
        assert number in TEXT
    assert f"at most {WINDOW_CHARS} characters" in TEXT
    assert all(f"`{name}`" in TEXT for name in RESERVED_IDS)
    assert f"{MAX_ENTRIES:,} entries, {MAX_ENTRY_CHARS} characters" in TEXT
    assert f"0 to {MAX_RECALL}" in TEXT
    assert f"| {DEFAULT_RECALL} |" in TEXT
    assert f"1 to {MAX_WINDOW:,}" in TEXT
    assert f"at most {MAX_ACCEPTED} of them" in TEXT
    assert f"0 to {MAX_DELAY_S:,}" in TEXT
    assert f"1 to {MAX_TIERS} places" in TEXT
    assert all(f"`{word}`" in TEXT for word in (*get_args(IntentName), *Preference))


def test_reference_names_every_pack_and_profile() -> None:
    assert [name for name in PACKS if f"| `{name}` |" not in TEXT] == []
    assert [name for name in PROFILES if f"| `{name}.yaml` |" not in TEXT] == []
