import hashlib
import json
from pathlib import Path

import pytest

from curtilage.cli import main as cli
from curtilage.policy.document.load import load_policy

POLICY = """\
version: 1
default: {decision: enclave}
packs: [secrets, hipaa]
rules:
- {id: any-uncertain, when: "uncertain.*", then: local}  # never weaker
"""
PROMPT = "You are a helpful assistant in our hospital."
CANARY = "canary-5a1f"


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CURTILAGE_POLICY", raising=False)
    monkeypatch.setenv("USER", "mallory")
    Path("mine.yaml").write_text(POLICY, "utf-8")
    Path("prompt.txt").write_text(PROMPT, "utf-8")


def ran(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = cli.main(["policy", "approve", *arguments])
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def approved(text: str | None = None) -> list[tuple[str, str, str]]:
    policy = load_policy(Path("mine.yaml").read_text("utf-8") if text is None else text)
    return [(each.sha256, each.role, each.by) for each in policy.document.approved]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["policy", "approve", "--help"])
    assert ended.value.code == 0
    assert "example" in capsys.readouterr().out


def test_a_prompt_is_added_without_other_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, shown = ran(
        *("prompt.txt", "--policy", "mine.yaml", "--by", "A. W\u00e9ber"),
        *("--note", 'says: "nothing" # of patients'),
        capsys=capsys,
    )
    assert status == 0, shown
    assert approved() == [(digest(PROMPT), "system", "A. W\u00e9ber")]
    text = Path("mine.yaml").read_text("utf-8")
    assert text.startswith(POLICY)
    assert "does not count" in shown
    assert load_policy(text, source="mine.yaml").digest in shown
    # A second one is added; the same one again changes nothing.
    Path("other.txt").write_text("Be polite.", "utf-8")
    more = ("other.txt", "--policy", "mine.yaml", "--role", "developer", "--by", "me")
    assert ran(*more, capsys=capsys)[0] == 0
    assert set(approved()) == {
        (digest(PROMPT), "system", "A. W\u00e9ber"),
        (digest("Be polite."), "developer", "me"),
    }
    before = Path("mine.yaml").read_bytes()
    status, shown = ran(*more, capsys=capsys)
    assert (status, Path("mine.yaml").read_bytes()) == (0, before)
    assert "already" in shown


def test_an_approval_joins_a_list_however_it_is_indented(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = f'  - {{sha256: "{digest("x")}", by: me, date: 2026-01-01}}\n'
    listed = f"approved:  # read by us\n\n  # the first\n{first}rules:"
    Path("mine.yaml").write_text(POLICY.replace("rules:", listed), "utf-8")
    assert ran("prompt.txt", "--policy", "mine.yaml", capsys=capsys)[0] == 0
    assert {each[0] for each in approved()} == {digest("x"), digest(PROMPT)}


def test_a_list_that_cannot_be_added_to_is_left_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = POLICY + "approved: []\n"
    Path("mine.yaml").write_text(text, "utf-8")
    status, shown = ran("prompt.txt", "--policy", "mine.yaml", capsys=capsys)
    assert status == 2
    assert digest(PROMPT) in shown
    assert Path("mine.yaml").read_text("utf-8") == text


@pytest.mark.parametrize(
    "secret",
    [
        "The key is AKIAIOSFODNN7EXAMPLA, use it.",
        "The card on file is 4111 1111 1111 1111.",
    ],
    ids=["a key", "a card"],
)
def test_findings_that_no_approval_sets_aside_are_refused(
    secret: str, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = POLICY.replace("hipaa", "hipaa, pci")
    Path("mine.yaml").write_text(policy, "utf-8")
    Path("prompt.txt").write_text(f"{CANARY} {secret}", "utf-8")
    status, shown = ran("prompt.txt", "--policy", "mine.yaml", capsys=capsys)
    assert status == 1, shown
    assert "not approved" in shown
    assert CANARY not in shown
    assert Path("mine.yaml").read_text("utf-8") == policy


def test_a_prompt_that_names_a_person_needs_a_flag(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("prompt.txt").write_text("The caller is Dr. Anna Berger.", "utf-8")
    status, shown = ran("prompt.txt", "--policy", "mine.yaml", capsys=capsys)
    assert status == 1, shown
    assert "--with-people" in shown
    assert "Berger" not in shown
    # The explanation is that of the current policy, which does not approve it.
    assert "does not decide" not in shown
    assert "does not count" not in shown
    assert Path("mine.yaml").read_text("utf-8") == POLICY
    meant = ("prompt.txt", "--policy", "mine.yaml", "--with-people")
    assert ran(*meant, capsys=capsys)[0] == 0
    assert len(approved()) == 1


def test_a_note_is_shown_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    note = "read\n  enclaves  any"
    ran("prompt.txt", "--policy", "mine.yaml", "--note", note, capsys=capsys)
    assert cli.main(["policy", "check", "mine.yaml"]) == 0
    assert "read enclaves any" in capsys.readouterr().out


def test_a_shipped_profile_is_not_written_to(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, shown = ran("prompt.txt", "--by", "me", capsys=capsys)
    assert status == 0, shown
    entry = shown[shown.index("approved:\n") :]
    assert approved(POLICY + entry) == [(digest(PROMPT), "system", "me")]


def test_print_changes_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("prompt.txt", "--policy", "mine.yaml", "--print")
    assert ran(*arguments, capsys=capsys)[0] == 0
    status, shown = ran(*arguments, "--json", capsys=capsys)
    assert status == 0
    result = json.loads(shown)
    assert (result["approved"], result["written"]) == (True, False)
    assert result["entry"]["sha256"] == digest(PROMPT)
    assert Path("mine.yaml").read_text("utf-8") == POLICY


def test_the_last_line_feed_is_approved_unless_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("prompt.txt").write_text("Be polite.\n", "utf-8")
    arguments = ("prompt.txt", "--policy", "mine.yaml")
    status, shown = ran(*arguments, capsys=capsys)
    assert status == 0
    assert "last line feed" in shown
    assert ran(*arguments, "--without-last-newline", capsys=capsys)[0] == 0
    assert {each[0] for each in approved()} == {
        digest("Be polite.\n"),
        digest("Be polite."),
    }


@pytest.mark.parametrize("content", [b"\xff", b"", b" \n"])
def test_a_file_without_text_is_not_approved(
    content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("prompt.txt").write_bytes(content)
    assert ran("prompt.txt", "--policy", "mine.yaml", capsys=capsys)[0] == 2
    assert Path("mine.yaml").read_text("utf-8") == POLICY


def test_an_approval_needs_a_reviewer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("USER")
    status, shown = ran("prompt.txt", "--policy", "mine.yaml", capsys=capsys)
    assert status == 2
    assert "the reviewer" in shown
