"""``route explain``: the mask, the estimate, the choice, and never the text."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from curtilage.cli import main as cli
from curtilage.cli.options import NO_TEXT
from curtilage.cli.route.explain import (
    BLOCKED_BY_DEFAULT,
    UNREAD,
    object_of,
    routed_by,
    rows_by,
    words_of,
)
from curtilage.cli.route.explain_lines import Inspected, Unread
from curtilage.client.assemble import router_for
from curtilage.client.chat.query import Query, Settings, single_query
from curtilage.client.parts import UnavailableLocal
from curtilage.client.routing.router import CHOSEN, REMEDIES, WHY_NOT
from curtilage.client.routing.utility import Reason, Refusal
from curtilage.policy.decision.classes import STALE_POLICY
from curtilage.policy.decision.decide import INSPECTION_DOOR, Assessment, Inspection
from curtilage.policy.decision.tiers import Denial
from curtilage.policy.document.load import load_policy, profile_text
from curtilage.policy.document.model import Policy
from curtilage.policy.explain.decision import CONSENT, NOT_IN_FORCE
from curtilage.policy.explain.routing import aim_in_words, decided_alone
from support.client_parts import finding

EASY = single_query("Classify this mail as spam or not: you have won a prize")
HARD = single_query(
    "Prove step by step that the square root of 2 is irrational, then derive the "
    "equation and calculate how many digits agree."
)


def policy(routing: str | None = None) -> Policy:
    text = profile_text("default")
    if routing is not None:
        text = text.partition("\nrouting:")[0] + f"\n{routing}"
    return load_policy(text)


def explained(
    used: Policy, query: Query, *, found: str | None = None
) -> tuple[Sequence[str], dict[str, object], Assessment]:
    decision = decided_alone(used, found)
    router = router_for(used, UnavailableLocal("none"))
    routed = None if router is None else routed_by(router, decision, query)
    return (
        list(words_of(used, decision, query, router, routed)),
        object_of(used, decision, router, routed),
        decision,
    )


def test_every_reason_has_words() -> None:
    assert set(WHY_NOT) == set(Denial)


def test_a_hard_question_would_go_to_the_strong_tier() -> None:
    lines, result, _ = explained(policy(), HARD)
    assert result["choice"] == "enclave"
    assert lines[-1] == f"choice    enclave: {CHOSEN[Reason.HARD]}"
    assert any(line.startswith("permitted local") for line in lines)


def test_what_the_policy_keeps_local_is_kept_local() -> None:
    lines, result, _ = explained(
        policy(
            "routing:\n  tiers:\n"
            "  - {id: local, kind: in_process}\n  - {id: enclave, kind: attested}\n"
            "  intents: {overrides: {reasoning: prefer_home}}\n"
        ),
        HARD,
    )
    assert result["choice"] == "local"
    assert lines[-1] == f"choice    local: {CHOSEN[Reason.OVERRIDE]}"


def test_a_query_kept_local_has_one_tier_and_the_other_a_reason() -> None:
    lines, result, decision = explained(policy(), HARD, found="uncertain.language")
    assert result["routing_class"] == decision.permitted.routing_class.value
    assert result["denied"] == {"enclave": "route"}
    assert f"not       enclave: {WHY_NOT[Denial.ROUTE]}" in lines
    assert lines[-1] == f"choice    local: {CHOSEN[Reason.ONLY_PERMITTED]}"
    assert lines[-2] == UNREAD
    assert not any(line.startswith(("intent", "cues", "gain")) for line in lines)
    estimate = result["estimate"]
    assert isinstance(estimate, dict)
    assert (estimate["source"], estimate["intent"]) == ("unread", "unknown")


BLOCKING = """\
version: 1
default: {decision: enclave}
rules:
- {id: any-uncertain, when: "uncertain.*", then: local}
- {id: block-cards, when: "financial.pan", then: block, reason: No cards here.}
"""
WITH_TIERS = """\
routing:
  tiers: [{id: device, kind: in_process}, {id: enclave, kind: attested}]
