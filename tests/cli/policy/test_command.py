import errno
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from curtilage.cli import examine, terminal
from curtilage.cli import main as cli
from curtilage.cli.decide_lines import read_lines
from curtilage.cli.policy import diff as policy_diff
from curtilage.cli.policy import test_cases as cases_command
from curtilage.client.chat.query import Query
from curtilage.client.detection.checked import CheckedInspector
from curtilage.client.detection.inspection import Inspector
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.document.load import load_policy
from curtilage.policy.document.model import PATIENT_MS, Policy, full_scan
from curtilage.policy.signing import Currency
from support.client_parts import WordInspector

CANARY = "canary-3f1c"
NUMBER = re.compile(r"\d+")
POLICY = """\
version: 1
default: {decision: enclave}
rules:
- {id: any-uncertain, when: "uncertain.*", then: local}
- {id: token, when: "secret.*", then: local, reason: A secret.}
"""
STRICTER = POLICY + '- {id: mark, when: "org.*", then: block}\n'


class Words(WordInspector):
    """The words ``token`` and ``mark``, found in one query or in many."""

    started = 0

    def __init__(self) -> None:
        super().__init__({"token": "secret.token", "mark": "org.confidential"})
        type(self).started += 1

    def inspect_many(self, queries: Sequence[Query]) -> Iterator[Inspection]:
        for query in queries:
            coroutine = self.ainspect(query)
            try:
                coroutine.send(None)
            except StopIteration as done:
                yield done.value


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CURTILAGE_POLICY", "CURTILAGE_POLICY_KEY", "CURTILAGE_RELAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Words, "started", 0)

    def start(policy: Policy, currency: Currency | None) -> CheckedInspector:
        assert isinstance(policy, Policy)
        detectors = cast(Inspector, Words())  # noqa: TC006 - the import is needed
        return CheckedInspector(detectors, currency)

    for module in (cases_command, policy_diff, examine):
        monkeypatch.setattr(module, "start_detectors", start)
    Path("mine.yaml").write_text(POLICY, "utf-8")
    Path("stricter.yaml").write_text(STRICTER, "utf-8")


