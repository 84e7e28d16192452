"""Small files in the formats of the sets; every text here is made up."""

import json
from pathlib import Path

import pytest

from curtilage.client.errors import ConfigError
from curtilage.lab.evaluation.corpora import unslotted
from curtilage.lab.evaluation.data_files import MissingSetError, read_csv, read_text
from curtilage.lab.evaluation.datasets import READERS, corpus_of, read_set
from curtilage.lab.evaluation.rows import (
    Gold,
    Part,
    Row,
    held_out,
    in_part,
    marked_as,
    sampled,
    sampled_each,
)


def put(folder: Path, name: str, text: str, encoding: str = "utf-8") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))
    return path


def rows_of(data: Path, name: str, file: str, text: str) -> tuple[Row, ...]:
    put(data / name, file, text)
    return read_set(data, name)


def marked(row: Row) -> list[tuple[str, str]]:
    return [(gold.kind, row.value(gold)) for gold in row.gold]


# --- the split ----------------------------------------------------------------


# Computed apart from the code: 3 of 10 by the first four bytes of the digest.
@pytest.mark.parametrize(
    ("key", "expected"),
    [("presidio:0", False), ("presidio:1", True), ("clinc:what is my balance", False)],
)
def test_the_split_is_the_one_of_training(key: str, expected: bool) -> None:
    assert held_out(key) is expected


def test_about_three_of_ten_are_held_out() -> None:
    assert sum(held_out(f"x:{number}") for number in range(5000)) == pytest.approx(
        1500, abs=100
    )


def test_the_parts_are_two_halves_of_the_whole() -> None:
    rows = [Row(id=str(n), key=f"x:{n}", text="t") for n in range(50)]
    kept = [row for row in rows if in_part(row, Part.HELD_OUT)]
    used = [row for row in rows if in_part(row, Part.DEVELOPED)]
    assert len(kept) + len(used) == 50
    assert not {row.id for row in kept} & {row.id for row in used}
    assert all(in_part(row, Part.ALL) for row in rows)


def test_what_is_never_trained_on_is_held_out() -> None:
    row = Row(id="a", key="", text="t")
    assert in_part(row, Part.HELD_OUT)
    assert not in_part(row, Part.DEVELOPED)


def test_a_sample_is_the_same_each_time_and_keeps_the_order() -> None:
    rows = [Row(id=f"s:{n}", key="", text="t") for n in range(100)]
    chosen = sampled(rows, 10)
    assert chosen == sampled(list(reversed(rows)), 10)[::-1]
    assert [int(row.id[2:]) for row in chosen] == sorted(
        int(row.id[2:]) for row in chosen
    )
    assert sampled(rows, 100) == tuple(rows)


def test_a_sample_of_groups_gives_each_its_share() -> None:
    rows = [Row(id=f"a:{n}", key="", text="t", tags=("A",)) for n in range(90)]
    rows += [Row(id=f"b:{n}", key="", text="t", tags=("B",)) for n in range(3)]
    rows += [Row(id="c", key="", text="t", tags=("C",))]
    chosen = sampled_each(rows, ("A", "B"), 20)
    assert sum("A" in row.tags for row in chosen) == 10
    assert sum("B" in row.tags for row in chosen) == 3
    assert not any("C" in row.tags for row in chosen)


# --- files as others left them ------------------------------------------------


def test_text_in_latin_1_is_read(tmp_path: Path) -> None:
    path = put(tmp_path, "a.txt", "caf\u00e9", "latin-1")
    assert read_text(path) == "caf\u00e9"