"""


@pytest.mark.parametrize("routing", ["", WITH_TIERS], ids=["no routing", "routing"])
def test_of_a_blocked_text_the_rule_is_named_and_no_tier(routing: str) -> None:
    used = load_policy(BLOCKING + routing)
    lines, result, _ = explained(used, HARD, found="financial.pan")
    first, last = lines
    assert first == "policy    route block"
    assert last.startswith("choice    none: ")
    assert last.endswith(": block-cards (No cards here.)")
    assert (result["choice"], result["refusal"]) == (None, "blocked")
    assert (result["rule"], result["denied"]) == ("block-cards", {})
    lines, result, _ = explained(used, HARD, found="org.confidential")
    assert "refusal" not in result or result["refusal"] is None
    assert not any("blocks" in line for line in lines)


def test_a_policy_that_is_not_in_force_is_called_so() -> None:
    lines, _, _ = explained(policy(), HARD, found=STALE_POLICY)
    assert lines[1].strip() == NOT_IN_FORCE
    assert NOT_IN_FORCE not in str(explained(policy(), HARD)[0])


@pytest.mark.parametrize("required", [True, False])
def test_a_text_that_a_person_must_agree_to_is_called_so(required: bool) -> None:
    consent = "public: {consent: required}" if required else ""
    used = load_policy(BLOCKING + WITH_TIERS + f"  classes: {{{consent}}}\n")
    lines, result, _ = explained(used, HARD)
    assert (lines[1].strip() == CONSENT) is required
    assert result["consent"] is required
    lines, result, _ = explained(used, HARD, found="uncertain.language")
    assert CONSENT not in str(lines)
    assert result["consent"] is False


def test_a_default_that_blocks_is_named_as_one() -> None:
    used = load_policy(BLOCKING.replace("decision: enclave", "decision: block"))
    lines, result, _ = explained(used, HARD)
    assert lines[-1] == f"choice    none: {BLOCKED_BY_DEFAULT}"
    assert result["refusal"] == "blocked"


def test_a_policy_that_observes_says_so() -> None:
    lines, result, _ = explained(
        policy(
            "routing:\n  observe: true\n  tiers:\n"
            "  - {id: local, kind: in_process}\n  - {id: enclave, kind: attested}\n",
        ),
        EASY,
    )
    assert result["observing"] is True
    assert "the policy observes" in lines[-1]


def test_without_a_permitted_tier_the_remedy_is_shown() -> None:
    lines, result, _ = explained(
        policy(
            "routing:\n  tiers:\n"
            "  - {id: local, kind: in_process}\n  - {id: enclave, kind: attested}\n"
            "  classes: {public: {tiers: [enclave]}}\n"
            "  intents: {overrides: {classification: only_home}}\n"
        ),
        EASY,
    )
    assert result["choice"] is None
    assert result["refusal"] == "home_unavailable"
    assert f"not       local: {WHY_NOT[Denial.CLASS]}" in lines
    assert lines[-1] == f"choice    none: {REMEDIES[Refusal.HOME_UNAVAILABLE]}"


def test_without_an_enclave_the_choice_is_qualified(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["route", "explain", "What", "is", "HIV?"]) == 0
    assert "names no enclave" in capsys.readouterr().out


def test_a_policy_that_chooses_nothing_says_so() -> None:
    lines, result, _ = explained(policy(""), EASY)
    assert result["choice"] is None
    assert "permitted enclave (attested)" in lines
    assert "no routing section" in lines[-1]


def test_the_command_never_shows_the_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["route", "explain", "How", "tall", "is", "canary-5a1b?"]
    assert cli.main(words) == 0
    shown = capsys.readouterr()
    assert "choice" in shown.out
    assert cli.main([*words, "--json"]) == 0
    again = capsys.readouterr()
    assert "estimate" in json.loads(again.out)
    assert "canary" not in shown.out + shown.err + again.out + again.err


def row(used: Policy, query: Query, *, found: str | None = None) -> dict[str, object]:
    inspection = Inspection(
        door=INSPECTION_DOOR,
        findings=() if found is None else (finding(found),),
        payload_digest=query.payload_digest(),
        messages=1,
    )
    router = router_for(used, UnavailableLocal("none"))
    row_of = rows_by(used, router, Settings(max_tokens=256))
    return row_of(Inspected(id="a", query=query, inspection=inspection))


def test_a_row_matches_the_text_output() -> None:
    for query in (EASY, HARD):
        _, result, _ = explained(policy(), query)
        estimate = cast("dict[str, float]", result["estimate"])
        assert row(policy(), query) == {
            "id": "a",
            "permitted": result["permitted"],
            "chosen": result["choice"],
            "why": result["why"],
            "intent": estimate["intent"],
            "gain": pytest.approx(estimate["gain"], abs=1e-4),
            "rank": pytest.approx(result["rank"], abs=1e-4),
        }
        assert result["rank"] is not None


@pytest.mark.parametrize(("query", "side"), [(EASY, "below"), (HARD, "above")])
def test_the_distance_from_the_line_is_shown(query: Query, side: str) -> None:
    lines, result, _ = explained(policy(), query)
    rank, line = (cast("float", result[each]) for each in ("rank", "line"))
    shown = "\n".join(lines)
    distance = abs(round(100 * rank) - round(100 * line))
    assert re.search(rf": {distance} {side} .* {round(100 * line)}\b", shown)
    plan = policy().routing
    assert plan is not None
    assert plan.aim is not None
    assert f"          ({aim_in_words(plan.aim)}" in shown


def test_a_row_of_a_query_kept_local_has_no_gain() -> None:
    made = row(policy(), HARD, found="uncertain.language")
    assert (made["permitted"], made["chosen"]) == (["local"], "local")
    assert (made["why"], made["intent"]) == ("only_permitted", "unknown")
    assert made["gain"] is None


def test_a_row_of_a_blocked_text_has_no_tier() -> None:
    made = row(load_policy(BLOCKING + WITH_TIERS), HARD, found="financial.pan")
    assert (made["permitted"], made["chosen"], made["why"]) == ([], None, "blocked")


def test_a_row_without_routing_says_so() -> None:
    made = row(policy(""), EASY)
    assert (made["chosen"], made["why"]) == (None, "no_routing")
    assert "enclave" in str(made["permitted"])


def test_a_row_without_a_permitted_tier_has_the_refusal() -> None:
    made = row(
        policy(
            "routing:\n  tiers:\n"
            "  - {id: local, kind: in_process}\n  - {id: enclave, kind: attested}\n"
            "  classes: {public: {tiers: [enclave]}}\n"
            "  intents: {overrides: {classification: only_home}}\n"
        ),
        EASY,
    )
    assert (made["chosen"], made["why"]) == (None, "home_unavailable")


def test_a_row_of_an_invalid_line_has_its_id_and_problem() -> None:
    row_of = rows_by(policy(), None, Settings())
    bad = Unread(id=None, problem="it is blank")
    assert row_of(bad) == {"id": None, "error": "it is blank"}


def test_lines_are_explained_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "questions.jsonl"
    good = {"id": 1, "text": "How tall is canary-5a1b?"}
    path.write_text(f"{json.dumps(good)}\n", "utf-8")
    assert cli.main(["route", "explain", "--jsonl", str(path)]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["chosen"] in {"local", "enclave"}
    assert "names no enclave" in shown.err
    path.write_text(f"{json.dumps(good)}\ncanary-5a1b\n", "utf-8")
    assert cli.main(["route", "explain", "--jsonl", str(path)]) == 3
    again = capsys.readouterr()
    first, second = map(json.loads, again.out.splitlines())
    assert (first["id"], second["id"]) == (1, None)
    assert set(second) == {"id", "error"}
    assert "1 line " in again.err
    assert "canary" not in shown.out + shown.err + again.out + again.err


@pytest.mark.parametrize("more", [["--json"], ["a", "text"]])
def test_lines_go_with_no_other_text(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["route", "explain", *more, "--jsonl"]) == 2
    assert "--jsonl" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "quality"), [("qwen2.5-0.5b", "30"), ("qwen2.5-1.5b", "67")]
)
def test_a_model_of_the_catalogue_counts_before_it_is_installed(
    model: str, quality: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["route", "explain", "How tall is the tower?", "--model", model]
    assert cli.main(given) == 0
    assert f"quality {quality} of 100" in capsys.readouterr().out


def test_a_model_of_ones_own_has_an_assumed_quality(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(b"GGUF")
    given = ["route", "explain", "How tall is the tower?", "--model", str(own)]
    assert cli.main([*given, "--model-sha256", "ab" * 32]) == 0
    assert "quality 60 of 100" in capsys.readouterr().out


def test_an_unknown_model_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["route", "explain", "How tall is the tower?", "--model", "gibberish"]
    assert cli.main(given) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "gibberish" in shown.err


@pytest.mark.parametrize("words", ["", "   "])
def test_blanks_are_no_text(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["route", "explain", words]) == 2
    assert NO_TEXT in capsys.readouterr().err


@pytest.mark.parametrize("tokens", ["0", "-5", "some"])
def test_an_answer_has_a_token(tokens: str) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["route", "explain", "x", "--max-tokens", tokens])
    assert ended.value.code == 2
