"""The settings of ``routing:`` that a router reads, as they are written in a policy.

They express preferences among the permitted tiers and can permit nothing: the part
that permits or denies is the decision's ``Tiering``, which ``routing`` builds.
"""

import re
from enum import StrEnum, unique
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    model_validator,
)

from curtilage.attest.errors import RefusedError
from curtilage.attest.log.note import NoteKey
from curtilage.attest.log.witness_policy import LogPolicy, simple_policy
from curtilage.policy.decision.classes import CLASSES, expand
from curtilage.policy.decision.tiers import TierKind
from curtilage.policy.document.addresses import on_premises_address
from curtilage.policy.document.attestation import Log
from curtilage.policy.document.sections import FileName, Id, Section
from curtilage.policy.document.values import class_pattern

ANYTHING: Final = "*"
_DOLLARS: Final = re.compile(r"([0-9]{1,5})(?:\.([0-9]{1,3}))?")

IntentName: TypeAlias = Literal[
    "classification",
    "extraction",
    "summarisation",
    "generation",
    "transform",
    "qa",
    "reasoning",
    "code",
    "unknown",
]
"""Intents of a question, for a policy's ``overrides``; the estimator's words."""

Permille = Annotated[int, Field(ge=0, le=1000)]
Milliseconds = Annotated[int, Field(ge=1, le=600_000)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def _trusted(value: str, info: ValidationInfo) -> str:
    return value if value == ANYTHING else class_pattern(value, info)


class Priors(Section):
    """The assumed figures of a tier, until some have been measured; None: unknown.

    Attributes:
        ttft_ms: until the first token.
        tokens_per_s: after it.
        quality_permille: of a thousand ordinary questions, how many it solves.
    """

    ttft_ms: Milliseconds | None = None
    tokens_per_s: Annotated[int, Field(ge=1, le=100_000)] | None = None
    quality_permille: Permille | None = None


class TierEntry(Section):
    """One tier.

    Attributes:
        id: its name, as in ``Tiering.tiers``.
        kind: what it is.
        address: of an on-premises server: ``https://host[:port][/path]``, ``http://``
            on this machine in development, or ``unix:/path``.
        model: the name by which such a server knows the model.
        ca: file with the only roots that its certificate may have (PEM); None:
            ``spki_sha256`` identifies it, or the address needs none.
        spki_sha256: the digest of its public key (SubjectPublicKeyInfo).
        trusted: the classes that such a server may receive although they must not
            leave.
        context_tokens: how long question and answer may be together; None: unknown,
            until the tier refuses a text and names it.
        questions_per_min: that it accepts from one device; None: unknown.
        cost_microusd_per_mtok: of a million tokens, in millionths of a dollar.
        priors: what to take for its figures before any was measured.
    """

    id: Id
    kind: Annotated[
        TierKind,
        # The name in version 0.1; ``load`` reports it.
        BeforeValidator(lambda kind: "on_premises" if kind == "house" else kind),
    ]
    address: Annotated[str, AfterValidator(on_premises_address)] | None = None
    model: Annotated[str, Field(pattern=r"^[!-~]{1,200}$")] | None = None
    ca: FileName | None = None
    spki_sha256: Sha256 | None = None
    trusted: Annotated[
        tuple[Annotated[str, AfterValidator(_trusted)], ...], Field(max_length=100)
    ] = ()
    context_tokens: Annotated[int, Field(ge=256, le=100_000_000)] | None = None
    questions_per_min: Annotated[int, Field(ge=1, le=100_000)] | None = None
    cost_microusd_per_mtok: Annotated[int, Field(ge=0, le=10_000_000_000)] = 0
    priors: Priors = Priors()

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        if self.kind is not TierKind.ON_PREMISES:
            given = (self.address, self.model, self.ca, self.spki_sha256, self.trusted)
            if any(given):
                raise ValueError(
                    "'address', 'model', 'ca', 'spki_sha256' and 'trusted' are only "
                    "for a tier of kind 'on_premises'"
                )
            local = self.kind is TierKind.IN_PROCESS
            if local and self.context_tokens is not None:
                raise ValueError("the local model knows its own context size")
            if local and self.questions_per_min is not None:
                raise ValueError("the local model has no limit on questions a minute")
            return self
        if self.address is None or self.model is None:
            raise ValueError("a tier of kind 'on_premises' has 'address' and 'model'")
        pins = (self.ca is not None) + (self.spki_sha256 is not None)
        # Otherwise any public CA could certify an impostor under an internal name,
        # who would then receive data that must not leave.
        if self.address.startswith("https:") and pins != 1:
            raise ValueError("say whose server it is: either 'ca' or 'spki_sha256'")
        if not self.address.startswith("https:") and pins:
            raise ValueError("such an address has no certificate")
        return self

    def trusts(self, own: frozenset[str]) -> frozenset[str]:
        """Return the classes that it may receive although they must not leave."""
        if ANYTHING in self.trusted:
            return CLASSES | own
        return frozenset[str]().union(*(expand(each, own=own) for each in self.trusted))


@unique
class Preference(StrEnum):
    """Place where a policy wants questions of an intent answered.

    ``PREFER_HOME`` and ``PREFER_STRONG``: a local or on-premises tier, or an enclave,
    if one is permitted and available. ``ONLY_HOME``: local, on premises, or not at all.
    """

    PREFER_HOME = "prefer_home"
    PREFER_STRONG = "prefer_strong"
    ONLY_HOME = "only_home"


class Intents(Section):
    """Wish about questions of one kind, and the certainty that it needs."""

    threshold_permille: Permille = 700
    overrides: dict[IntentName, Preference] = Field(
        default_factory=dict[IntentName, Preference]
    )


class Estimator(Section):
    """Estimator of how hard a question is; weights of other origin are pinned.

    Attributes:
        kind: ``ngram``, learned weights; ``rules``, a few of them.
        file: the weights; None: those that come with Curtilage.
        sha256: of the file.
    """

    kind: Literal["ngram", "rules"] = "ngram"
    file: FileName | None = None
    sha256: Sha256 | None = None

    @model_validator(mode="after")
    def _pinned(self) -> Self:
        if (self.file is None) != (self.sha256 is None):
            raise ValueError("'file' and 'sha256' must be given together")
        if self.kind == "rules" and self.file is not None:
            raise ValueError("rules have no 'file'")
        return self


class Weights(Section):
    """The weight of each cost against an expected gain in quality, in thousandths.

    Where there is an aim, it takes the place of ``cost`` and ``switch``.

    Attributes:
        latency: for exceeding the deadline by 100 %.
        cost: for a tenth of a cent.
        risk: for a likely failure: little headroom, a half-open breaker, a scarce
            battery or metered network.
        switch: for another tier than that of the conversation's last answer.
        hysteresis: a difference in quality that is ignored. With an aim: how many
            ranks beyond its line a conversation changes tiers.
    """

    latency: Permille = 250
    cost: Permille = 80
    risk: Permille = 50
    switch: Permille = 20
    hysteresis: Permille = 20


@unique
class AimKind(StrEnum):
    """The kinds of an operator's aim for routing; the keys of ``routing.aim``.

    ``LOCAL_PERCENT``: of a hundred questions that may be sent, so many are answered
    locally. ``QUALITY_LOSS_PERMILLE``: of a thousand, at most so many answers are worse
    than if all were sent. ``COST_PER_1000``: a thousand cost at most so much.
    """

    LOCAL_PERCENT = "local_percent"
    QUALITY_LOSS_PERMILLE = "quality_loss_permille"
    COST_PER_1000 = "cost_per_1000"


def _thousandths(value: object) -> int:
    """Return a number of dollars, such as ``2`` or ``0.125``, in thousandths."""
    # A policy has no fractions: one that is written arrives as text.
    found = _DOLLARS.fullmatch(str(value)) if type(value) in {int, str} else None
    if found is None:
        raise ValueError("expected US dollars, such as 2 or 0.125, at most 99999.999")
    return 1000 * int(found[1]) + int((found[2] or "").ljust(3, "0"))


class Aim(Section):
    """The operator's aim for routing: one of three numbers.

    ``cost_per_1000`` is written in US dollars and held in thousandths of one.
    """

    local_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    quality_loss_permille: Permille | None = None
    cost_per_1000: Annotated[int, BeforeValidator(_thousandths)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self._given()) != 1:
            raise ValueError(f"an aim is exactly one of {', '.join(AimKind)}")
        return self

    def _given(self) -> list[tuple[AimKind, int]]:
        values = [(each, getattr(self, each.value)) for each in AimKind]
        return [(kind, value) for kind, value in values if value is not None]

    @property
    def kind(self) -> AimKind:
        """The one of the three that is given."""
        ((kind, _),) = self._given()
        return kind

    @property
    def value(self) -> int:
        """The amount: percent, thousandths, or thousandths of a US dollar."""
        ((_, value),) = self._given()
        return value


class Budgets(Section):
    """Time limits of a query, where its request sets none."""

    first_signal_ms: Milliseconds = 1000
    total_ms: Milliseconds = 60_000


class Breaker(Section):
    """Conditions under which a failing tier is not asked.

    Attributes:
        fails: how many failures open the breaker.
        window_s: within how many seconds they count.
        open_s: for how many seconds it stays open.
    """

    fails: Annotated[int, Field(ge=1, le=100)] = 3
    window_s: Annotated[int, Field(ge=1, le=3600)] = 30
    open_s: Annotated[int, Field(ge=1, le=3600)] = 30


class Queue(Section):
    """Queue of questions that no tier can answer yet, if their sender wants it.

    Attributes:
        store: ``memory``: until this process ends. ``file``: sealed, on this machine's
            disk. ``none``: no questions wait.
        max_items: how many may wait, or be answered and not collected.
        max_bytes: how much they may take.
        key_file: path of the key that seals the file.
    """

    store: Literal["none", "memory", "file"] = "none"
    max_items: Annotated[int, Field(ge=1, le=100_000)] = 256
    max_bytes: Annotated[int, Field(ge=4096, le=1_073_741_824)] = 8_388_608
    key_file: Annotated[str, Field(pattern=r"^/[^\x00]{1,1000}$")] | None = None

    @model_validator(mode="after")
    def _sealed(self) -> Self:
        # Even what may leave: a finder of the disk is not its intended recipient.
        if self.store == "file" and self.key_file is None:
            raise ValueError("a queue on the disk is sealed: it needs 'key_file'")
        if self.store != "file" and self.key_file is not None:
            raise ValueError("'key_file' is only for a queue in a file")
        return self


@unique
class Speculating(StrEnum):
    """Whether the local model writes a draft that may be discarded.

    ``VERIFY``: if the draft is rejected, an enclave is asked. ``RACE``: it is asked at
    once, in parallel with the draft.
    """

    OFF = "off"
    VERIFY = "verify"
    RACE = "race"


class Speculation(Section):
    """Whether the local model writes drafts, and the thresholds for judging them.

    Attributes:
        mode: how.
        thresholds: file with the certified thresholds by which drafts are judged; None:
            those that come with Curtilage, and of other models there are no drafts.
        sha256: of the file.
    """

    mode: Speculating = Speculating.OFF
    thresholds: FileName | None = None
    sha256: Sha256 | None = None

    @model_validator(mode="after")
    def _certified(self) -> Self:
        if (self.thresholds is None) != (self.sha256 is None):
            raise ValueError("'thresholds' and 'sha256' must be given together")
        return self


class Resilience(Section):
    """Conditions to ask a tier that says 'later' again rather than another one.

    Attributes:
        retry_after_max_s: the longest wait for the same tier; 0: no wait.
        retry_budget_percent: of all first attempts, so many may be followed by another.
    """

    # A peer could impose a longer wait than this indefinitely.
    retry_after_max_s: Annotated[int, Field(ge=0, le=10)] = 10
    retry_budget_percent: Annotated[int, Field(ge=0, le=100)] = 10


class Local(Section):
    """Behaviour of the local model where it cannot answer in full.

    Attributes:
        stall_s: how late it may start before the next permitted tier is asked.
        long_text: whether it reads a part of a text that exceeds its context and may be
            sent to no other tier; otherwise there is no answer.
    """

    stall_s: Annotated[int, Field(ge=1, le=600)] = 8
    long_text: Literal["shorten", "refuse"] = "shorten"

    @property
    def shortens(self) -> bool:
        """Whether a text that exceeds the context is shortened."""
        return self.long_text == "shorten"


class Rollout(Section):
    """Whose manifests say which model this device runs.

    Attributes:
        name: of the line of manifests that is followed.
        log: the log that each must be in, and its witnesses.
    """

    name: Id
    log: Log

    @model_validator(mode="after")
    def _believable(self) -> Self:
        try:
            self.log_policy()
        except RefusedError as refusal:
            raise ValueError(refusal.detail) from None
        return self

    def log_policy(self) -> LogPolicy:
        """Return which log is trusted, and which cosignatures suffice.

        Raises:
            RefusedError: ``policy_invalid``; never once it was loaded.
        """
        return simple_policy(
            log=NoteKey(name=self.log.origin, public_key=self.log.key),
            witnesses=[
                NoteKey(name=each.name, public_key=each.key)
                for each in self.log.witnesses
            ],
            quorum=self.log.quorum,
        )
