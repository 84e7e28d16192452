import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from typing_extensions import override

from curtilage.client.config import Flags, read_config
from curtilage.client.errors import ConfigError
from curtilage.client.local.computing import Computing
from curtilage.client.system.files import read_text
from curtilage.policy.document.load import load_profile, profile_text
from curtilage.policy.errors import PolicyError


def test_nothing_said_takes_the_shipped_profile() -> None:
    config = read_config(Flags(), {})
    assert config.policy.digest == load_profile("default").digest
    assert (config.relay, config.model, config.model_sha256) == (None, None, None)


def test_a_flag_wins_over_the_environment(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(profile_text("default") + "\n# mine\n", "utf-8")
    environ = {
        "CURTILAGE_POLICY": str(own),
        "CURTILAGE_RELAY": "https://a/b",
        "CURTILAGE_MODEL": "small",
        "CURTILAGE_MODEL_SHA256": "00",
    }
    config = read_config(Flags(relay="https://c/d"), environ)
    assert config.relay == "https://c/d"
    assert config.policy_source == str(own)
    assert (config.model, config.model_sha256) == ("small", "00")


def test_context_is_a_number_of_tokens() -> None:
    environ = {"CURTILAGE_CONTEXT_TOKENS": "8192"}
    assert read_config(Flags(), {}).context_tokens is None
    assert read_config(Flags(), {"CURTILAGE_CONTEXT_TOKENS": ""}).context_tokens is None
    assert read_config(Flags(), environ).context_tokens == 8192
    assert read_config(Flags(context_tokens=512), environ).context_tokens == 512


@pytest.mark.parametrize("said", ["0", "255", "131073", "-4096", "4k", "1e4", "\u0664"])
def test_another_context_is_no_configuration(said: str) -> None:
    with pytest.raises(ConfigError, match="256 to 131072 tokens"):
        read_config(Flags(), {"CURTILAGE_CONTEXT_TOKENS": said})
    if said.lstrip("-").isascii() and said.lstrip("-").isdecimal():
        with pytest.raises(ConfigError, match="256 to 131072 tokens"):
            read_config(Flags(context_tokens=int(said)), {})


def test_models_by_name_come_from_a_file(tmp_path: Path) -> None:
    named, other = tmp_path / "models.toml", tmp_path / "other.toml"
    named.write_text("[models.small]\nmodel = 'default'\n")
    other.write_text("")
    environ = {"CURTILAGE_MODELS": str(named)}
    assert read_config(Flags(), {}).models is None
    models = read_config(Flags(), environ).models
    assert models is not None
    assert models.names.listed == ("curtilage", "small")
    models = read_config(Flags(models=str(other)), environ).models
    assert models is not None
    assert models.names.listed == ("curtilage",)
    with pytest.raises(ConfigError):
        read_config(Flags(models=str(tmp_path / "none.toml")), {})


class Recording(Mapping[str, str]):
    """An empty environment that notes what is looked up."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    @override
    def __getitem__(self, name: str) -> str:
        self.seen.add(name)
        raise KeyError(name)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(())

    @override
    def __len__(self) -> int:
        return 0


def test_each_variable_that_is_read_is_documented() -> None:
    environ = Recording()
    read_config(Flags(), environ)
    said = set(re.findall("CURTILAGE_[A-Z0-9_]+", read_config.__doc__ or ""))
    # The name of version 0.1 is read and not recommended.
    assert environ.seen - {"CURTILAGE_HOUSE_KEY_FILE"} == said


def test_sequences_are_a_small_number() -> None:
    assert read_config(Flags(), {}).sequences is None
    environ = {"CURTILAGE_SEQUENCES": "8"}
    assert read_config(Flags(), environ).sequences == 8
    assert read_config(Flags(sequences=3), environ).sequences == 3


@pytest.mark.parametrize("said", ["0", "65", "-1", "two", "\u0664"])
def test_another_number_of_sequences_is_no_configuration(said: str) -> None:
    with pytest.raises(ConfigError, match="1 to 64"):
        read_config(Flags(), {"CURTILAGE_SEQUENCES": said})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml"):
        read_config(Flags(policy=str(tmp_path / "missing.yaml")), {})
    large, odd = tmp_path / "large", tmp_path / "odd"
    large.write_bytes(b"x" * 11)
    odd.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="larger"):
        read_text(large, 10)
    with pytest.raises(ConfigError, match="UTF-8"):
        read_text(odd, 10)


def test_a_broken_policy_is_no_configuration(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("version: 2\n", "utf-8")
    with pytest.raises(PolicyError):
        read_config(Flags(policy=str(broken)), {})


def test_the_old_name_of_the_key_file_still_works() -> None:
    old = {"CURTILAGE_HOUSE_KEY_FILE": "old"}
    assert read_config(Flags(), old).on_premises_key_files == "old"
    both = {**old, "CURTILAGE_ON_PREMISES_KEY_FILE": "new"}
    assert read_config(Flags(), both).on_premises_key_files == "new"


def test_how_the_local_model_computes_is_read_and_a_flag_wins() -> None:
    environ = {
        "CURTILAGE_THREADS": "3",
        "CURTILAGE_KV_TYPE": "q8_0",
        "CURTILAGE_FLASH_ATTENTION": "on",
        "CURTILAGE_GPU_LAYERS": "12",
        "CURTILAGE_ANSWER_SECONDS": "60",
    }
    usual = Computing()
    assert read_config(Flags(), {}).computing == usual
    assert read_config(Flags(), dict.fromkeys(environ, "")).computing == usual
    assert read_config(Flags(), environ).computing == Computing(
        threads=3,
        kv_type="q8_0",
        flash_attention="on",
        gpu_layers=12,
        answer_s=60,
    )
    flags = Flags(
        threads=1,
        kv_type="f16",
        flash_attention="off",
        gpu_layers=0,
        answer_seconds=5,
    )
    assert read_config(flags, environ).computing == Computing(
        threads=1, kv_type="f16", flash_attention="off", gpu_layers=0, answer_s=5
    )


@pytest.mark.parametrize(
    ("flags", "environ", "message"),
    [
        (Flags(gpu_layers=-1), {}, "^--gpu-layers is not 0 to 1000$"),
        (Flags(sequences=65), {}, "^--sequences is not 1 to 64$"),
        (Flags(answer_seconds=0), {}, "^--answer-seconds is not 1 to 86400$"),
        (Flags(), {"CURTILAGE_THREADS": "0"}, "^CURTILAGE_THREADS is not 1 to 64$"),
        (Flags(kv_type="q5"), {}, "^--kv-type is not one of f16, q8_0, q4_0$"),
        (Flags(), {"CURTILAGE_KV_TYPE": "q5"}, "^CURTILAGE_KV_TYPE is not one of"),
        (
            Flags(kv_type="q4_0", flash_attention="off"),
            {},
            r"^q4_0 \(--kv-type, CURTILAGE_KV_TYPE\) needs .*: --flash-attention auto",
        ),
    ],
)
def test_a_wrong_number_is_named_as_it_was_given(
    flags: Flags, environ: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config(flags, environ)


@pytest.mark.parametrize(
    "environ",
    [
        {"CURTILAGE_THREADS": "0"},
        {"CURTILAGE_THREADS": "65"},
        {"CURTILAGE_THREADS": "two"},
        {"CURTILAGE_KV_TYPE": "q5_1"},
        {"CURTILAGE_FLASH_ATTENTION": "yes"},
        {"CURTILAGE_GPU_LAYERS": "-1"},
        {"CURTILAGE_GPU_LAYERS": "1001"},
        {"CURTILAGE_KV_TYPE": "q4_0", "CURTILAGE_FLASH_ATTENTION": "off"},
    ],
)
def test_a_setting_of_the_local_model_that_is_not_possible_is_named(
    environ: dict[str, str],
) -> None:
    with pytest.raises(ConfigError, match=next(iter(environ))):
        read_config(Flags(), environ)
