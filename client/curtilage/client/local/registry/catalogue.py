"""The catalogue of known models: file, requirements, and fit for this machine.

A name in the catalogue identifies one SHA-256 (``data/catalogue.toml``). A file with
another digest is not that model, whatever its source.
"""

import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from curtilage.client.errors import ConfigError
from curtilage.client.local.registry.machine import Machine
from curtilage.inference.shape import ModelShape

TASKS: Final = (
    "classification", "extraction", "summarisation", "generation", "transform", "qa",
    "reasoning", "code",
)  # fmt: skip
"""Tasks that a model may be good for; the same words as routing's intents."""

DEFAULT_NAME: Final = "default"
"""Name of the model that is installed with this program."""

USUAL_CONTEXT: Final = 4096
"""The context by which a model is judged: a letter of five pages, and an answer."""


class LicenceError(ConfigError):
    """The model's licence forbids commercial use and was not accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """One model of the catalogue.

    Attributes:
        name: its name here; ``default`` is the embedded one.
        title: its publisher's name for it.
        size_bytes: of the file.
        sha256: of the file, hex.
        repository: ``owner/name`` on the hub; empty: it is not downloaded.
        revision: the commit there.
        file: the file's path in the repository.
        licence: its SPDX identifier, or the publisher's name.
        commercial: whether the licence permits commercial use.
        shape: layers, heads, context and quantisation.
        good_for: some of ``TASKS``.
        solved: of the six office tasks of docs/costs.md; None: not measured.
        quality_permille: of a thousand ordinary questions, how many routing takes it
            to solve; docs/costs.md says which were measured.
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
    quality_permille: int
    solved: int | None = None

    @property
    def demonstration(self) -> bool:
        """Whether it is the embedded model, a demonstration.

        Its answers are not reliable, so they are marked wherever they are shown.
        """
        return self.name == DEFAULT_NAME

    @property
    def memory_bytes(self) -> int:
        """Approximate memory that it needs, with ``USUAL_CONTEXT`` tokens."""
        return self.shape.memory_bytes(self.size_bytes, USUAL_CONTEXT)

    def require_licence(self, accepted: str | None) -> None:
        """Refuse a model without commercial use, unless its licence is accepted.

        Args:
            accepted: the licence that the user has read and accepts.

        Raises:
            LicenceError: it was not accepted, or is another one.
        """
        if not self.commercial and accepted != self.licence:
            raise LicenceError(
                f"{self.title} is licensed for research and evaluation only "
                f"({self.licence}), not for commercial use; read its licence on the "
                f"publisher's site, then add --accept-licence {self.licence}"
            )


@cache
def catalogue() -> tuple[KnownModel, ...]:
    """Return every known model, the best first."""
    data = resources.files("curtilage.client.local.registry") / "data/catalogue.toml"
    models: list[KnownModel] = []
    for item in tomllib.loads(data.read_text("utf-8"))["model"]:
        numbers = {key: item.pop(key) for key in ("layers", "kv_heads", "head_dim")}
        shape = ModelShape(
            **numbers,
            trained_context=item.pop("context_tokens"),
            quantisation=item.pop("quantisation"),
        )
        good_for = frozenset(item.pop("good_for"))
        models.append(KnownModel(shape=shape, good_for=good_for, **item))
    return tuple(models)


def known(name: str) -> KnownModel | None:
    """Return the model of a name, or None."""
    return next((each for each in catalogue() if each.name == name), None)


def by_digest(sha256: str) -> KnownModel | None:
    """Return the model with a digest, under any name, or None."""
    return next((each for each in catalogue() if each.sha256 == sha256), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Whether a model is suitable for this machine.

    Attributes:
        model: the model.
        here: whether its file is already registered.
        against: reasons against it; empty: it is suitable.
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
    """Assess all known models; the first suitable one is the best.

    Args:
        machine: the machine's resources.
        here: digests of registered models.
        memory_bytes: limit for the model's memory; None: ``machine.spare_bytes``.
        task: one of ``TASKS``; None: none in particular.
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
