"""Validated sampling settings; needs no library.

A ``SamplingSettings`` object is always within its ranges, so nothing below has to check
again.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from curtilage.inference.errors import RequestError

SEED_MODULUS: Final = 2**32 - 1
"""Seeds of the library are 0 to 2^32 - 2: it reads 2^32 - 1 as "random"."""

MAX_SEED_BITS: Final = 64
MAX_TEMPERATURE: Final = 2.0
MAX_STOP_STRINGS: Final = 16
"""Each is searched for in every piece of the answer."""

MAX_STOP_CHARS: Final = 1024
"""As much of the answer's end may have to be held back."""

MAX_PENALTY: Final = 2.0
MAX_BIAS: Final = 100.0
MAX_BIASED_TOKENS: Final = 1024
MAX_TOKEN_ID: Final = 2**31 - 1
"""The library's tokens are 32-bit; the engine compares with the vocabulary."""

MAX_TOP_LOGPROBS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSettings:
    """How long an answer may be and how its tokens are drawn.

    Attributes:
        max_tokens: at least 1.
        temperature: 0 (greedy) to 2.
        top_p: above 0, at most 1.
        seed: any integer of 64 bits; None draws one for each request.
        stop: non-empty strings that end the answer and are not part of it.
        logprobs: report the log-probability of each token, and its bytes.
        top_logprobs: report as many of the likeliest tokens at each place, 0 to 20;
            only together with ``logprobs``.
        margins: report the model's confidence in each token: its log-probability, and
            the difference between the likeliest one's and the second one's.
        frequency_penalty: -2 to 2; lowers a token's logit by so much for each time that
            the answer has it. The prompt does not count.
        presence_penalty: -2 to 2; lowers the logit of each token that the answer has.
        logit_bias: pairs of a token of the model's vocabulary and what is added to its
            logit, -100 to 100.

    Raises:
        RequestError: a value is outside its range.
    """

    max_tokens: int = 512
    temperature: float = 0.7
    top_p: float = 0.95
    seed: int | None = None
    stop: tuple[str, ...] = field(default=(), repr=False)
    logprobs: bool = False
    margins: bool = False
    top_logprobs: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        """Check every range."""
        if self.max_tokens < 1:
            raise RequestError("max_tokens is less than 1")
        # Written so that a NaN is refused too.
        if not 0 <= self.temperature <= MAX_TEMPERATURE:
            raise RequestError(f"temperature is not 0 to {MAX_TEMPERATURE:g}")
        if not 0 < self.top_p <= 1:
            raise RequestError("top_p is not above 0 and at most 1")
        if self.seed is not None and self.seed.bit_length() > MAX_SEED_BITS:
            raise RequestError(f"seed has more than {MAX_SEED_BITS} bits")
        if len(self.stop) > MAX_STOP_STRINGS:
            raise RequestError(f"more than {MAX_STOP_STRINGS} stop strings")
        # An empty one matches everywhere, and would end the answer before it begins.
        if not all(1 <= len(text) <= MAX_STOP_CHARS for text in self.stop):
            raise RequestError(f"a stop string is not 1 to {MAX_STOP_CHARS} characters")
        self._check_logprobs()
        self._check_penalties()
        self._check_bias()

    def _check_logprobs(self) -> None:
        if not 0 <= self.top_logprobs <= MAX_TOP_LOGPROBS:
            raise RequestError(f"top_logprobs is not 0 to {MAX_TOP_LOGPROBS}")
        if self.top_logprobs and not self.logprobs:
            raise RequestError("top_logprobs needs logprobs")

    def _check_penalties(self) -> None:
        for penalty in (self.frequency_penalty, self.presence_penalty):
            if not abs(penalty) <= MAX_PENALTY:
                raise RequestError(f"a penalty is not within {MAX_PENALTY:g}")

    def _check_bias(self) -> None:
        if len(self.logit_bias) > MAX_BIASED_TOKENS:
            raise RequestError(f"logit_bias has more than {MAX_BIASED_TOKENS} tokens")
        if len({token for token, _ in self.logit_bias}) < len(self.logit_bias):
            raise RequestError("logit_bias names a token twice")
        for token, bias in self.logit_bias:
            if not 0 <= token <= MAX_TOKEN_ID:
                raise RequestError("logit_bias names a token that cannot exist")
            if not abs(bias) <= MAX_BIAS:
                raise RequestError(f"a bias is not within {MAX_BIAS:g}")


def choose_seed(
    seed: int | None, *, random: Callable[[int], bytes] = secrets.token_bytes
) -> int:
    """Return the library's seed for one request, 0 to 2^32 - 2.

    Without a seed in the request, one is drawn for this request alone: the library's
    own default is one fixed sequence for all requests.
    """
    if seed is None:
        seed = int.from_bytes(random(8), "big")
    return seed % SEED_MODULUS
