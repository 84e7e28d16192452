"""``curtilage models``: output, questions and refusals."""

import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from curtilage.cli import main as cli
from curtilage.cli import models
from curtilage.cli.models import TASKS_TRIED
from curtilage.client.local.registry import catalogue, machine
from curtilage.client.local.registry.download import Agree, PullRequest
from curtilage.client.local.registry.store import ModelEntry
from support.byte_model import TRAINED_CONTEXT, make_adapter, make_byte_model, sha256_of
from support.fakes import returns
from support.model_hub import FILE, REPOSITORY, REVISION, FakeHub, serving

OFFICE_TASKS = Path(__file__).resolve().parents[2] / "docs/examples/office-tasks.jsonl"
BEST, RESEARCH = "qwen2.5-1.5b", "qwen2.5-3b"
ACCEPTED = ("--accept-licence", "qwen-research")


class Terminal(io.StringIO):
    """A terminal at which a person types this."""

    @override
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "curtilage"


@pytest.fixture(scope="session")
def byte_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_byte_model(tmp_path_factory.mktemp("models") / "byte.gguf")


@pytest.fixture
def parts(byte_model: Path, tmp_path: Path) -> list[str]:
    content = byte_model.read_bytes()
    third = len(content) // 3
    pieces = content[:third], content[third : 2 * third], content[2 * third :]
    for number, piece in enumerate(pieces, start=9):
        (tmp_path / f"part{number - 8}.bin").write_bytes(piece)
    return [str(tmp_path / f"part{number}.bin") for number in (3, 1, 2)]


