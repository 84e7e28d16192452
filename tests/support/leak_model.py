"""A classifier of traces by gradient boosting, with scikit-learn.

It has no types, so that everything of it is unknown to a strict checker. It is imported
by who classifies: `make test` only collects those tests, and does not install it.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from collections.abc import Sequence

import numpy as np

from support.leak import Trace, features

FOLDS = 5


def classify(traces: Sequence[Trace]) -> float:
    """Return the share of traces whose kind is predicted, by cross-validation."""
    from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415
    from sklearn.model_selection import (  # noqa: PLC0415
        StratifiedKFold,
        cross_val_predict,
    )
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    described = np.stack([features(trace) for trace in traces])
    described = described[:, described.std(axis=0) > 0]
    kinds = np.asarray([trace.kind for trace in traces])
    model = HistGradientBoostingClassifier(
        max_iter=20,
        max_leaf_nodes=8,
        min_samples_leaf=5,
        max_bins=16,
        random_state=7,
    )
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=7)
    # Its threads wait by spinning: on a busy machine, one is much quicker than two.
    with threadpool_limits(limits=1):
        predicted = cross_val_predict(model, described, kinds, cv=folds)
    return float(np.mean(np.asarray(predicted) == kinds))
