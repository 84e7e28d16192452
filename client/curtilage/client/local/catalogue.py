"""Models that are known: which file each is, what it needs, and which fits here.

A name of the catalogue stands for one SHA-256 (``data/catalogue.toml``). A file with
another digest is not that model, wherever it comes from.
"""

import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from curtilage.client.errors import ConfigError
from curtilage.client.local.machine import Machine
from curtilage.client.local.shape import ModelShape

TASKS: Final = (
    "classification", "extraction", "summarisation", "generation", "transform", "qa",
    "reasoning", "code",
)  # fmt: skip
"""What a model may be good for; the words of routing's intents."""

DEFAULT_NAME: Final = "default"
"""What the model is called that is installed with us."""

USUAL_CONTEXT: Final = 4096
"""The context that a model is judged by: a letter of five pages, and an answer."""


class LicenceError(ConfigError):
    """The model's licence permits no commercial use, and nobody accepted it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """One model of the catalogue.

    Attributes:
        name: what it is called here; ``default`` is the embedded one.
        title: what its publisher calls it.
        size_bytes: of the file.
        sha256: of the file, hex.
        repository: ``owner/name`` at the hub; empty: it is not fetched.
        revision: the commit there.
        file: the file's path there.
        licence: its SPDX name, or the publisher's.
        commercial: whether the licence permits commercial use.
        shape: layers, heads, context and quantisation.
        good_for: some of ``TASKS``.
        solved: of the six office tasks of docs/costs.md; None: not measured by us.
    """

    name: str
    title: str
    size_bytes: int
    sha256: str
    repository: str = ""
    revision: str = ""
    file: str = ""
    licence: str
    commercial: bool
    shape: ModelShape
    good_for: frozenset[str]
    solved: int | None = None

    @property
    def demonstration(self) -> bool:
        """Whether it is the embedded model, which shows that the path works.

        Its answers are no advice, so wherever they appear they are marked.
        """
        return self.name == DEFAULT_NAME

    @property
    def memory_bytes(self) -> int:
        """About what it takes when it runs, with ``USUAL_CONTEXT`` tokens."""
        return self.shape.memory_bytes(self.size_bytes, USUAL_CONTEXT)

    def require_licence(self, accepted: str | None) -> None:
        """Refuse a model that may not be used commercially, unless that is accepted.

        Args:
            accepted: the licence that somebody read and accepts.

        Raises:
            LicenceError: it is not this one.
        """
        if not self.commercial and accepted != self.licence:
            raise LicenceError(
                f"{self.title} is licensed for research and evaluation alone "
                f"({self.licence}), not for commercial use; read its licence at the "
                f"publisher's, then add --accept-licence {self.licence}"
            )


@cache
def catalogue() -> tuple[KnownModel, ...]:
    """Return every known model, the best first."""
    data = resources.files("curtilage.client.local").joinpath("data", "catalogue.toml")
    return tuple(map(_known, tomllib.loads(data.read_text("utf-8"))["model"]))


def known(name: str) -> KnownModel | None:
    """Return the model of a name, or None."""
    return next((each for each in catalogue() if each.name == name), None)


def by_digest(sha256: str) -> KnownModel | None:
    """Return the model of a digest, whatever it is called here, or None."""
    return next((each for each in catalogue() if each.sha256 == sha256), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Whether a model will do here.

    Attributes:
        model: which.
        here: its file is registered already.
        against: why it will not do; empty: it will.
    """

    model: KnownModel
    here: bool
    against: tuple[str, ...]


def advise(
    machine: Machine,
    *,
    here: Collection[str],
    memory_bytes: int | None = None,
    task: str | None = None,
    accepted: str | None = None,
) -> tuple[Advice, ...]:
    """Say of each known model whether it will do; the first that will is the best.

    Args:
        machine: what is there.
        here: digests of the models that are here already.
        memory_bytes: what a model may take; None: ``machine.spare_bytes``.
        task: one of ``TASKS``, or None: none in particular.
        accepted: a licence that was accepted.
    """
    if memory_bytes is None:
        memory_bytes = machine.spare_bytes

    def against(model: KnownModel) -> list[str]:
        reasons: list[str] = []
        if memory_bytes is not None and model.memory_bytes > memory_bytes:
            reasons.append("memory")
        if (
            model.sha256 not in here
            and machine.room_bytes is not None
            and model.size_bytes > machine.room_bytes
        ):
            reasons.append("room on the disk")
        if not model.commercial and accepted != model.licence:
            reasons.append(f"licence {model.licence}")
        if task is not None and task not in model.good_for:
            reasons.append(f"not for {task}")
        return reasons

    return tuple(
        Advice(model=each, here=each.sha256 in here, against=tuple(against(each)))
        for each in catalogue()
    )


def _known(item: dict[str, Any]) -> KnownModel:
    numbers = {key: item.pop(key) for key in ("layers", "kv_heads", "head_dim")}
    shape = ModelShape(
        **numbers,
        trained_context=item.pop("context_tokens"),
        quantisation=item.pop("quantisation"),
    )
    return KnownModel(shape=shape, good_for=frozenset(item.pop("good_for")), **item)
