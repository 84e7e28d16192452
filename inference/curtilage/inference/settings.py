"""The settings of an engine: its context, threads, queue and turns.

Needs no library: also the process that starts the engine's own reads them.
"""

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

KVType: TypeAlias = Literal["f16", "q8_0", "q4_0"]
"""How keys and values are held, as llama.cpp names it: 16 bits a number, or blocks of
32 numbers with 8 or 4 bits each and a factor."""
FlashAttention: TypeAlias = Literal["auto", "on", "off"]
"""Whether attention is computed in pieces; ``auto``: on a GPU, and for quantised keys
and values, which need it. On processors an answer behind a long text is written up to
twice as fast without (``docs/costs.md``)."""
Isolation: TypeAlias = Literal["shared", "process"]
"""What separates requests: each has a sequence of one process's context, or a process
of its own, which shares the weights."""

KV_TYPES: Final[tuple[KVType, ...]] = ("f16", "q8_0", "q4_0")
FLASH_ATTENTION: Final[tuple[FlashAttention, ...]] = ("auto", "on", "off")
ISOLATIONS: Final[tuple[Isolation, ...]] = ("shared", "process")
MAX_GPU_LAYERS: Final = 1000
"""More than any model has, so it means all of them."""

NEEDS_FLASH: Final = "quantised keys and values (kv_type) need flash attention"

MAX_THREADS: Final = 16
"""Decoding is bound by memory; more threads than this only wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The limits of one engine.

    Attributes:
        context_tokens: prompt and answer together; at most what the model was
            trained for.
        least_context_tokens: if memory is short, a context is made that is smaller
            by half or more, but not below this; None: no smaller one is accepted.
        threads: threads of one decode; None: the CPUs this process may use.
        max_queued: how many requests may wait.
        sequences: how many are answered at the same time, each with a context of
            ``context_tokens``; one, if memory is short or the model's sequences
            cannot be erased one by one.
        niceness: of the computing threads, 0 to 19; if the system supports niceness
            per thread.
        turn_s: how long one may be read, and then written, while others wait.
        kv_type: see ``KVType``. A quantised one needs flash attention.
        flash_attention: see ``FlashAttention``.
        gpu_layers: how many layers a GPU computes; 0: none does.

    Raises:
        ValueError: keys and values are quantised without flash attention.
    """

    context_tokens: int = 4096
    least_context_tokens: int | None = None
    threads: int | None = None
    max_queued: int = 16
    sequences: int = 1
    niceness: int = 0
    turn_s: float = 2.0
    kv_type: KVType = "f16"
    flash_attention: FlashAttention = "auto"
    gpu_layers: int = 0

    def __post_init__(self) -> None:
        """Refuse what the library refuses, before it is asked."""
        if self.kv_type != "f16" and self.flash_attention == "off":
            raise ValueError(NEEDS_FLASH)

    @property
    def attention(self) -> FlashAttention:
        """What ``flash_attention`` means with the other settings."""
        if self.flash_attention != "auto" or self.kv_type != "f16" or self.gpu_layers:
            return self.flash_attention
        return "off"


DEFAULTS: Final = EngineSettings()


def available_cpus() -> int:
    """Return how many CPUs this process may use, at most ``MAX_THREADS``."""
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), MAX_THREADS)
    return min(os.cpu_count() or 1, MAX_THREADS)


def lower_priority(niceness: int) -> None:
    """Lower the priority of this thread, and of those that it will start.

    Args:
        niceness: 0 to 19; 0 changes nothing.
    """
    if niceness and sys.platform == "linux":
        # Refused if it is that low already, or by a sandbox.
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, niceness)
