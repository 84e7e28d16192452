"""One's own texts: a sheet that spreadsheets open, labels read back, lines named."""

import csv
import json
from pathlib import Path

import pytest

from curtilage.client.errors import ConfigError
from curtilage.lab.evaluation.labelled import read_labelled, write_sheet
from curtilage.lab.evaluation.rows import Row

CANARY = "zq7canary4711"


def put(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def marked(row: Row) -> list[str]:
    return [row.value(gold) for gold in row.gold]


def test_a_table_is_read(tmp_path: Path) -> None:
    table = (
        'text;must;names\nWho is Ana?;names only;ana\n"a\nb";Stays;\nc;may  leave;\n'
    )
    rows, waiting = read_labelled(put(tmp_path / "own.csv", table))
    assert [(row.id, row.tags) for row in rows] == [
        ("own.csv:2", ("names only",)),
        ("own.csv:3", ("stays",)),
        ("own.csv:5", ("may leave",)),
    ]
    assert marked(rows[0]) == ["Ana"]
    assert waiting == 0


def test_lines_of_json_are_read(tmp_path: Path) -> None:
    lines = [
        {"text": "Bo met Bo and Li", "must": "names only", "names": ["Bo"]},
        {"text": "Call 12", "must": "stays", "spans": [[5, 7, "NUMBER"]]},
        {"text": "Al and Cy", "must": "names only", "names": "Cy | Al"},
        {"text": "not yet"},
    ]
    text = "\n\n".join(map(json.dumps, lines))
    rows, waiting = read_labelled(put(tmp_path / "own.jsonl", text))
    assert [marked(row) for row in rows] == [["Bo", "Bo"], ["12"], ["Cy", "Al"]]
    assert waiting == 1


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", f"question\n{CANARY}\n", "line 1: no column 'text'"),
        ("a.csv", f"text,must\n{CANARY},never\n", "line 2: 'must' is none of stays"),
        ("a.csv", f'text,must\nx,stays\n"{CANARY}"x,stays\n', "line 3: not a row"),
        ("a.csv", f"text,must\n{CANARY},names only\n", "line 2: 'names only', and no"),
        ("a.csv", f"text,must,names\n{CANARY},stays,Bo\n", "line 2: a name is not in"),
        ("a.csv", ",must,text\nx,stays,\n", "line 2: no text"),
        ("a.csv", f"text,must\n{CANARY},\n", "no row is labelled"),
        ("a.jsonl", f'{{"text": "{CANARY}"\n', "line 1: not a JSON object"),
        ("a.jsonl", f'["{CANARY}"]', "line 1: not a JSON object"),
        (
            "a.jsonl",
            f'{{"text": "{CANARY}", "must": "stays", "spans": [[0, 99, "x"]]}}',
            "line 1: a span is not",
        ),
    ],
)
def test_an_invalid_line_is_reported_by_number_and_not_by_text(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    with pytest.raises(ConfigError) as failure:
        read_labelled(put(tmp_path / name, text))
    assert said in str(failure.value)
    assert CANARY not in str(failure.value)
    assert failure.value.__cause__ is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.txt", "Who is Ana?\n\n=1+1\n"),
        ("t.csv", "id,text\n1,Who is Ana?\n2,=1+1\n"),
        ("t.jsonl", '{"text": "Who is Ana?"}\n{"text": "=1+1"}\n'),
    ],
)
def test_a_sheet_waits_for_labels(tmp_path: Path, name: str, text: str) -> None:
    sheet = tmp_path / "sheet.csv"
    assert write_sheet(put(tmp_path / name, text), sheet) == 2
    with sheet.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["text", "must", "names"],
        ["Who is Ana?", "", ""],
        ["'=1+1", "", ""],
    ]
    assert sheet.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "'tis", "'=1", "x'y"])
def test_what_a_spreadsheet_would_run_comes_back_as_it_was(
    tmp_path: Path, text: str
) -> None:
    sheet = tmp_path / "sheet.csv"
    write_sheet(put(tmp_path / "t.jsonl", json.dumps({"text": text})), sheet)
    filled = sheet.read_text(encoding="utf-8-sig").replace(",,", ",stays,")
    ((row,), _) = read_labelled(put(sheet, filled))
    assert row.text == text


def test_a_sheet_is_never_written_over(tmp_path: Path) -> None:
    source = put(tmp_path / "t.txt", CANARY)
    sheet = put(tmp_path / "sheet.csv", "labelled")
    with pytest.raises(ConfigError, match="File exists"):
        write_sheet(source, sheet)
    assert sheet.read_text() == "labelled"


def test_a_file_without_texts_makes_no_sheet(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^t\.txt: "):
        write_sheet(put(tmp_path / "t.txt", "\n \n"), tmp_path / "sheet.csv")
    assert not (tmp_path / "sheet.csv").exists()