def ran(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = cli.main(["policy", *arguments])
    captured = capsys.readouterr()
    return status, captured.out + captured.err


# --- explain ------------------------------------------------------------------


def test_explain_shows_the_smallest_change_and_no_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ("--policy", "mine.yaml", CANARY, "token")
    status, shown = ran("explain", *arguments, capsys=capsys)
    assert status == 0
    assert "'token': A secret." in shown
    place = f"at characters {len(CANARY) + 1}-{len(CANARY) + 6} of message 1"
    assert f" secret.token {place} " in shown
    assert CANARY not in shown
    assert cli.main(["explain", *arguments]) == 0
    assert capsys.readouterr().out == shown


def test_explain_as_json_holds_the_change(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("explain", "--policy", "mine.yaml", "--json", CANARY, "token")
    _, shown = ran(*arguments, capsys=capsys)
    value = json.loads(shown)
    assert value["change"]["without"][0]["class"] == "secret.token"
    assert value["findings"][0]["start"] == len(CANARY) + 1
    assert CANARY not in shown


def test_explain_exits_with_one_if_the_policy_blocks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ("explain", "--policy", "stricter.yaml", "mark")
    status, shown = ran(*arguments, capsys=capsys)
    assert status == 1
    assert "it could leave" in shown


def test_explain_checks_a_required_signature(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ran("keygen", "key.pem", capsys=capsys)
    arguments = ("explain", "--policy", "mine.yaml", "--policy-key", "key.pub.pem", "a")
    _, shown = ran(*arguments, "--json", capsys=capsys)
    (change,) = json.loads(shown.splitlines()[0])["change"]["without"]
    assert change["class"] == "uncertain.stale_policy"


# --- test ---------------------------------------------------------------------

CASES = f"""\
version: 1
cases:
- {{id: good, text: "a token", route: local, rules: [token], classes: [secret.token]}}
- {{id: open, text: "{CANARY}", route: enclave}}
- {{id: other, text: "a mark", route: block, profiles: [stricter]}}
"""


def test_cases_that_hold(capsys: pytest.CaptureFixture[str]) -> None:
    Path("cases.yaml").write_text(CASES, "utf-8")
    status, shown = ran("test", "cases.yaml", "--policy", "mine.yaml", capsys=capsys)
    assert (status, NUMBER.findall(shown)) == (0, ["2", "0"])
    assert shown.endswith(": mine.yaml\n")
    arguments = ("test", "cases.yaml", "--policy", "stricter.yaml")
    status, shown = ran(*arguments, capsys=capsys)
    assert (status, NUMBER.findall(shown)) == (0, ["3", "0"])
    assert shown.endswith(": stricter.yaml\n")


def test_a_failed_case_is_reported_with_its_rule_and_without_its_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = CASES + (
        f'- {{id: bad, text: "{CANARY} token mark", route: enclave, '
        "rules: [mark], classes: [health.lab]}\n"
    )
    Path("cases.yaml").write_text(wrong, "utf-8")
    status, shown = ran("test", "cases.yaml", "--policy", "mine.yaml", capsys=capsys)
    assert status == 1
    first, *lines, last = shown.splitlines()
    assert first.startswith("bad: ")
    assert re.findall("enclave|local", first) == ["enclave", "local"]
    assert [each.rpartition(": ")[2] for each in lines] == [
        *("A secret.", "mark", "health.lab", "token")
    ]
    assert NUMBER.findall(last) == ["3", "1"]
    assert CANARY not in shown


def test_a_known_miss_is_reported_once_it_passes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    missed = CASES + (
        "known_misses:\n"
        "- {id: still, text: t0ken, route: local}\n"
        "- {id: mended, text: token, route: local}\n"
    )
    Path("cases.yaml").write_text(missed, "utf-8")
    arguments = ("test", "cases.yaml", "--policy", "mine.yaml")
    status, shown = ran(*arguments, capsys=capsys)
    assert status == 1
    first, last = shown.splitlines()
    assert first.startswith("mended: ")
    assert NUMBER.findall(last) == ["2", "0", "1"]
    status, shown = ran(*arguments, "--json", capsys=capsys)
    value = json.loads(shown)
    assert (value["known_misses"], value["mended"]) == (["still"], ["mended"])
    assert (value["cases"], value["failures"]) == (2, [])
    Path("cases.yaml").write_text(missed[: missed.index("- {id: mended")], "utf-8")
    assert ran(*arguments, capsys=capsys)[0] == 0


def test_cases_may_be_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    line = {"id": "a", "text": "a token", "route": "enclave"}
    Path("cases.jsonl").write_text(json.dumps(line), "utf-8")
    arguments = ("test", "cases.jsonl", "--policy", "mine.yaml", "--json")
    status, shown = ran(*arguments, capsys=capsys)
    assert status == 1
    (failure,) = json.loads(shown)["failures"]
    assert (failure["expected"], failure["got"]) == ("enclave", "local")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["test", "--policy", "mine.yaml"], "no cases are shipped for 'mine'"),
        (["test", "no.yaml"], "no.yaml: No such file"),
        (["test", "wrong.yaml", "--policy", "mine.yaml"], "cases: there is no case"),
        (["test", "foreign.yaml", "--policy", "mine.yaml"], "no case is for a policy"),
    ],
)
def test_cases_that_cannot_be_used(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("wrong.yaml").write_text("version: 1\n", "utf-8")
    foreign = "version: 1\ncases: [{id: a, text: x, route: {bank: local}}]\n"
    Path("foreign.yaml").write_text(foreign, "utf-8")
    status, shown = ran(*arguments, capsys=capsys)
    assert status == 2
    assert words in shown


def test_the_shipped_cases_are_for_the_shipped_profiles(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, shown = ran("test", "--policy", "clinic", capsys=capsys)
    assert status == 1  # these detectors know two words
    assert "cases, " in shown


def test_messages_of_a_case_are_asked_as_they_stand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = """\
version: 1
cases:
- id: turns
  messages: [{role: user, content: a}, {role: tool, name: token, content: b}]
  route: local
"""
    Path("cases.yaml").write_text(text, "utf-8")
    status, _ = ran("test", "cases.yaml", "--policy", "mine.yaml", capsys=capsys)
    assert status == 0


# --- diff ---------------------------------------------------------------------


def corpus(*texts: str) -> None:
    lines = [json.dumps({"id": f"q{i}", "text": each}) for i, each in enumerate(texts)]
    Path("corpus.jsonl").write_text("\n".join([*lines, "{", ""]), "utf-8")


def test_diff_names_lines_routes_and_rules_and_no_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    corpus("token", f"{CANARY} mark", "nothing")
    arguments = ("diff", "mine.yaml", "stricter.yaml", "--corpus", "corpus.jsonl")
    status, shown = ran(*arguments, capsys=capsys)
    assert status == 3, "not all was compared"
    *result, unread = shown.splitlines()
    move, totals, *counts = result[2:]
    assert move.split() == ["q1:", "enclave", "(default)", "->", "block", "(mark)"]
    assert NUMBER.findall(totals) == ["1", "3", "1"]
    assert counts == ["       1  enclave -> block", "       1  by mark"]
    assert unread.startswith("corpus.jsonl: line 4: ")
    assert Words.started == 1, "the same detectors look once"
    status, shown = ran(*arguments, "--json", capsys=capsys)
    value = json.loads(shown.splitlines()[0])
    assert value["moves"][0]["line"] == 2
    assert (value["queries"], value["unreadable"]) == (3, 1)
    assert value["totals"] == [{"before": "enclave", "after": "block", "queries": 1}]
    assert CANARY not in shown


def test_diff_runs_the_detectors_again_if_they_differ(
    capsys: pytest.CaptureFixture[str],
) -> None:
    corpus("token")
    Path("cards.yaml").write_text(POLICY + "packs: [pci]\n", "utf-8")
    arguments = ("diff", "mine.yaml", "cards.yaml", "--corpus", "corpus.jsonl")
    status, shown = ran(*arguments, capsys=capsys)
    assert status == 3, "a line of the corpus is none"
    assert "0 of 1 queries" in shown
    assert Words.started == 2


def test_diff_names_routing_changes_without_another_route(
    capsys: pytest.CaptureFixture[str],
) -> None:
    corpus("nothing")
    tiers = "[{id: device, kind: in_process}, {id: enclave, kind: attested}]"
    for name, entry in (("asks", "{consent: required}"), ("leaves", "{}")):
        section = f"routing: {{tiers: {tiers}, classes: {{public: {entry}}}}}\n"
        Path(f"{name}.yaml").write_text(POLICY + section, "utf-8")
    arguments = ("diff", "asks.yaml", "leaves.yaml", "--corpus", "corpus.jsonl")
    _, shown = ran(*arguments, capsys=capsys)
    lines = [each for each in shown.splitlines() if "old one: consent" in each]
    assert ["public" in each for each in lines] == [True]
    assert "0 of 1 queries" in shown


def test_diff_shows_a_number_of_moves_and_no_control_characters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_diff, "MAX_SHOWN", 2)
    corpus("mark", "mark", "mark")
    lines = Path("corpus.jsonl").read_text("utf-8").replace("q0", "\\u001b[31m")
    anonymous = json.dumps({"text": "mark"})
    Path("corpus.jsonl").write_text(f"{anonymous}\n{lines}", "utf-8")
    arguments = ("diff", "mine.yaml", "stricter.yaml", "--corpus", "corpus.jsonl")
    _, shown = ran(*arguments, capsys=capsys)
    assert "  line 1: enclave" in shown
    assert "  \\x1b[31m: enclave" in shown
    assert "and 2 more (--json" in shown


def test_diff_names_a_missing_corpus(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ("diff", "mine.yaml", "mine.yaml", "--corpus", "gone.jsonl")
    status, shown = ran(*arguments, capsys=capsys)
    assert status == 2
    assert f"gone.jsonl: {os.strerror(errno.ENOENT)}" in shown


def test_read_lines_keeps_ids() -> None:
    lines = [b'{"id": 7, "text": "x"}\n', b"{\n", b"\n"]
    read = list(read_lines(lines))
    assert [line_id for line_id, _ in read] == [7, None]
    assert read[1][1] is None


# --- examinations -------------------------------------------------------------


def test_an_examination_is_patient_and_looks_at_everything() -> None:
    policy = load_policy(POLICY + "scan: early_exit\nlimits: {deadline_ms: 10}\n")
    patient = full_scan(policy)
    assert patient.document.scan == "full"
    assert patient.limits.deadline_ms == PATIENT_MS
    assert patient.limits.max_chars == policy.limits.max_chars
    assert patient.rules == policy.rules
    assert policy.document.scan == "early_exit"


def test_an_examination_shows_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "SHOWN_AFTER_S", -1.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    queries = [Query(messages=())] * 70
    detectors = Words()
    assert len(list(examine.inspect_all(detectors, queries))) == 70
    over = "\r\x1b[K"
    result = f"{over}64 of 70 queries{over}70 of 70 queries\n"
    assert capsys.readouterr().err == result


# --- report -------------------------------------------------------------------


def test_report_writes_one_page(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("report", "--policy", "bank", "--out", "bank.html")
    status, shown = ran(*arguments, capsys=capsys)
    assert status == 0
    assert shown.startswith("bank.html: ")
    page = Path("bank.html").read_text("utf-8")
    assert "<h1>A bank</h1>" in page
    assert "Not checked: " in page


def test_report_describes_the_signature(capsys: pytest.CaptureFixture[str]) -> None:
    ran("keygen", "key.pem", capsys=capsys)
    arguments = (
        *("report", "--policy", "mine.yaml", "--policy-key", "key.pub.pem"),
        *("--out", "mine.html"),
    )
    ran(*arguments, capsys=capsys)
    assert "Not current" in Path("mine.html").read_text("utf-8")
    ran("sign", "--key", "key.pem", "mine.yaml", capsys=capsys)
    ran(*arguments, capsys=capsys)
    written = Path("mine.html").read_text("utf-8")
    assert "Valid, by key " in written
    end = written.partition("Valid until")[2]
    assert re.match(r"</strong><span>2[0-9-]{9} [0-9:]{5} UTC<", end)


@pytest.mark.parametrize(
    ("name", "words"),
    [("wrong.json", "wrong.json: not JSON"), ("gone.json", "gone.json: No such file")],
)
def test_report_refuses_an_invalid_evaluation(
    name: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("wrong.json").write_text("{", "utf-8")
    arguments = ("report", "--policy", "mine.yaml", "--evaluation", name)
    status, shown = ran(*arguments, "--out", "x.html", capsys=capsys)
    assert status == 2
    assert words in shown
    assert not Path("x.html").exists()


def test_report_names_an_unwritable_path(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("report", "--policy", "mine.yaml", "--out", "gone/x.html")
    status, shown = ran(*arguments, capsys=capsys)
    assert status == 2
    assert f"gone/x.html: {os.strerror(errno.ENOENT)}" in shown


# --- approvals ------------------------------------------------------------------

APPROVAL = f'approved:\n- {{sha256: "{"ab" * 32}", by: A. Weber, date: 2026-11-22}}\n'


TWO_TIERS = "[{id: device, kind: in_process}, {id: enclave, kind: attested}]"
SECTIONS = {
    "plain": "",
    "approving": APPROVAL,
    "routed": f"routing: {{tiers: {TWO_TIERS}}}\n",
    "asking": (
        f"routing: {{tiers: {TWO_TIERS}, classes: {{public: {{consent: required}}}}, "
        "queue: {store: memory}, observe: true}\n"
    ),
}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("plain", "plain"),
        ("plain", "approving"),
        ("approving", "asking"),
        ("asking", "routed"),
        ("routed", "plain"),
        ("asking", "stricter"),
        ("stricter", "approving"),
    ],
)
def test_diff_has_the_same_content_as_json(
    old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus("token", f"{CANARY} mark", "nothing")
    for name, section in SECTIONS.items():
        Path(f"{name}.yaml").write_text(POLICY + section, "utf-8")
    arguments = ("diff", f"{old}.yaml", f"{new}.yaml", "--corpus", "corpus.jsonl")
    _, shown = ran(*arguments, capsys=capsys)
    _, result = ran(*arguments, "--json", capsys=capsys)
    lines = shown.splitlines()
    *said, unread = result.splitlines()
    assert lines.pop() == unread
    assert list(diff_in_words(json.loads("".join(said)))) == lines


def diff_in_words(value: dict[str, Any]) -> Iterator[str]:
    """Yield every line of the text output, built only from the JSON."""
    both = [(only, value[only]) for only in ("old", "new")]
    for only, one in both:
        yield f"{only}: {one['source']}, {one['digest']}"
    for only, one in both:
        for each in one["approved_only"]:
            yield (
                f"  approved only by the {only} one: {each['role']} "
                f"sha256:{each['sha256']}"
            )
    for only, one in both:
        for each in one["said_only"]:
            yield f"  only in the {only} one: {each['of']} {each['says']}"
    yield from moves_in_words(value)


def moves_in_words(value: dict[str, Any]) -> Iterator[str]:
    for each in value["moves"]:
        approved = ", with an approved text" if each["approved"] else ""
        yield (
            f"  {each['id']}: {each['before']} ({each['rule_before']}) -> "
            f"{each['after']} ({each['rule_after']}){approved}"
        )
    yield (
        f"{len(value['moves'])} of {value['queries']} queries change route "
        f"({value['unreadable']} unreadable)"
    )
    for each in value["totals"]:
        yield f"  {each['queries']:>6}  {each['before']} -> {each['after']}"
    for rule, count in value["rules"].items():
        yield f"  {count:>6}  by {rule}"


def test_diff_shows_approvals_and_inspects_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    corpus("token")
    Path("approving.yaml").write_text(POLICY + APPROVAL, "utf-8")
    for old, new, only in (("mine", "approving", "new"), ("approving", "mine", "old")):
        files = (f"{old}.yaml", f"{new}.yaml")
        _, shown = ran("diff", *files, "--corpus", "corpus.jsonl", capsys=capsys)
        line = f"  approved only by the {only} one: system sha256:{'ab' * 32}"
        assert line in shown.splitlines()
    assert Words.started == 4


def test_explain_takes_a_conversation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = [
        {"role": "system", "content": "hello"},
        {"role": "user", "content": f"{CANARY} mark"},
    ]
    chat = json.dumps({"messages": said})
    arguments = ("explain", "--policy", "mine.yaml", "--messages", "--json")
    status, shown = ran(*arguments, chat, capsys=capsys)
    assert status == 0
    (label,) = json.loads(shown)["labels"]
    assert (label["message"], label["classes"]) == (1, ["org.confidential"])
    assert CANARY not in shown
    status, shown = ran(*arguments, "no JSON", capsys=capsys)
    assert status == 2
    assert "--messages needs" in shown


def test_check_and_report_name_who_approved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("approving.yaml").write_text(POLICY + APPROVAL, "utf-8")
    _, shown = ran("check", "approving.yaml", capsys=capsys)
    assert f"approved  system sha256:{'ab' * 32}, by A. Weber on 2026-11-22" in shown
    arguments = ("report", "--policy", "approving.yaml", "--out", "page.html")
    assert ran(*arguments, capsys=capsys)[0] == 0
    page = Path("page.html").read_text("utf-8")
    assert "A. Weber approved on 2026-11-22" in page
    assert "ab" * 32 in page
