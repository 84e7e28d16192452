"""Numbers about one sampled token, from its row of logits; pure."""

import numpy as np
import numpy.typing as npt


def log_probability(logits: npt.NDArray[np.float32], token: int) -> float:
    """Return the natural logarithm of the token's probability.

    Softmax of the whole row, before temperature and nucleus. The row's maximum
    is subtracted first, so nothing overflows; sums in double precision.

    Args:
        logits: one value for each token of the vocabulary.
        token: index into it.
    """
    row = logits.astype(np.float64)
    row -= row.max()
    return float(row[token] - np.log(np.exp(row).sum()))
