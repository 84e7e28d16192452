"""Local models by name that play scripts."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from curtilage.client.local.model import LocalModel, ModelChoice
from curtilage.client.local.models_file import ModelSettings, ModelsFile
from curtilage.client.local.named import NamedModels
from curtilage.inference.errors import InferenceError
from curtilage_dev.scripted_engine import SCRIPTED_INFO, Script, ScriptedEngine
from support.fakes import returns


def named_models(
    *names: str,
    aliases: Mapping[str, str] | None = None,
    fault: InferenceError | None = None,
) -> NamedModels:
    """Return models that answer with their name, unsurely, or do not start."""
    file = ModelsFile(
        path=Path("models.toml"),
        models={name: ModelSettings(model=name) for name in names},
        aliases=aliases or {},
    )

    def opened(
        settings: ModelSettings, tokens: int | None
    ) -> tuple[ModelChoice, LocalModel]:
        name = settings.model
        info = replace(SCRIPTED_INFO, model_sha256="0a" * 32)
        script = Script(pieces=("By ", name), probability=0.01)
        model = LocalModel(
            lambda: ScriptedEngine(script, info=info, start_fault=fault),
            model_id=f"{name}-file",
            sha256=info.model_sha256,
            context_tokens=tokens,
        )
        choice = ModelChoice(
            model_id=name, path=Path(__file__), sha256=info.model_sha256
        )
        return choice, model

    return NamedModels(file, opened, notify=returns(None))
