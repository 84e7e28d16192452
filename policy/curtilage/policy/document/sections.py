"""The base of all sections, and the section ``transport``.

Types, ranges and enumerations of ``transport:``; ``model`` puts it into the
document. Checks across sections are in ``checks``.
"""

from typing import Annotated, Final, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from curtilage.policy.document.addresses import gateway_address, mirror_address
from curtilage.policy.document.values import class_pattern, file_inside, some
from curtilage.wire.errors import MalformedError
from curtilage.wire.shaping import PADDED, TransportParameters

MAX_ACCEPTED: Final = 16
PAIR: Final = 2
MAX_DELAY_S: Final = 3600


class Section(BaseModel):
    """Keys and values, none of them unknown, none of another type."""

    # An unknown key is an error: a misspelt one would be a protection that does not
    # exist. And no input in errors, since a value may be a word of the organisation's.
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, hide_input_in_errors=True
    )


Id = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,63}$")]
FileName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._/-]{0,254}$"),
    AfterValidator(file_inside),
]
ClassPattern = Annotated[str, AfterValidator(class_pattern)]
Patterns = Annotated[
    tuple[ClassPattern, ...], Field(max_length=100), AfterValidator(some)
]


# --- transport: how much the shape of an answer may reveal -------------------


class Frames(Section):
    """One way of shaping answers that this client accepts."""

    frame_bytes: int
    period_ms: int
    first_bucket: int
    buckets: int

    @model_validator(mode="after")
    def _possible(self) -> Self:
        # The wire's own limits, so that a policy accepts only what can be sent.
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
    # Only for the message: the library's speaks of tuples.
    if not isinstance(value, list):
        return value
    entries = cast("list[object]", value)
    if len(entries) != PAIR:
        raise ValueError("expected [least, greatest]")
    return tuple(entries)


class CoverTraffic(Section):
    """Cover traffic: sealed requests without content that hide local queries."""

    delay_s: Annotated[tuple[Seconds, Seconds], BeforeValidator(_two)] = (0, 10)
    share: Annotated[int, Field(ge=1, le=100)] = 100  # of the queries kept local
    classes: Patterns | None = None  # None: whatever keeps them

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.delay_s[0] > self.delay_s[1]:
            raise ValueError("'delay_s' ends before it begins")
        return self


class Transport(Section):
    """Permitted shapes of an enclave's answers. An empty ``accept`` refuses all."""

    accept: Annotated[tuple[Frames, ...], Field(max_length=MAX_ACCEPTED)] = (
        DEFAULT_FRAMES,
    )
    unsafe_unpadded: bool = False
    cover: CoverTraffic | None = None
    mirror: Annotated[str, AfterValidator(mirror_address)] | None = None
    gateway: Annotated[str, AfterValidator(gateway_address)] | None = None