def test_a_byte_order_mark_and_nul_are_dropped(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", "\ufefftext,category\na\x00b,c\n")
    assert [dict(row) for row in read_csv(path)] == [{"text": "ab", "category": "c"}]


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_the_separator_is_that_of_the_header(tmp_path: Path, mark: str) -> None:
    path = put(tmp_path, "a.csv", f"x{mark}y\r\n1{mark}2\r\n")
    assert [dict(row) for row in read_csv(path)] == [{"x": "1", "y": "2"}]


def test_short_long_and_blank_rows_are_tolerated(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", 'x,y\n1\n\n1,2,3\n"a\nb",c\n')
    assert [dict(row) for row in read_csv(path)] == [
        {"x": "1", "y": ""},
        {"x": "1", "y": "2"},
        {"x": "a\nb", "y": "c"},
    ]


def test_a_missing_set_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingSetError, match="clinc150"):
        read_set(tmp_path, "clinc150")


@pytest.mark.parametrize("name", sorted(READERS))
def test_a_set_of_nonsense_is_missing(tmp_path: Path, name: str) -> None:
    for file in ("data.json", "a.jsonl", "a.csv", "a.conll", "a.iob2", "templates.csv"):
        put(tmp_path / name, file, '{"a": [1, {"b": null}]}\n\n\x00\n')
    with pytest.raises(MissingSetError, match=name):
        read_set(tmp_path, name)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.csv"):
        read_text(tmp_path / "gone.csv")


# --- each format ----------------------------------------------------------------


def test_synthetic_sentences_keep_their_spans(tmp_path: Path) -> None:
    row = {
        "full_text": "Call Ana at 555-0100",
        "masked": "Call {{name}} at {{phone}}",
        "template_id": 7,
        "spans": [
            {"entity_type": "PHONE_NUMBER", "start_position": 12, "end_position": 20},
            {"entity_type": "PERSON", "start_position": 5, "end_position": 8},
            {"entity_type": "PERSON", "start_position": 5, "end_position": 99},
            {"entity_type": None, "start_position": 0, "end_position": 1},
            "no span",
        ],
    }
    other = {"full_text": "Nobody", "masked": "Nobody", "spans": None}
    first, second = rows_of(
        tmp_path, "presidio-research", "synth.json", json.dumps([row, other, 3, {}])
    )
    assert marked(first) == [("PERSON", "Ana"), ("PHONE_NUMBER", "555-0100")]
    assert (first.key, first.tags) == ("presidio:7", ("synth",))
    assert second.key == "presidio-masked:Nobody"
    assert first.id == "presidio-research:synth.json:0"


def test_assistant_intents_are_read_from_every_split(tmp_path: Path) -> None:
    text = json.dumps({"val": [["set a timer", "timer"], [], 5], "oos": [["hi", "x"]]})
    put(tmp_path / "clinc150", "domains.json", '{"a": ["b"]}')
    rows = rows_of(tmp_path, "clinc150", "data_full.json", text)
    assert [row.text for row in rows] == ["set a timer", "hi"]
    assert rows[0].key == "clinc:set a timer"


def test_bank_queries_are_read(tmp_path: Path) -> None:
    text = 'text,category\n"Where, then, is it?",a\n,b\n'
    (row,) = rows_of(tmp_path, "banking77", "test.csv", text)
    assert (row.text, row.key) == ("Where, then, is it?", "banking:Where, then, is it?")


def test_hard_prompts_are_read_in_both_shapes(tmp_path: Path) -> None:
    one = json.dumps({"uid": "u1", "prompt": "Sort this"})
    two = json.dumps({"uid": "u2", "turns": [{"content": "Count that"}]})
    put(tmp_path / "arena-hard", "v2.jsonl", two + "\nno json\n[]\n{}\n")
    rows = rows_of(tmp_path, "arena-hard", "v0.1.jsonl", one + "\n")
    assert [(row.text, row.key, row.tags) for row in rows] == [
        ("Sort this", "arena:u1", ("v0.1",)),
        ("Count that", "arena:u2", ("v2.0",)),
    ]


def test_word_problems_and_benches_are_read(tmp_path: Path) -> None:
    line = json.dumps({"question": "How many\u2028apples?"}, ensure_ascii=False)
    (row,) = rows_of(tmp_path, "gsm8k", "test.jsonl", line)
    assert row.key == "gsm8k:How many\u2028apples?"
    line = json.dumps({"question_id": 81, "turns": ["First", "Second"]})
    (row,) = rows_of(tmp_path, "mt-bench", "mt.jsonl", line)
    assert (row.text, row.key, row.tags) == ("First", "mt:81", ("mt-bench",))


def test_questions_to_counsellors_are_read_once(tmp_path: Path) -> None:
    text = "questionID,questionTitle,questionText\nq1,Sad,Why?\nq1,Sad,Why?\nq2,,How?\n"
    rows = rows_of(tmp_path, "counsel-chat", "c.csv", text)
    assert [(row.text, row.key) for row in rows] == [
        ("Sad\nWhy?", "counsel:q1"),
        ("How?", "counsel:q2"),
    ]


def test_dialogues_and_notes_are_rows_of_their_own(tmp_path: Path) -> None:
    text = "ID,section_header,section_text,dialogue\n0,CC,Cough.,Doctor: Well?\n"
    rows = rows_of(tmp_path, "mts-dialog", "T.csv", text)
    assert [(row.text, row.tags, row.key) for row in rows] == [
        ("Doctor: Well?", ("dialogue",), "mts:T.csv:0"),
        ("Cough.", ("note",), "mts:T.csv:0"),
    ]
    text = "dataset,encounter_id,dialogue,note\nx,D1,Hello,Cough\n"
    rows = rows_of(tmp_path, "aci-bench", "v.csv", text)
    assert [(row.text, row.key) for row in rows] == [
        ("Hello", "aci:D1"),
        ("Cough", "aci:D1"),
    ]


def test_privacy_exemplars_have_their_label(tmp_path: Path) -> None:
    labels = {"labels": {"pii": {"exemplars": ["Check this", 4]}, "odd": 3}}
    put(
        tmp_path / "vllm-sr-privacy", "cases.json", json.dumps([{"content": "Or this"}])
    )
    rows = rows_of(tmp_path, "vllm-sr-privacy", "labels.json", json.dumps(labels))
    assert {(row.text, row.tags) for row in rows} == {
        ("Check this", ("pii",)),
        ("Or this", ("pii",)),
    }


def test_real_queries_have_their_units(tmp_path: Path) -> None:
    text = "user_query,pii_units\nWrite to Ana of Lima,ana||lima|| \nHello,\n"
    rows = rows_of(tmp_path, "pupa", "PUPA_New.csv", text)
    assert [(row.units, row.key) for row in rows] == [(("ana", "lima"), ""), ((), "")]


def test_names_are_put_into_templates(tmp_path: Path) -> None:
    put(tmp_path / "pii-masking-bias", "templates.csv", 'Hi {{Name}}!\nno slot\n"\n')
    names = "full_name,first_name,race_ethnic_group,gender\nAna Ruiz,Ana,HA,F\n"
    rows = rows_of(tmp_path, "pii-masking-bias", "congress.csv", names)
    assert [(row.text, row.tags) for row in rows] == [
        ("Hi Ana Ruiz!", ("HA", "F")),
        ("Hi Ana!", ("HA", "F", "first-name")),
    ]
    assert marked(rows[0]) == [("PERSON", "Ana Ruiz")]


def test_tokens_in_columns_become_texts(tmp_path: Path) -> None:
    text = (
        "-DOCSTART- -X- O O\n\nAna\tB-person\nRuiz\tI-person\nof\tO\nLima\tI-LOC\n\n"
        "#tag\tO\nAcme\tB-corporation\nInc\tI-corporation\nBo\tB-person\nCy\tB-person\n"
    )
    first, second = rows_of(tmp_path, "ner-corpora", "data__WNUT17__x.conll", text)
    assert marked(first) == [("PERSON", "Ana Ruiz"), ("LOCATION", "Lima")]
    assert (first.text, first.key) == ("Ana Ruiz of Lima", "wnut17:Ana Ruiz of Lima")
    assert second.text == "#tag Acme Inc Bo Cy"
    assert marked(second) == [
        ("ORGANIZATION", "Acme Inc"),
        ("PERSON", "Bo"),
        ("PERSON", "Cy"),
    ]


def test_numbered_tokens_become_texts(tmp_path: Path) -> None:
    text = "# text = Ana.\n1\tAna\tB-PER\t-\t-\n2\t.\tO\t-\t-\n\n# newdoc\n"
    (row,) = rows_of(tmp_path, "uner-ewt", "dev.iob2", text)
    assert (row.text, marked(row), row.tags[0]) == ("Ana .", [("PERSON", "Ana")], "ewt")


@pytest.mark.parametrize(
    ("name", "corpus"),
    [
        ("data__SEC-filings__CONLL-format__data__test__FIN3.txt", "sec"),
        ("data__WNUT17__CONLL-format__data__test__x.annotated", "wnut17"),
        ("README.txt", None),
    ],
)
def test_the_corpus_is_in_the_files_name(name: str, corpus: str | None) -> None:
    assert corpus_of(name) == corpus


def test_slots_are_taken_out_of_requests(tmp_path: Path) -> None:
    text, gold = unslotted(
        "call [person : ann lee] at [time : six] in [place_name : rome]"
    )
    assert text == "call ann lee at six in rome"
    assert [(each.kind, text[each.start : each.end]) for each in gold] == [
        ("PERSON", "ann lee"),
        ("LOCATION", "rome"),
    ]
    file = 'id;answer_annotation\n1;"call [person : ann]"\n2;""\n'
    (row,) = rows_of(tmp_path, "nlu-evaluation-data", "fold1_test.csv", file)
    assert (row.text, row.key) == ("call ann", "nlu:call ann")


def test_no_repr_holds_a_text() -> None:
    row = Row(id="s:1", key="s:canary", text="canary", units=("canary",))
    assert "canary" not in repr(row)


# --- sets with a text a line ------------------------------------------------------


def test_spans_and_labels_of_a_line_are_kept(tmp_path: Path) -> None:
    line = {
        "lang": "de",
        "text": "Anna wohnt in Bonn",
        "spans": [
            [0, 4, "PER"],
            [14, 18, "LOC"],
            [3, 99, "PER"],
            [0],
            "PER",
            [5, 5, "x"],
        ],
        "topic": "news",
    }
    (row,) = rows_of(tmp_path, "any-set", "data.jsonl", json.dumps(line))
    assert marked(row) == [("PERSON", "Anna"), ("LOCATION", "Bonn")]
    assert row.tags == ("de", "news")
    assert row.key == "any-set:Anna wohnt in Bonn"


def test_placeholders_say_what_is_marked(tmp_path: Path) -> None:
    text = "Write to Bo Li (bo@x.example), or to Bo Li."
    masked = "Write to [NAME_1] ([EMAIL_1]), or to [NAME_1]."
    line = json.dumps({"text": text, "anonymized": masked})
    (row,) = rows_of(tmp_path, "any-set", "data.jsonl", line)
    assert marked(row) == [
        ("PERSON", "Bo Li"),
        ("EMAIL", "bo@x.example"),
        ("PERSON", "Bo Li"),
    ]


def test_placeholders_of_another_text_mark_nothing(tmp_path: Path) -> None:
    line = json.dumps({"text": "Write to Bo", "anonymized": "Call [NAME_1]"})
    (row,) = rows_of(tmp_path, "any-set", "data.jsonl", line)
    assert row.gold == ()


def test_only_marks_of_a_kind_are_kept() -> None:
    gold = (Gold(kind="A", start=0, end=1), Gold(kind="B", start=1, end=2))
    rows = [Row(id="x", key="", text="ab", gold=gold), Row(id="y", key="", text="ab")]
    (row,) = marked_as(rows, frozenset({"B"}))
    assert marked(row) == [("B", "b")]
    assert row.id != "x"
