# pyright: reportPrivateUsage=false
# The windows and the network behind the door are looked at themselves.
import json
import logging
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.detection.detectors.model import embedded as guard_model
from curtilage.client.detection.detectors.model.embedded import (
    GuardModel,
    GuardModelError,
    Ids,
    Judgement,
    Numbers,
    load_guard,
    parse_manifest,
)
from curtilage.client.detection.detectors.model.entity import Passages

pytest.importorskip("onnxruntime", reason="SKIPPED LOUDLY: needs the extra pii")
pytest.importorskip("tokenizers", reason="SKIPPED LOUDLY: needs the extra pii")
from support.imports import values_at_import
from support.tiny_guard import (
    LABELS,
    MAX_PIECES,
    TOPICS,
    tiny_network,
    write_guard,
)

CANARY = "zq7canary4711"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_guard(tmp_path_factory.mktemp("guard") / "guard_model")


@pytest.fixture(scope="module")
def guard(folder: Path) -> GuardModel:
    return load_guard(folder)


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def judged(
    guard: GuardModel, text: str, *, recall: int, excerpts: tuple[str, ...] = ()
) -> Judgement:
    (judgement,) = guard.judge_all(
        [Passages(text=text, excerpts=excerpts)], recall=recall
    )
    return judgement


def found(guard: GuardModel, text: str, *, recall: int = 0) -> list[tuple[str, str]]:
    entities = judged(guard, text, recall=recall).entities
    return [(each.kind, text[each.start : each.end]) for each in entities]


# --- what it finds ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "The Bogdana Ilieva meets Acme in Plovdiv",
            [
                ("PERSON", "Bogdana Ilieva"),
                ("ORGANIZATION", "Acme"),
                ("LOCATION", "Plovdiv"),
            ],
        ),
        ("bogdana, bogdana", [("PERSON", "bogdana"), ("PERSON", "bogdana")]),
        ("bogdana\nbogdana", [("PERSON", "bogdana"), ("PERSON", "bogdana")]),
        ("bogdana bogdana", [("PERSON", "bogdana bogdana")]),
        ("Bogdana-Bogdana", [("PERSON", "Bogdana-Bogdana")]),
        ("bogdana_ilieva", [("PERSON", "bogdana_ilieva")]),
        ("bogdana's", [("PERSON", "bogdana")]),
        ("Bogdana meets Ilieva", [("PERSON", "Bogdana"), ("PERSON", "Ilieva")]),
        ("Bogdána", [("PERSON", "Bogdána")]),
        ("", []),
        (" \n\t ", []),
        ("the the the", []),
    ],
)
def test_names_are_found_whole(
    guard: GuardModel, text: str, expected: list[tuple[str, str]]
) -> None:
    assert found(guard, text) == expected


@pytest.mark.parametrize("apart", "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\x85\u2028")
def test_white_space_of_any_kind_parts_two_words(guard: GuardModel, apart: str) -> None:
    assert apart.isspace()
    assert found(guard, f"bogdana{apart}the plovdiv{apart}meets") == [
        ("PERSON", "bogdana"),
        ("LOCATION", "plovdiv"),
    ]


def test_recall_knob_makes_a_doubt_a_name(guard: GuardModel) -> None:
    assert found(guard, "the quendy", recall=0) == []
    assert found(guard, "the quendy", recall=100) == [("PERSON", "quendy")]


def test_recall_knob_only_ever_adds(guard: GuardModel) -> None:
    text = "the quendy meets zorblat and bogdana"
    counts = [len(found(guard, text, recall=knob)) for knob in range(0, 301, 50)]
    assert counts == sorted(counts)


def test_scores_are_at_least_the_middle(guard: GuardModel) -> None:
    entities = judged(guard, "quendy, bogdana", recall=100).entities
    assert [50 <= each.score <= 100 for each in entities] == [True, True]


def test_likelihood_covers_words_that_are_no_entities(guard: GuardModel) -> None:
    judgement = judged(guard, "the zorblat", recall=0)
    assert judgement.likelihood("PERSON", 4, 11) > judgement.likelihood("PERSON", 0, 3)
    assert judgement.likelihood("PERSON", 3, 4) == 0


