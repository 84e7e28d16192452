"""Learns linear heads for gain and intents on the product's own features."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.linalg import lsqr

from curtilage.client.routing.features import BUCKETS, CUES, features_of
from curtilage.client.routing.ngram import even_dense
from curtilage.lab.routing.refit import DENSE_SCALE, PENALTY, PLAIN

INTENT_DENSE_SCALE = 0.05
INTENT_INVERSE_PENALTY = 60.0
_LEAST_SPREAD = 1e-3

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


class Texts:
    """The features of texts: hashed counts ``[n, B]``, and dense numbers ``[n, D]``."""

    def __init__(self, texts: Sequence[str]) -> None:
        made = [features_of(text) for text in texts]
        ends = np.cumsum([0, *(len(each.places) for each in made)])
        places = np.concatenate([each.places for each in made])
        counts = np.concatenate([each.counts for each in made])
        self.hashed = sparse.csr_matrix(
            (counts, places, ends), shape=(len(made), BUCKETS)
        )
        self.dense: Floats = np.array([each.dense for each in made])

    def taken(self, rows: Places) -> "Texts":
        """Return some of the rows."""
        some = Texts.__new__(Texts)
        some.hashed, some.dense = self.hashed[rows], self.dense[rows]
        return some

    def joined(self, others: "Texts") -> "Texts":
        """Return these rows followed by others."""
        both = Texts.__new__(Texts)
        both.hashed = sparse.vstack([self.hashed, others.hashed]).tocsr()
        both.dense = np.vstack([self.dense, others.dense])
        return both


def rarity(hashed: sparse.csr_matrix) -> npt.NDArray[np.float16]:
    """Return the root of the inverse document frequency of each bucket."""
    seen = np.asarray((hashed > 0).sum(axis=0)).ravel()
    return np.sqrt(np.log((1 + hashed.shape[0]) / (1 + seen))).astype(np.float16)


def spread(dense: Floats) -> tuple[Floats, Floats]:
    """Return the mean and the spread of dense numbers."""
    return dense.mean(axis=0), dense.std(axis=0) + np.float32(_LEAST_SPREAD)


def design(
    texts: Texts, rare: npt.NDArray[np.float16], mean: Floats, wide: Floats
) -> tuple[sparse.csr_matrix, Floats]:
    """Return the design matrices: hashed ones of norm 1, standardised dense ones."""
    weighed = texts.hashed @ sparse.diags(rare.astype(np.float32))
    norms = np.sqrt(np.asarray(weighed.multiply(weighed).sum(axis=1)).ravel())
    hashed = sparse.diags(1 / np.maximum(norms, 1e-9)) @ weighed
    return hashed.tocsr(), even_dense(texts.dense, mean, wide)


def ridge(
    hashed: sparse.csr_matrix, dense: Floats, wanted: Numbers
) -> tuple[Numbers, Numbers, float]:
    """Return the weights of buckets and of dense numbers (0 for cues), and the bias."""
    bias = float(wanted.mean())
    plain = dense[:, :PLAIN] * DENSE_SCALE
    both = sparse.hstack([hashed, sparse.csr_matrix(plain)]).tocsr()
    found = lsqr(both, wanted - bias, damp=PENALTY**0.5, iter_lim=200)[0]
    head = np.concatenate([found[BUCKETS:] * DENSE_SCALE, np.zeros(CUES)])
    return found[:BUCKETS], head, bias


def logits(
    hashed: sparse.csr_matrix,
    dense: Floats,
    labels: Sequence[str],
    weights: Sequence[float],
) -> tuple[Numbers, Numbers, Numbers, list[str]]:
    """Return weights ``[B, L]``, ``[D, L]``, biases ``[L]``, and the labels' order."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - takes a second

    both = sparse.hstack([hashed, sparse.csr_matrix(dense * INTENT_DENSE_SCALE)])
    model = LogisticRegression(C=INTENT_INVERSE_PENALTY, max_iter=120, tol=1e-3)
    model.fit(both.tocsr(), labels, sample_weight=weights)
    found = model.coef_.T
    return (
        found[:BUCKETS],
        found[BUCKETS:] * INTENT_DENSE_SCALE,
        model.intercept_,
        list(model.classes_),
    )
