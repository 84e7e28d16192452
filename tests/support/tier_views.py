"""Three tiers, what is known of them, and what may be expected of a query."""

from curtilage.client.routing.estimate import Estimate, Intent
from curtilage.client.routing.health import TierView
from curtilage.policy.decision.tiers import Tier, TierKind

DEVICE = Tier(id="device", kind=TierKind.IN_PROCESS)
WARD = Tier(id="ward", kind=TierKind.ON_PREMISES)
ENCLAVE = Tier(id="enclave", kind=TierKind.ATTESTED)
ALL = (DEVICE, WARD, ENCLAVE)

# Quick enough that nothing is late, unless a test makes it so.
DEVICE_VIEW = TierView(
    kind=TierKind.IN_PROCESS,
    quality_permille=600,
    cost_microusd_per_mtok=50_000,
    ttft_p50_ms=300,
    ttft_p95_ms=600,
    prompt_tokens_per_s=500,
    tokens_per_s=25,
    tokens_per_s_p05=20,
)
WARD_VIEW = TierView(
    kind=TierKind.ON_PREMISES,
    quality_permille=750,
    cost_microusd_per_mtok=200_000,
    ttft_p50_ms=300,
    ttft_p95_ms=600,
    prompt_tokens_per_s=2000,
    tokens_per_s=40,
    tokens_per_s_p05=30,
)
ENCLAVE_VIEW = TierView(
    kind=TierKind.ATTESTED,
    quality_permille=900,
    cost_microusd_per_mtok=2_000_000,
    ttft_p50_ms=700,
    ttft_p95_ms=1400,
    prompt_tokens_per_s=4000,
    tokens_per_s=80,
    tokens_per_s_p05=60,
    period_ms=50,
    first_bucket=64,
    buckets=7,
)
VIEWS = {"device": DEVICE_VIEW, "ward": WARD_VIEW, "enclave": ENCLAVE_VIEW}


def expects(gain: float) -> Estimate:
    """An estimate of 200 tokens there and 100 back, known exactly."""
    return Estimate(
        intent=Intent.QA,
        intent_confidence=0.9,
        gain=gain,
        gain_low=gain,
        gain_high=gain,
        source="ngram",
        prompt_tokens=200,
        answer_tokens=100,
    )
