"""Costs of a tier, as the commands that count a trace see them."""

from dataclasses import dataclass

from curtilage.policy.decision.tiers import TierKind


@dataclass(frozen=True, slots=True, kw_only=True)
class TierFigures:
    """Costs of a tier.

    Attributes:
        id: its name in policy and trace.
        kind: what it is.
        microusd_per_mtok: of a million tokens, read or written.
        joules_per_token: energy, likewise; None: not known.
    """

    id: str
    kind: TierKind
    microusd_per_mtok: int
    joules_per_token: float | None = None