@pytest.mark.parametrize(
    ("text", "topic"), [("diagnosed", "health"), ("closeted", "special")]
)
def test_topics_have_scores(guard: GuardModel, text: str, topic: str) -> None:
    topics = judged(guard, f"the {text}", recall=0).topics
    assert set(topics) == set(TOPICS)
    assert [name for name, score in topics.items() if score >= 50] == [topic]


def test_a_threshold_is_the_middle_of_its_topic(tmp_path: Path) -> None:
    # The network says 3 as a logit, which is 0.9526 as a probability.
    strict = write_guard(tmp_path / "g", topic_thresholds={"health": 0.9526})
    assert judged(load_guard(strict), "diagnosed", recall=0).topics["health"] == 50


def test_excerpts_add_topics_and_no_names(guard: GuardModel) -> None:
    judgement = judged(
        guard, "the", recall=0, excerpts=("diagnosed", "closeted bogdana")
    )
    assert [name for name, score in judgement.topics.items() if score >= 50] == [
        "health",
        "special",
    ]
    assert judgement.entities == ()


# --- long texts ---------------------------------------------------------------


@pytest.mark.parametrize("before", [0, 20, 45, 46, 47, 61, 62, 63, 64, 100, 500])
def test_a_name_is_found_at_every_depth(guard: GuardModel, before: int) -> None:
    text = "the " * before + "bogdana ilieva" + " the" * 77
    assert found(guard, text) == [("PERSON", "bogdana ilieva")]


@given(st.integers(0, 700))
def test_windows_decide_every_piece_once(length: int) -> None:
    room = MAX_PIECES - 2
    windows = list(guard_model._windows(length, room))
    decided = [at for _, _, begin, end in windows for at in range(begin, end)]
    assert decided == list(range(length))
    assert all(high - low <= room for low, high, _, _ in windows)
    margin = guard_model.MARGIN_PIECES
    for low, high, begin, end in windows:
        assert begin - low == min(begin, margin)
        assert high - end == (0 if high == length else margin)


def test_a_topic_in_one_window_is_one_of_the_text(guard: GuardModel) -> None:
    text = "the " * 300 + "diagnosed" + " the" * 300
    assert judged(guard, text, recall=0).topics["health"] >= 50


def test_no_window_is_longer_than_the_model_takes() -> None:
    sizes: list[int] = []

    class Watching:
        def run(
            self, names: Sequence[str], feeds: Mapping[str, Ids]
        ) -> Sequence[Numbers]:
            assert list(names) == ["entities", "topics"]
            assert feeds["mask"].shape == feeds["ids"].shape
            sizes.append(feeds["ids"].shape[1])
            return nothing_seen(feeds["ids"])

    guard = made_with(Watching())
    judged(guard, "the " * 400, recall=0)
    assert max(sizes) == MAX_PIECES
    assert sum(sizes) >= 400


# --- several at once ----------------------------------------------------------

MANY = (
    Passages(text="the bogdana meets ilieva", excerpts=("the diagnosed", "closeted")),
    Passages(text=""),
    Passages(text="the " * 150 + "bogdana ilieva" + " the" * 30),
    Passages(text="acme in plovdiv", excerpts=("the " * 90,)),
    Passages(text="the acme", excerpts=("bogdana diagnosed",)),
)


@pytest.mark.parametrize("apart", [True, False])
def test_texts_judged_together_are_judged_as_each_alone(
    tmp_path: Path, apart: bool
) -> None:
    guard = load_guard(write_guard(tmp_path / "g", rows_apart=apart))
    alone = [
        judged(guard, each.text, recall=0, excerpts=each.excerpts) for each in MANY
    ]
    for one, other in zip(alone, guard.judge_all(MANY, recall=0), strict=True):
        assert one.entities == other.entities
        assert one.topics == other.topics
        assert one.likelihood("PERSON", 0, 999) == other.likelihood("PERSON", 0, 999)


def nothing_seen(ids: Ids) -> Sequence[Numbers]:
    return [
        np.zeros((*ids.shape, len(LABELS)), np.float32),
        np.zeros((len(ids), len(TOPICS)), np.float32),
    ]


