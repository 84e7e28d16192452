"""What a tier costs, as the commands that count a trace see it."""

from dataclasses import dataclass

from curtilage.policy.decision.tiers import TierKind


@dataclass(frozen=True, slots=True, kw_only=True)
class TierFigures:
    """What a tier costs.

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
