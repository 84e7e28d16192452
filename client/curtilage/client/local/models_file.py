"""The file of local models by name, and of aliases: TOML.

::

    most_loaded = 1

    [models.local-small]
    model = "qwen2.5-0.5b"

    [models.local-code]
    model = "/srv/models/coder.gguf"
    sha256 = "9f2c…"
    context_tokens = 16384

    [aliases]
    gpt-4o-mini = "local-small"
    "*" = "curtilage"
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from curtilage.client.chat.model_names import ModelNames
from curtilage.client.chat.openai_fields import MODEL_ID
from curtilage.client.errors import ConfigError
from curtilage.client.local.computing import (
    AS_USUAL,
    MOST_ANSWER_S,
    MOST_THREADS,
    Computing,
)
from curtilage.client.local.registry.store import SHA256_HEX
from curtilage.client.system.toml_tables import Tables, read_tree
from curtilage.inference.settings import FLASH_ATTENTION, KV_TYPES, MAX_GPU_LAYERS

MAX_FILE_BYTES: Final = 1 << 20
LEAST_CONTEXT, MOST_CONTEXT = 256, 131_072  # tokens; as the enclave server's
MOST_SEQUENCES: Final = 64  # as the enclave server's
MOST_MODELS: Final = 64
_Word = TypeVar("_Word", bound=str)

A_MODEL: Final = "a name of `curtilage models list`, or a GGUF file"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """One local model of the file.

    Attributes:
        model: a registered name, ``default``, or the path of a file.
        sha256: its digest, hex; required for a path.
        context_tokens: question and answer together; None: the default.
        sequences: how many queries it answers at a time; None: the default.
        computing: how it computes.
        load_at_start: rather than when it is first asked.
    """

    model: str
    sha256: str | None = None
    context_tokens: int | None = None
    sequences: int | None = None
    computing: Computing = AS_USUAL
    load_at_start: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsFile:
    """The local models by name, and other names.

    Attributes:
        path: of the file.
        models: the models, by their names.
        aliases: other names.
        most_loaded: how many may be loaded at a time, besides the usual model; None:
            all.
    """

    path: Path
    models: Mapping[str, ModelSettings]
    aliases: Mapping[str, str]
    most_loaded: int | None = None

    @property
    def names(self) -> ModelNames:
        """What requests may ask for."""
        return ModelNames(models=frozenset(self.models), aliases=self.aliases)


def read_models_file(path: Path) -> ModelsFile:
    """Read a file of models.

    Raises:
        ConfigError: it cannot be read, or is wrong; says everything that is.
    """
    tree = read_tree(path, MAX_FILE_BYTES)
    reader = _Reader(path.absolute().parent)
    most = reader.number(tree, "most_loaded", 1, MOST_MODELS)
    tables, others = reader.table(tree, "models"), reader.table(tree, "aliases")
    models = {name: reader.model(name, value) for name, value in tables.items()}
    aliases = {name: reader.alias(name, value) for name, value in others.items()}
    reader.nothing_else(tree)
    found = ModelsFile(path=path, models=models, aliases=aliases, most_loaded=most)
    if len(models) > MOST_MODELS:
        reader.problems.append(f"there are more than {MOST_MODELS} models")
    if problems := [*reader.problems, *found.names.problems()]:
        raise ConfigError("\n".join(f"{path}: {each}" for each in problems))
    return found


class _Reader(Tables):
    """Takes the values of this file."""

    def alias(self, name: str, value: object) -> str:
        if isinstance(value, str):
            return value
        self.problems.append(f"aliases.{name} is not a text")
        return MODEL_ID

    def model(self, name: str, value: object) -> ModelSettings:
        where = f"models.{name}."
        table = self.table({where: value}, where)
        model, sha256 = self._file(table, where)
        load = table.pop("load_at_start", False)
        if not isinstance(load, bool):
            self.problems.append(f"{where}load_at_start is neither true nor false")
        settings = ModelSettings(
            model=model,
            sha256=sha256,
            context_tokens=self.number(
                table, "context_tokens", LEAST_CONTEXT, MOST_CONTEXT, where=where
            ),
            sequences=self.number(table, "sequences", 1, MOST_SEQUENCES, where=where),
            computing=self._computing(table, where),
            load_at_start=load is True,
        )
        self.nothing_else(table, where=where)
        return settings

    def _computing(self, table: dict[str, Any], where: str) -> Computing:
        kv_type = self._one_of(KV_TYPES, table, "kv_type", where)
        flash = self._one_of(FLASH_ATTENTION, table, "flash_attention", where)
        if kv_type != AS_USUAL.kv_type and flash == "off":
            self.problems.append(f"{where}kv_type {kv_type} needs flash attention")
        layers = self.number(table, "gpu_layers", 0, MAX_GPU_LAYERS, where=where)
        return Computing(
            threads=self.number(table, "threads", 1, MOST_THREADS, where=where),
            kv_type=kv_type,
            flash_attention=flash,
            gpu_layers=layers or 0,
            answer_s=self.number(table, "answer_s", 1, MOST_ANSWER_S, where=where)
            or AS_USUAL.answer_s,
        )

    def _one_of(
        self, choices: Sequence[_Word], table: dict[str, Any], name: str, where: str
    ) -> _Word:
        """Read one of several words; the first is the default."""
        value: object = table.pop(name, choices[0])
        for each in choices:
            if each == value:
                return each
        self.problems.append(f"{where}{name} is not one of {', '.join(choices)}")
        return choices[0]

    def _file(self, table: dict[str, Any], where: str) -> tuple[str, str | None]:
        model, sha256 = table.pop("model", None), table.pop("sha256", None)
        if not isinstance(model, str) or not model or not model.isprintable():
            self.problems.append(f"{where}model is missing: {A_MODEL}")
            return "", None
        is_path = os.sep in model or model.endswith(".gguf")
        if sha256 is None and is_path:
            self.problems.append(f"{where}sha256 is missing: a file needs it")
        if sha256 is not None and not (
            isinstance(sha256, str) and SHA256_HEX.fullmatch(sha256.lower())
        ):
            self.problems.append(f"{where}sha256 is not 64 hex digits")
        # Relative to the file, so that it means the same wherever it is read from.
        return str(self.folder / model) if is_path else model, sha256

    def number(
        self,
        table: dict[str, Any],
        name: str,
        least: int,
        most: int,
        *,
        where: str = "",
    ) -> int | None:
        value: object = table.pop(name, None)
        # In Python, True is a number.
        if value is None or (
            isinstance(value, int)
            and not isinstance(value, bool)
            and least <= value <= most
        ):
            return value
        self.problems.append(f"{where}{name} is not {least} to {most}")
        return None

    def nothing_else(self, table: dict[str, Any], *, where: str = "") -> None:
        self.problems += (f"{where}{key} is unknown" for key in table)