def test_a_network_that_blurs_rows_sees_each_alone() -> None:
    shapes: list[tuple[int, ...]] = []

    class Watching:
        def run(
            self, names: Sequence[str], feeds: Mapping[str, Ids]
        ) -> Sequence[Numbers]:
            del names
            assert feeds["mask"].all()
            shapes.append(feeds["ids"].shape)
            return nothing_seen(feeds["ids"])

    made_with(Watching()).judge_all(MANY, recall=0)
    assert {rows for rows, _ in shapes} == {1}


@given(st.lists(st.integers(0, MAX_PIECES - 2), max_size=60))
def test_rows_of_one_run_are_of_about_one_length(lengths: list[int]) -> None:
    runs = list(guard_model._runs(lengths))
    assert sorted(at for run in runs for at in run) == list(range(len(lengths)))
    for run in runs:
        sizes = [lengths[at] for at in run]
        assert max(sizes) - min(sizes) <= guard_model.PAD_PIECES
        assert len(run) * (max(sizes) + 2) <= guard_model.RUN_PIECES


@given(st.text(max_size=80))
def test_any_text_gives_places_inside_it(text: str) -> None:
    guard = GUARDS[0]
    for each in judged(guard, text, recall=300).entities:
        assert 0 <= each.start < each.end <= len(text)


def test_a_lone_surrogate_moves_nothing(guard: GuardModel) -> None:
    assert found(guard, "the \ud800\ud800 bogdana") == [("PERSON", "bogdana")]


# --- what it refuses ----------------------------------------------------------


def test_a_changed_network_is_refused(copy: Path) -> None:
    path = copy / "guard.onnx"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(GuardModelError, match=r"\bguard\.onnx\b"):
        load_guard(copy)


def test_a_changed_tokenizer_is_refused(copy: Path) -> None:
    path = copy / "tokenizer.json"
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(GuardModelError, match=r"\btokenizer\.json\b"):
        load_guard(copy)