@pytest.fixture
def hub(byte_model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    pytest.importorskip(
        "huggingface_hub", reason="SKIPPED LOUDLY: the extra 'models' is absent"
    )
    monkeypatch.setattr("time.sleep", returns(None))
    with serving(FakeHub(content=byte_model.read_bytes())) as hub:
        yield hub


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_memory", returns(32 << 30))
    monkeypatch.setattr(machine, "free_room", returns(64 << 30))


def said(capsys: pytest.CaptureFixture[str]) -> str:
    shown = capsys.readouterr()
    return shown.out + shown.err


# Adapters.


def test_an_adapter_is_added_for_one_model(
    byte_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_adapter(tmp_path / "lora.gguf")
    add = ("models", "add", "letters", str(path), "--adapter-of", "byte")
    assert cli.main([*add, "--sha256", sha256_of(path)]) == 2, "there is no such model"
    digest = sha256_of(byte_model)
    assert cli.main(["models", "add", "byte", str(byte_model), "--sha256", digest]) == 0
    assert cli.main([*add]) == 2, "its digest is not named"
    assert cli.main([*add, "--sha256", sha256_of(path)]) == 0
    capsys.readouterr()
    assert cli.main(["models", "list"]) == 0
    assert f"(adapter for sha256:{digest[:16]}" in capsys.readouterr().out
    assert cli.main(["models", "verify", "letters"]) == 0


# Recommend.


@pytest.mark.usefixtures("large")
def test_the_best_comes_with_the_commands_to_type(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["models", "recommend"]) == 0
    shown = said(capsys)
    assert f"best: {BEST}" in shown
    assert f"    curtilage models pull {BEST}\n" in shown
    assert f"    curtilage ask --model {BEST}\n" in shown
    assert f"{RESEARCH}: no: licence " in shown
    assert "NO commercial use" in shown


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(
    ("task", "said_of_it"),
    [
        ((), "best: qwen2.5-1.5b, the first that fits for general use; not"),
        (("--task", "code"), "best: qwen2.5-coder-1.5b, the first that fits "),
    ],
)
def test_measurements_are_shown_with_their_data(
    task: tuple[str, ...], said_of_it: str, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = (
        "measured: qwen2.5-coder-1.5b (4 of 6), default (0 of 6), on 6 office tasks in "
        "English (docs/costs.md); the others were not measured"
    )
    assert cli.main(["models", "recommend", *task]) == 0
    shown = said(capsys)
    assert said_of_it in shown
    assert measured in shown.splitlines()
    lines = [each.strip() for each in shown.splitlines() if "    routing " in each]
    found = [
        (re.findall(r"(\d+) of 100 ", each), each.endswith(", an estimate"))
        for each in lines
    ]
    assert found == [
        *[(["67"], True), (["67"], True), (["67"], False), (["30"], True)],
        (["3"], False),
    ]
    assert cli.main(["models", "recommend", "--json", *task]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["measured"] == measured
    assert [each["quality_permille"] for each in result["models"]] == [
        each.quality_permille for each in catalogue.catalogue()
    ]


@pytest.mark.usefixtures("large")
def test_an_accepted_licence_is_repeated_in_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["models", "recommend", "--json", *ACCEPTED]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["best"] == RESEARCH
    assert (
        result["commands"][0]
        == f"curtilage models pull {RESEARCH} {' '.join(ACCEPTED)}"
    )


@pytest.mark.usefixtures("large")
def test_the_json_has_every_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["models", "recommend", "--json", "--memory", "0.8"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["best"] == "qwen2.5-0.5b"
    assert {each["name"]: each["against"] for each in result["models"]} == {
        RESEARCH: ["memory", "licence qwen-research"],
        BEST: ["memory"],
        "qwen2.5-coder-1.5b": ["memory"],
        "qwen2.5-0.5b": [],
        "default": [],
    }


@pytest.mark.usefixtures("large")
def test_without_a_fitting_model_nothing_is_recommended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["models", "recommend", "--memory", "1", "--task", "code"]
    assert cli.main(command) == 3
    shown = said(capsys)
    assert "best: " not in shown
    assert "models pull" not in shown
    assert cli.main([*command, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["commands"] == []


class Hub:
    """A stand-in for the hub: asks for consent, and records what is fetched."""

    def __init__(self) -> None:
        self.fetched: list[PullRequest] = []

    def pull(
        self, _registry: object, request: PullRequest, *, agree: Agree, **_more: object
    ) -> ModelEntry:
        agree(request.size_bytes)
        self.fetched.append(request)
        return ModelEntry(
            name=request.name, path="/m", sha256=request.sha256, size_bytes=1
        )


def offered(
    monkeypatch: pytest.MonkeyPatch,
    typed: str | None,
    *arguments: str,
    library: bool = True,
    shown: bool = True,
) -> Hub:
    """Run ``models recommend``; ``typed``: a person's input; None: no terminal."""
    hub = Hub()
    monkeypatch.setattr(models, "pull", hub.pull)
    monkeypatch.setattr(models, "can_pull", returns(library))
    monkeypatch.setattr(
        "sys.stdin", io.StringIO() if typed is None else Terminal(typed)
    )
    monkeypatch.setattr(sys.stdout, "isatty", returns(shown))
    assert cli.main(["models", "recommend", *arguments]) == 0
    return hub


@pytest.mark.usefixtures("large")
def test_a_person_is_offered_the_best_and_gets_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = catalogue.known(BEST)
    assert model is not None
    assert (model.licence, "qa" in model.good_for) == ("Apache-2.0", True)
    (request,) = offered(monkeypatch, "y\n").fetched
    assert (request.name, request.sha256) == (BEST, model.sha256)
    shown = capsys.readouterr()
    for each in (
        f"{BEST}: 1.1 GB to download from {model.repository}@{model.revision}",
        "memory: 1.4 GB when it runs",
        "licence: Apache-2.0",
        "download it? [y/N]",
    ):
        assert each in shown.err
    assert "models pull" not in shown.out
    assert f"    curtilage ask --model {BEST}\n" in shown.out


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("typed", ["n\n", "\n", "", "yesterday\n"], ids=repr)
def test_declining_the_offer_shows_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str
) -> None:
    assert offered(monkeypatch, typed).fetched == []
    shown = capsys.readouterr()
    assert "nothing was downloaded" in shown.err
    assert f"    curtilage models pull {BEST}\n" in shown.out


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(
    ("typed", "arguments", "library", "shown"),
    [
        (None, (), True, True),
        ("y\n", ("--json",), True, True),
        ("y\n", (), False, True),
        ("y\n", (), True, False),
    ],
    ids=["not interactive", "a program", "no library", "shown elsewhere"],
)
def test_nothing_is_offered_if_no_person_could_agree(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    typed: str | None,
    arguments: tuple[str, ...],
    *,
    library: bool,
    shown: bool,
) -> None:
    hub = offered(monkeypatch, typed, *arguments, library=library, shown=shown)
    assert hub.fetched == []
    result = capsys.readouterr()
    assert f"curtilage models pull {BEST}" in result.out
    assert "download it?" not in result.err


@pytest.mark.usefixtures("large")
def test_with_a_useful_model_no_other_is_offered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = catalogue.known("qwen2.5-coder-1.5b")
    assert model is not None
    here = ModelEntry(name="mine", path="/m", sha256=model.sha256, size_bytes=1)
    monkeypatch.setattr(models, "_entries", returns([here]))
    assert offered(monkeypatch, "y\n").fetched == []
    assert "download it?" not in capsys.readouterr().err


@pytest.mark.usefixtures("large")
def test_an_installed_model_is_not_offered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = offered(monkeypatch, "y\n", "--memory", "0.4")
    assert hub.fetched == []
    shown = capsys.readouterr()
    assert "best: default" in shown.out
    assert "download it?" not in shown.err


@pytest.mark.parametrize("memory", ["nan", "inf", "-1", "1e9", "much", ""])
def test_memory_is_a_number_of_gigabytes(memory: str) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["models", "recommend", "--memory", memory])
    assert ended.value.code == 2


def test_the_office_tasks_are_what_the_figures_are_of() -> None:
    lines = OFFICE_TASKS.read_text("utf-8").splitlines()
    tasks = [json.loads(line) for line in lines]
    assert len(tasks) == TASKS_TRIED
    assert all(task.keys() == {"task", "text", "expect"} for task in tasks)
    assert {task["task"] for task in tasks} <= set(catalogue.TASKS)
    assert all((each.solved or 0) <= TASKS_TRIED for each in catalogue.catalogue())


# Add and list.


def test_parts_are_put_together_and_listed(
    byte_model: Path, parts: list[str], capsys: pytest.CaptureFixture[str], data: Path
) -> None:
    digest = sha256_of(byte_model)
    assert (
        cli.main(["models", "add", "tiny", "--sha256", digest, "--from", *parts]) == 0
    )
    assert f"sha256:{digest}" in capsys.readouterr().out
    assert cli.main(["models", "list", "--json"]) == 0
    (tiny,) = (
        each for each in json.loads(capsys.readouterr().out) if each["name"] == "tiny"
    )
    assert tiny["path"] == str(data / "models" / f"{digest}.gguf")
    assert tiny["source"].endswith(" 3 parts")
    assert (tiny["quantisation"], tiny["trained_context"]) == ("F32", TRAINED_CONTEXT)
    assert cli.main(["models", "verify", "tiny"]) == 0


@pytest.mark.parametrize(
    ("memory", "verdict"),
    [
        (64 << 30, ": fits"),
        (1 << 20, "does NOT fit"),
        (None, "unknown whether it fits"),
    ],
    ids=["large", "small", "unknown"],
)
def test_the_list_shows_whether_a_model_fits(
    byte_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    memory: int | None,
    verdict: str,
) -> None:
    digest = sha256_of(byte_model)
    assert cli.main(["models", "add", "tiny", str(byte_model), "--sha256", digest]) == 0
    monkeypatch.setattr(machine, "available_memory", returns(memory))
    assert cli.main(["models", "list"]) == 0
    (line,) = (
        each for each in said(capsys).splitlines() if f"sha256:{digest[:16]}…" in each
    )
    assert verdict in line


def test_a_file_that_is_gone_is_listed_as_unknown(
    tmp_path: Path, byte_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "moved.gguf"
    path.write_bytes(byte_model.read_bytes())
    assert cli.main(["models", "add", "m", str(path), "--sha256", sha256_of(path)]) == 0
    path.unlink()
    assert cli.main(["models", "list"]) == 0
    assert "memory unknown: unknown" in said(capsys)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["tiny"], "give one FILE"),
        (["tiny", "{whole}"], "--sha256"),
        (["tiny", "--from", "{whole}"], "--sha256"),
        (["tiny", "{whole}", "--from", "{whole}", "--sha256", "{digest}"], "one FILE"),
        ([BEST, "{whole}"], "not 6a1a2eb6d15622bf"),
        ([BEST, "--from", "{whole}"], "not 1117320736"),
        ([BEST, "{whole}", "--sha256", "{digest}"], "means sha256:6a1a2eb6d156"),
        (["default", "{whole}"], "that of the embedded model"),
        (["../tiny", "{whole}", "--sha256", "{digest}"], "a model's name is"),
        (["../tiny", "--from", "{whole}", "--sha256", "{digest}"], "a model's name is"),
        (["tiny", "--from", "{whole}", "--sha256", "../{digest}"], "64 hex digits"),
        (["tiny", "--from", "{whole}", "--sha256", "{wrong}"], "it was deleted"),
    ],
    ids=str,
)
def test_a_file_with_another_digest_is_not_added(
    byte_model: Path,
    data: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    reason: str,
) -> None:
    words = {
        "whole": str(byte_model),
        "digest": sha256_of(byte_model),
        "wrong": "0" * 64,
    }
    asked = [each.format(**words) for each in arguments]
    assert cli.main(["models", "add", *asked]) == 2
    assert reason in said(capsys)
    assert not (data / "models.json").exists()
    assert not [each for each in (data / "models").glob("*") if each.stat().st_size]


@pytest.mark.parametrize("name", [RESEARCH, "my-own"])
def test_a_research_licence_goes_with_the_digest(
    byte_model: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    model = catalogue.known(RESEARCH)
    assert model is not None
    add = ["models", "add", name, str(byte_model), "--sha256", model.sha256.upper()]
    for accepted in ([], ["--accept-licence", "Apache-2.0"]):
        assert cli.main([*add, *accepted]) == 2
        assert "commercial use" in said(capsys)
    # With the licence accepted, the digest still decides.
    assert cli.main([*add, *ACCEPTED]) == 2
    assert f"not {model.sha256}" in said(capsys)


# Pull.


def pulling(hub: FakeHub, digest: str) -> list[str]:
    place = ["--repo", REPOSITORY, "--file", FILE, "--revision", REVISION]
    return ["models", "pull", "tiny", *place, "--sha256", digest, "--endpoint", hub.url]


def test_a_script_agrees_beforehand(
    hub: FakeHub, byte_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = pulling(hub, sha256_of(byte_model))
    assert cli.main(command) == 2
    shown = said(capsys)
    assert "--yes" in shown
    assert {method for method, _, _ in hub.asked} == {"HEAD"}
    assert cli.main([*command, "--yes"]) == 0
    assert "network: unknown" in said(capsys)
    # An installed model needs no consent.
    assert cli.main(command) == 0


@pytest.mark.parametrize("typed", ["y\n", "YES\n"], ids=repr)
def test_consent_downloads_the_model(
    hub: FakeHub, byte_model: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    assert cli.main(pulling(hub, sha256_of(byte_model))) == 0
    assert cli.main(["models", "verify", "tiny"]) == 0


@pytest.mark.parametrize("typed", ["n\n", "\n", "", "yesterday\n"], ids=repr)
def test_any_other_reply_downloads_nothing(
    hub: FakeHub, byte_model: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    assert cli.main(pulling(hub, sha256_of(byte_model))) == 3
    assert "GET" not in {method for method, _, _ in hub.asked}


def test_a_known_models_size_memory_and_network_are_shown_before_anything_is_sent(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "is_metered", returns(value=True))
    assert cli.main(["models", "pull", BEST, "--endpoint", hub.url]) == 2
    shown = said(capsys)
    assert f"{BEST}: 1.1 GB " in shown
    assert " Qwen/" in shown
    assert "memory: 1.4 GB " in shown
    assert "licence: Apache-2.0" in shown
    assert "METERED" in shown
    assert hub.asked == []


def test_a_known_model_without_room_is_not_fetched(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "curtilage.client.local.registry.store.free_room", returns(1 << 20)
    )
    assert cli.main(["models", "pull", BEST, "--yes", "--endpoint", hub.url]) == 2
    assert "room for 1 MiB" in said(capsys)
    assert hub.asked == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["tiny"], "is not a model of the catalogue"),
        (["default"], "is not a model of the catalogue"),
        (["../tiny"], "is not a model of the catalogue"),
        (["tiny", "--repo", REPOSITORY], "belong together"),
        ([BEST, "--sha256", "0" * 64], "belong together"),
        ([RESEARCH, "--yes"], "not for commercial use"),
    ],
    ids=str,
)
def test_an_unpinned_or_unpermitted_model_is_not_downloaded(
    hub: FakeHub,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    reason: str,
) -> None:
    assert cli.main(["models", "pull", *arguments, "--endpoint", hub.url]) == 2
    assert reason in said(capsys)
    assert hub.asked == []
