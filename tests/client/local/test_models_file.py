from pathlib import Path

import pytest

from curtilage.client.errors import ConfigError
from curtilage.client.local.computing import Computing
from curtilage.client.local.models_file import (
    MOST_MODELS,
    ModelSettings,
    read_models_file,
)

DIGEST = "9f" * 32


def written(folder: Path, text: str) -> Path:
    path = folder / "models.toml"
    path.write_text(text)
    return path


def test_a_file_of_everything_is_read(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        f"""
        most_loaded = 1
        [models.small]
        model = "qwen2.5-0.5b"
        [models."code/7b"]
        model = "weights/coder.gguf"
        sha256 = "{DIGEST}"
        context_tokens = 16384
        sequences = 3
        threads = 2
        kv_type = "q8_0"
        gpu_layers = 3
        answer_s = 60
        load_at_start = true
        [models.far]
        model = "/srv/far"
        sha256 = "{DIGEST.upper()}"
        [aliases]
        gpt-4o-mini = "small"
        "*" = "curtilage"
        """,
    )
    file = read_models_file(path)
    assert (file.path, file.most_loaded) == (path, 1)
    assert file.models == {
        "small": ModelSettings(model="qwen2.5-0.5b"),
        "code/7b": ModelSettings(
            # Relative to the file.
            model=str(tmp_path / "weights/coder.gguf"),
            sha256=DIGEST,
            context_tokens=16384,
            sequences=3,
            computing=Computing(threads=2, kv_type="q8_0", gpu_layers=3, answer_s=60),
            load_at_start=True,
        ),
        "far": ModelSettings(model="/srv/far", sha256=DIGEST.upper()),
    }
    assert file.names.listed == ("curtilage", "code/7b", "far", "gpt-4o-mini", "small")


def test_an_empty_file_names_nothing(tmp_path: Path) -> None:
    file = read_models_file(written(tmp_path, ""))
    assert (file.models, file.aliases, file.most_loaded) == ({}, {}, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("most_loaded = 0", "most_loaded is not 1 to 64"),
        ("most_loaded = true", "most_loaded is not 1 to 64"),
        ('most_loaded = "1"', "most_loaded is not 1 to 64"),
        ("model = 1", "model is unknown"),
        ("models = 1", "models is not a table"),
        ("[models]\nm = 1", "models.m. is not a table"),
        ("[models.m]", "models.m.model is missing"),
        ("[models.m]\nmodel = ''", "models.m.model is missing"),
        ("[models.m]\nmodel = 7", "models.m.model is missing"),
        ("[models.m]\nmodel = './m'", "models.m.sha256 is missing"),
        ("[models.m]\nmodel = 'm.gguf'", "models.m.sha256 is missing"),
        ("[models.m]\nmodel = 'm'\nsha256 = 'aa'", "models.m.sha256 is not 64"),
        ("[models.m]\nmodel = 'm'\nsha256 = 7", "models.m.sha256 is not 64"),
        (
            "[models.m]\nmodel = 'm'\ncontext_tokens = 255",
            "m.context_tokens is not 256",
        ),
        (
            "[models.m]\nmodel = 'm'\nsequences = 65",
            "models.m.sequences is not 1 to 64",
        ),
        ("[models.m]\nmodel = 'm'\nthreads = 0", "models.m.threads is not 1 to 64"),
        (
            "[models.m]\nmodel = 'm'\nkv_type = 'q2'",
            "models.m.kv_type is not one of f16, q8_0, q4_0",
        ),
        (
            "[models.m]\nmodel = 'm'\nkv_type = 'q4_0'\nflash_attention = 'off'",
            "models.m.kv_type q4_0 needs flash attention",
        ),
        ("[models.m]\nmodel = 'm'\nload_at_start = 1", "m.load_at_start is neither"),
        ("[models.m]\nmodel = 'm'\nkind = 1", "models.m.kind is unknown"),
        ("[models.local]\nmodel = 'm'", "'local' has a meaning already"),
        ("[aliases]\na = 1", "aliases.a is not a text"),
        ("[aliases]\na = 'b'", "alias 'a' stands for 'b', which is no model"),
        ("aliases = []", "aliases is not a table"),
        ("[models", "models.toml: "),
        ("most_loaded = " + "9" * 5000, "not TOML that can be read"),
        ("most_loaded = " + "[" * 5000, "not TOML that can be read"),
        ('[models.m]\nmodel = "/m\\u0000"', "models.m.model is missing"),
        (
            "\n".join(f"[models.m{n}]\nmodel = 'm'" for n in range(MOST_MODELS + 1)),
            "more than 64 models",
        ),
    ],
)
def test_a_mistake_is_refused_and_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_models_file(written(tmp_path, text))
    assert said in str(refused.value)


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    text = "most_loaded = 0\nx = 1\n[models.m]\ny = 1\n[aliases]\na = 'b'"
    with pytest.raises(ConfigError) as refused:
        read_models_file(written(tmp_path, text))
    assert len(str(refused.value).splitlines()) == 5


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        read_models_file(tmp_path / "none.toml")
