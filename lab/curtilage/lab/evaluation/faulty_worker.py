"""A detector process that fails in one chosen way; only for measurements.

It reports that it is ready, as the real one does. When asked, it hangs, dies or sends
malformed replies. Only the evaluation starts it.
"""

import sys
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from curtilage.client.detection.pipe import READY
from curtilage.sandbox.pipe import encode_frame, read_frame
from curtilage.sandbox.wall import Wall

MODULE: Final = "curtilage.lab.evaluation.faulty_worker"
_HANG: Final = "hang"
_ANSWERS: Final[Mapping[str, bytes]] = MappingProxyType(
    {
        _HANG: b"",
        "die": b"",
        "no-frame": b"\xff\xff\xff\xff not a frame",
        "no-findings": encode_frame("nothing found"),
        "another-task": encode_frame({"task": -1, "found": []}),
        "bad-finding": encode_frame({"task": 0, "found": [[[0, "no.class", "x", 0]]]}),
    }
)
FAULTS: Final = tuple(_ANSWERS)


def command(fault: str) -> tuple[str, ...]:
    """Return the command that starts a worker with this fault."""
    return (sys.executable, "-B", "-P", "-m", MODULE, fault)


def main(fault: str) -> int:
    """Report readiness, then fail at the first batch."""
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    replies.write(encode_frame({READY: Wall().to_fields()}))
    replies.flush()
    # The first frame may be the plan, an object; a batch is a list.
    while (frame := read_frame(requests)) is not None:
        if isinstance(frame, list):
            replies.write(_ANSWERS[fault])
            replies.flush()
            while fault == _HANG:
                time.sleep(60)
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
