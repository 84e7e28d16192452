"""The sections about enclaves: what to believe, and how to talk to them.

Shapes, ranges and words of ``attestation:`` and ``transport:``, as in ``model``,
which puts them into the document. What concerns both at once is in ``checks``.
"""

from typing import Annotated, Final, Literal, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    model_validator,
)

from curtilage.policy.addresses import gateway_address, mirror_address
from curtilage.policy.keys import decode_certificate, decode_key
from curtilage.wire.errors import MalformedError
from curtilage.wire.shaping import PADDED, TransportParameters

MAX_ACCEPTED: Final = 16
PAIR: Final = 2
MAX_DELAY_S: Final = 3600


class Section(BaseModel):
    """Keys and values, none of them unknown, none of another type."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, hide_input_in_errors=True
    )


# --- attestation: what evidence must show before anything leaves -------------


Ed25519Key = Annotated[bytes, PlainValidator(decode_key)]
Certificate = Annotated[bytes, PlainValidator(decode_certificate)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/+-]{0,127}$")]
Product = Literal["Milan", "Genoa", "Turin"]
Spl = Annotated[int, Field(ge=0, le=255)]  # a security patch level is one byte


class TrustAnchor(Section):
    """A root certificate that this client pins.

    ``certificate`` is PEM in the file, so that the policy's digest covers it,
    and DER here. It is not examined here; verification does that.
    """

    kind: Literal["amd", "emulated"]
    product: Product
    certificate: Certificate = Field(repr=False)


class Witness(Section):
    """Someone who signs what he has seen of a log."""

    name: Name
    key: Ed25519Key


class Log(Section):
    """The log that a release must be in, and who must have witnessed it."""

    origin: Name
    key: Ed25519Key
    witnesses: tuple[Witness, ...]
    quorum: Annotated[int, Field(ge=1, le=64)]

    @model_validator(mode="after")
    def _no_witness_counts_twice(self) -> Self:
        names = {each.name for each in self.witnesses}
        keys = {each.key for each in self.witnesses} | {self.key}
        if len(names) < len(self.witnesses) or len(keys) <= len(self.witnesses):
            raise ValueError(
                "each witness has a name and a key of its own, other than the log's"
            )
        if self.witnesses and self.quorum > len(self.witnesses):
            raise ValueError("the quorum is larger than the number of witnesses")
        return self


class Releases(Section):
    """Which software an enclave may run."""

    names: tuple[Name, ...]
    log: Log
    max_checkpoint_age_s: Annotated[int, Field(ge=1, le=31_622_400)]


class MinTCB(Section):
    """The oldest firmware that is accepted of one product."""

    product: Product
    bl: Spl
    tee: Spl
    snp: Spl
    ucode: Spl
    fmc: Spl | None = None

    @model_validator(mode="after")
    def _fmc_where_it_exists(self) -> Self:
        if (self.fmc is not None) != (self.product == "Turin"):
            raise ValueError("'fmc' stands for Turin, and for Turin alone")
        return self


class Snp(Section):
    """What a SEV-SNP report must show."""

    min_version: Annotated[int, Field(ge=3, le=5)]  # version 2 names no product
    vmpl: tuple[Annotated[int, Field(ge=0, le=3)], ...]
    allow_vlek: bool
    allow_masked_chip: bool
    min_tcb: tuple[MinTCB, ...]

    @model_validator(mode="after")
    def _one_minimum_for_each_product(self) -> Self:
        if len({each.product for each in self.min_tcb}) < len(self.min_tcb):
            raise ValueError("'min_tcb' names a product twice")
        return self


class Freshness(Section):
    """How old evidence and keys may be, in seconds."""

    max_key_lifetime_s: Annotated[int, Field(ge=1, le=604_800)]
    max_evidence_age_s: Annotated[int, Field(ge=1, le=604_800)]
    clock_skew_s: Annotated[int, Field(ge=0, le=600)]


class Attestation(Section):
    """What evidence must show. No field means 'skip'; an empty list refuses."""

    environment: Literal["production", "development"]
    trust_anchors: tuple[TrustAnchor, ...]
    required_cpu_tees: tuple[Literal["sev-snp", "emulated-sev-snp"], ...]
    releases: Releases
    snp: Snp
    freshness: Freshness


# --- transport: how much the shape of an answer may say ----------------------


class Frames(Section):
    """One way of shaping answers that this client accepts."""

    frame_bytes: int
    period_ms: int
    first_bucket: int
    buckets: int

    @model_validator(mode="after")
    def _possible(self) -> Self:
        try:
            self.parameters()
        except MalformedError as error:
            raise ValueError(str(error)) from None
        return self

    def parameters(self) -> TransportParameters:
        """Return them as evidence binds them."""
        return TransportParameters(
            frame_bytes=self.frame_bytes,
            period_ms=self.period_ms,
            first_bucket=self.first_bucket,
            buckets=self.buckets,
        )


DEFAULT_FRAMES: Final = Frames(
    frame_bytes=PADDED.frame_bytes,
    period_ms=PADDED.period_ms,
    first_bucket=PADDED.first_bucket,
    buckets=PADDED.buckets,
)
Seconds = Annotated[int, Field(ge=0, le=MAX_DELAY_S)]


def _two(value: object) -> object:
    if not isinstance(value, list):
        return value
    entries = cast("list[object]", value)
    if len(entries) != PAIR:
        raise ValueError("expected [least, greatest]")
    return tuple(entries)


class CoverTraffic(Section):
    """Sealed requests that mean nothing, so that silence means nothing either."""

    delay_s: Annotated[tuple[Seconds, Seconds], BeforeValidator(_two)] = (0, 10)
    share: Annotated[int, Field(ge=1, le=100)] = 100  # of the queries kept home

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.delay_s[0] > self.delay_s[1]:
            raise ValueError("'delay_s' ends before it begins")
        return self


class Transport(Section):
    """How an enclave must shape its answers. An empty ``accept`` refuses all."""

    accept: Annotated[tuple[Frames, ...], Field(max_length=MAX_ACCEPTED)] = (
        DEFAULT_FRAMES,
    )
    unsafe_unpadded: bool = False
    cover: CoverTraffic | None = None
    mirror: Annotated[str, AfterValidator(mirror_address)] | None = None
    gateway: Annotated[str, AfterValidator(gateway_address)] | None = None
