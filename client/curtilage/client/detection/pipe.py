"""The words and times of the pipe to the detectors' process, for both ends.

The frames themselves are ``curtilage.sandbox.pipe``.
"""

from typing import Final

READY: Final = "ready"
BROKEN: Final = "broken"
LOADING: Final = "loading"
GRACE_S: Final = 2.0  # how long a late answer is awaited before the worker is killed
SPARE: Final = "--spare"
LOAD_PROCESSOR_S: Final = 30.0
LOAD_WALL_S: Final = 120.0
"""The limit for everything that a worker loads at first use, in total."""
