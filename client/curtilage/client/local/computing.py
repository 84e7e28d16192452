"""How the local model's engine computes: threads, keys and values, a GPU."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

KVType: TypeAlias = Literal["f16", "q8_0", "q4_0"]
FlashAttention: TypeAlias = Literal["auto", "on", "off"]

KV_TYPES: Final[tuple[KVType, ...]] = ("f16", "q8_0", "q4_0")
FLASH_ATTENTION: Final[tuple[FlashAttention, ...]] = ("auto", "on", "off")
MOST_THREADS: Final = 64  # as the enclave server's
MOST_GPU_LAYERS: Final = 1000  # more than any model has


@dataclass(frozen=True, slots=True, kw_only=True)
class Computing:
    """How an engine computes; names and meanings are llama.cpp's.

    Attributes:
        threads: of one decode; None: the processors that this process may use.
        kv_type: how keys and values are held; smaller than ``f16`` is less exact.
        flash_attention: ``auto``: where the library can.
        gpu_layers: how many layers a GPU computes.
    """

    threads: int | None = None
    kv_type: KVType = "f16"
    flash_attention: FlashAttention = "auto"
    gpu_layers: int = 0


AS_USUAL: Final = Computing()
