"""Selects the estimator: the learned one, or the rules if numpy is missing.

This module reads the files that come with the package: the weights, and the thresholds.
"""

from importlib import resources
from typing import Literal

from curtilage.client.routing.estimate import THRESHOLD, Estimator, RulesEstimator
from curtilage.client.routing.thresholds import Shipped, read_shipped

FOLDER = "weights"
FILE = "router.npz"
DRAFTS = "drafts.json"


def open_estimator(
    kind: Literal["ngram", "rules"] = "ngram",
    *,
    threshold: float = THRESHOLD,
    data: bytes | None = None,
    sha256: str = "",
) -> Estimator:
    """Return the estimator that a policy names.

    Args:
        kind: the learned one, or the rules.
        threshold: the confidence from which an intent is named.
        data: the operator's own file of weights; None: the shipped one.
        sha256: its digest, from the policy.

    Raises:
        RouterModelError: the file of weights does not match the digest, or is invalid.
            The rules are not used instead, since somebody changed it.
    """
    if kind == "rules":
        return RulesEstimator(threshold)
    try:
        from curtilage.client.routing.ngram import (  # noqa: PLC0415 - needs numpy
            SHIPPED_SHA256,
            NgramEstimator,
            load_weights,
        )
    except ModuleNotFoundError as missing:
        # Any other missing module is a fault of the installation, and must not silently
        # change how queries are routed.
        if missing.name != "numpy":
            raise
        return RulesEstimator(threshold)
    if data is None:
        shipped = resources.files("curtilage.client.routing").joinpath(FOLDER, FILE)
        # The digest is part of the code, not of the file: the file could be replaced
        # together with a digest next to it.
        data, sha256 = shipped.read_bytes(), SHIPPED_SHA256
    return NgramEstimator(load_weights(data, sha256), threshold)


def shipped_thresholds() -> tuple[Shipped, ...]:
    """Return the thresholds for drafts that come with the package.

    Raises:
        ConfigError: somebody changed the file.
    """
    shipped = resources.files("curtilage.client.routing").joinpath(FOLDER, DRAFTS)
    return read_shipped(shipped.read_bytes())