@pytest.mark.parametrize("name", ["guard.json", "guard.onnx", "tokenizer.json"])
def test_a_missing_file_is_named(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(GuardModelError, match=name):
        load_guard(copy)


@pytest.mark.parametrize("name", ["guard.onnx", "tokenizer.json"])
def test_a_file_that_is_no_model_is_refused(
    copy: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (copy / name).write_bytes(b"{}")
    monkeypatch.setattr(guard_model, "_verified", unverified)
    with pytest.raises(GuardModelError, match="cannot be opened"):
        load_guard(copy)


def test_a_tokenizer_without_marks_is_refused(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copy / "tokenizer.json"
    path.write_text(path.read_text().replace("[SEP]", "[END]"))
    monkeypatch.setattr(guard_model, "_verified", unverified)
    with pytest.raises(GuardModelError, match="SEP"):
        load_guard(copy)


def unverified(folder: Path, name: str, manifest: guard_model.Manifest) -> bytes:
    del manifest
    return (folder / name).read_bytes()


Change = Callable[[dict[str, object]], object]
FAULTS: list[tuple[str, Change, str]] = [
    ("format", lambda m: m.update(format=2), "format"),
    ("no format", lambda m: m.pop("format"), "format"),
    ("no entities", lambda m: m.update(entities=[]), "entities"),
    ("twice", lambda m: m.update(topics=["health", "health"]), "topics"),
    ("numbers", lambda m: m.update(topics=[1]), "topics"),
    ("no pair", lambda m: m.update(entities=["O", "B-PERSON"]), "pairs"),
    ("no outside", lambda m: m.update(entities=["B-X", "I-X"]), "pairs"),
    ("tiny", lambda m: m.update(max_pieces=3), "max_pieces"),
    ("huge", lambda m: m.update(max_pieces=100_000), "max_pieces"),
    ("true", lambda m: m.update(max_pieces=True), "max_pieces"),
    ("no digests", lambda m: m.pop("sha256"), "sha256"),
    ("one digest", lambda m: m.update(sha256={"guard.onnx": "00"}), "sha256"),
    ("zero", lambda m: m.update(topic_thresholds={"health": 0}), "topic_thresholds"),
    ("one", lambda m: m.update(topic_thresholds={"health": 1}), "topic_thresholds"),
    ("list", lambda m: m.update(topic_thresholds=[]), "topic_thresholds"),
    ("nan", lambda m: m.update(topic_thresholds={"hr": float("nan")}), "topic_thr"),
    ("one mark", lambda m: m.update(marks=["[CLS]"]), "marks are two"),
    ("three marks", lambda m: m.update(marks=["<s>", "</s>", "x"]), "marks are two"),
    ("equal marks", lambda m: m.update(marks=["<s>", "<s>"]), "marks are different"),
]


@pytest.mark.parametrize(
    ("change", "word"),
    [(change, word) for _, change, word in FAULTS],
    ids=[name for name, _, _ in FAULTS],
)
def test_a_faulty_manifest_is_refused(folder: Path, change: Change, word: str) -> None:
    manifest = json.loads((folder / "guard.json").read_bytes())
    change(manifest)
    with pytest.raises(GuardModelError, match=word):
        parse_manifest(json.dumps(manifest).encode())


@pytest.mark.parametrize("said", [1, "true", None, False])
def test_rows_are_apart_only_where_the_manifest_says_so(
    folder: Path, said: object
) -> None:
    manifest = json.loads((folder / "guard.json").read_bytes())
    made = parse_manifest(json.dumps(manifest | {"rows_apart": said}).encode())
    assert not made.rows_apart


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 9000, b" " * 70_000])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(GuardModelError):
        parse_manifest(data)


def test_a_manifest_that_is_too_long_is_refused(folder: Path) -> None:
    manifest = (folder / "guard.json").read_bytes()
    parse_manifest(manifest + b" " * 1000)
    with pytest.raises(GuardModelError, match="too long"):
        parse_manifest(manifest + b" " * 70_000)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_manifest_or_an_error(data: bytes) -> None:
    with pytest.raises(GuardModelError):
        parse_manifest(data)


def test_a_network_with_other_labels_is_refused(copy: Path) -> None:
    guard = load_guard(copy)
    guard = GuardModel(
        guard.manifest, guard._pieces, guard_model._open_network(tiny_network(labels=3))
    )
    with pytest.raises(GuardModelError, match="sizes"):
        judged(guard, "the", recall=0)


@pytest.mark.parametrize("shape", [(1, 1), (2, len(TOPICS))])
def test_a_network_with_other_topics_is_refused(shape: tuple[int, int]) -> None:
    class Other:
        def run(
            self, names: Sequence[str], feeds: Mapping[str, Ids]
        ) -> Sequence[Numbers]:
            del names
            entities = np.zeros((*feeds["ids"].shape, len(LABELS)), np.float32)
            return [entities, np.zeros(shape, np.float32)]

    with pytest.raises(GuardModelError, match="sizes"):
        judged(made_with(Other()), "the", recall=0)


@pytest.mark.parametrize("output", [0, 1])
def test_numbers_that_are_none_are_refused(output: int) -> None:
    class Broken:
        def run(
            self, names: Sequence[str], feeds: Mapping[str, Ids]
        ) -> Sequence[Numbers]:
            del names
            outputs = [
                np.zeros((*feeds["ids"].shape, len(LABELS)), np.float32),
                np.zeros((1, len(TOPICS)), np.float32),
            ]
            outputs[output].flat[0] = np.nan
            return outputs

    with pytest.raises(GuardModelError, match="no numbers"):
        judged(made_with(Broken()), "the", recall=0)


def test_a_missing_library_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(GuardModelError):
        load_guard(folder)


def test_nothing_shows_a_text(
    guard: GuardModel,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    judgement = judged(guard, f"the {CANARY} bogdana", recall=0)
    out = capfd.readouterr()
    assert CANARY not in caplog.text + out.out + out.err + repr(judgement)


def test_the_library_is_set_to_report_nothing_before_its_import(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = values_at_import(monkeypatch, "onnxruntime", "ORT_DISABLE_TELEMETRY")
    with pytest.raises(GuardModelError):
        load_guard(folder)
    assert seen == ["1"]


def test_telemetry_is_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    off: list[bool] = []
    monkeypatch.setattr(
        "onnxruntime.disable_telemetry_events", lambda: off.append(True)
    )
    load_guard(folder)
    assert off == [True]


def made_with(network: guard_model.Network) -> GuardModel:
    return GuardModel(GUARDS[0].manifest, GUARDS[0]._pieces, network)


GUARDS: list[GuardModel] = []


@pytest.fixture(scope="module", autouse=True)
def _share(guard: GuardModel) -> None:
    GUARDS[:] = [guard]
