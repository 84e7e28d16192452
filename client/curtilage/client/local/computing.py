"""How the local model's engine computes: threads, keys and values, a GPU, how long."""

from dataclasses import dataclass
from typing import Final

from curtilage.inference.settings import FlashAttention, KVType

MOST_THREADS: Final = 64  # as the enclave server's
MOST_ANSWER_S: Final = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Computing:
    """How an engine computes; names and meanings are llama.cpp's.

    Attributes:
        threads: of one decode; None: the processors that this process may use.
        kv_type: how keys and values are held; smaller than ``f16`` is less exact.
        flash_attention: ``auto``: where the library can.
        gpu_layers: how many layers a GPU computes.
        answer_s: how long it may read a question and write the answer, in seconds.
    """

    threads: int | None = None
    kv_type: KVType = "f16"
    flash_attention: FlashAttention = "auto"
    gpu_layers: int = 0
    answer_s: int = 3600


AS_USUAL: Final = Computing()
