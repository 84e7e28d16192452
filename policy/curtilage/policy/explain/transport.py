"""The transport section in words, for the people who have to answer for it."""

from collections.abc import Iterator
from typing import Final

from curtilage.policy.document.sections import CoverTraffic, Frames, Transport

NOTHING: Final = "nothing: no enclave shapes its answers as this policy asks"
UNSAFE: Final = (
    "UNSAFE: enclaves that do not shape their answers are accepted too; whoever is "
    "on the line, the relay included, then sees how long each answer is and how it "
    "comes, which often tells what it is about"
)
NO_COVER: Final = (
    "none: whoever watches sees when a query stays here, for nothing is sent then"
)
NO_MIRROR: Final = "none: key lists are not compared with a second source"
_PERCENT: Final = 100


def transport_in_words(transport: Transport) -> Iterator[tuple[str, str]]:
    """Yield what the section means: a label and a sentence each."""
    for frames in transport.accept:
        yield "answers", frames_in_words(frames)
    if transport.unsafe_unpadded:
        yield "answers", UNSAFE
    elif not transport.accept:
        yield "answers", NOTHING
    yield "cover", NO_COVER if transport.cover is None else _cover(transport.cover)
    if transport.mirror is None:
        yield "mirror", NO_MIRROR
    else:
        yield "mirror", f"{transport.mirror}; key lists must be the same there"
    if transport.gateway is not None:
        yield "gateway", f"{transport.gateway}; the relay must be another owner's"


def frames_in_words(frames: Frames) -> str:
    """Say what one way of shaping answers costs and shows."""
    parameters = frames.parameters()
    shortest, longest = (
        number * frames.period_ms / 1000
        for number in (frames.first_bucket, parameters.max_frames)
    )
    lengths = (
        "all answers alike" if frames.buckets == 1 else f"{frames.buckets} lengths"
    )
    return (
        f"in frames of {frames.frame_bytes:,} bytes, one every {frames.period_ms} ms; "
        f"{lengths}, {shortest:,g} s to {longest:,g} s"
    )


def _cover(cover: CoverTraffic) -> str:
    first, last = cover.delay_s
    which = (
        "each query that stays here is followed by"
        if cover.share == _PERCENT
        else f"of 100 queries that stay here, {cover.share} are followed by"
        if cover.share > 1
        else "of 100 queries that stay here, one is followed by"
    )
    return f"{which} a sealed request that means nothing, {first} to {last} s on"
