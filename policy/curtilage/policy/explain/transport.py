"""The transport section in words, for the people who are responsible for it."""

from collections.abc import Iterator
from typing import Final

from curtilage.policy.document.sections import CoverTraffic, Frames, Transport

NOTHING: Final = "nothing: no enclave shapes its answers as this policy asks"
UNSAFE: Final = (
    "UNSAFE: enclaves that do not shape their answers are accepted too; an "
    "observer of the network, the relay included, then sees the length and timing of "
    "each answer, which often reveals its subject"
)
NO_COVER: Final = (
    "none: an observer sees when a query is kept local, since nothing is sent then"
)
NO_MIRROR: Final = "none: key lists are not compared with a second source"
ALIKE: Final = "all answers alike"
_PERCENT: Final = 100
_KIB: Final = 1024
_SHARES_AT_HOME: Final = (20, 50, 80)


def transport_in_words(transport: Transport) -> Iterator[tuple[str, str]]:
    """Yield what the section means: a label and a sentence each."""
    for frames in transport.accept:
        yield "answers", frames_in_words(frames)
    if transport.unsafe_unpadded:
        yield "answers", UNSAFE
    elif not transport.accept:
        yield "answers", NOTHING
    if transport.cover is None:
        yield "cover", NO_COVER
    else:
        yield "cover", _cover(transport.cover)
        yield "cost", _cost(transport, transport.cover)
    if transport.mirror is None:
        yield "mirror", NO_MIRROR
    else:
        yield "mirror", f"{transport.mirror}; key lists must be the same there"
    if transport.gateway is not None:
        yield "gateway", f"{transport.gateway}; the relay must be another owner's"


def frames_in_words(frames: Frames) -> str:
    """Say what one way of shaping answers costs and reveals."""
    parameters = frames.parameters()
    shortest, longest = (
        number * frames.period_ms / 1000
        for number in (frames.first_bucket, parameters.max_frames)
    )
    lengths = ALIKE if frames.buckets == 1 else f"{frames.buckets} lengths"
    return (
        f"in frames of {frames.frame_bytes:,} bytes, one every {frames.period_ms} ms; "
        f"{lengths}, {shortest:,g} s to {longest:,g} s"
    )


def cover_percent(cover: CoverTraffic, *, at_home: int) -> int:
    """Return how many cover requests there are for 100 real ones.

    Args:
        cover: what the policy says.
        at_home: how many of 100 queries are kept local, and are of the classes that
            cover is limited to; 0 to 99.
    """
    return round(at_home * cover.share / (_PERCENT - at_home))


def _cost(transport: Transport, cover: CoverTraffic) -> str:
    shares = ", ".join(
        f"{at_home} kept local: {cover_percent(cover, at_home=at_home)} % more"
        for at_home in _SHARES_AT_HOME
    )
    shortest = min(
        (each.frame_bytes * each.first_bucket for each in transport.accept), default=0
    )
    return (
        f"cover requests, of 100 queries {shares}; each is answered with "
        f"{shortest / _KIB:,g} KiB at least, and no model runs for it"
    )


def _cover(cover: CoverTraffic) -> str:
    first, last = cover.delay_s
    of = ""
    if cover.classes is not None:
        of = f" and in which {' or '.join(cover.classes)} is found"
    which = (
        f"each query that is kept local{of} is followed by"
        if cover.share == _PERCENT
        else f"of 100 queries that are kept local{of}, {cover.share} are followed by"
        if cover.share > 1
        else f"of 100 queries that are kept local{of}, one is followed by"
    )
    return f"{which} a sealed request without content, {first} to {last} s later"
