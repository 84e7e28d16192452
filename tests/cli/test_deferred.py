import json
import time
from pathlib import Path

import pytest

from curtilage.cli import main as cli
from curtilage.client.chat.answer import Answer, Finished
from curtilage.client.failure_texts import NO_QUEUE
from curtilage.client.queue.deferred import Deferred, State, outcome_of
from curtilage.client.queue.deferred_store import DeferredStore, queue_store
from curtilage.client.queue.deferring import MOST_PAUSE_S
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.load import profile_text
from curtilage.policy.document.routing_settings import Queue
from support.client_parts import LOCALLY

CANARY = b"canary-7e19"
TICKETS = ("0a" * 16, "0b" * 16)


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A policy with a queue in a file, in force."""
    key = tmp_path / "queue.key"
    key.write_text("5a" * 32)
    key.chmod(0o600)
    file = tmp_path / "policy.yaml"
    plain = profile_text("default").partition("\nrouting:")[0]
    file.write_text(
        f"{plain}\nrouting:\n  tiers: [{{id: device, kind: in_process}}]\n"
        f"  queue: {{store: file, key_file: {key}}}\n"
    )
    monkeypatch.setenv("CURTILAGE_POLICY", str(file))
    return file


@pytest.fixture
def store(policy: Path, state_home: Path) -> DeferredStore:
    """The queue with two questions."""
    plan = Queue(store="file", key_file=str(policy.with_name("queue.key")))
    store = queue_store(plan, state_home / "curtilage")
    now_ms = time.time_ns() // 1_000_000
    for number, ticket in enumerate(TICKETS):
        item = Deferred(
            ticket=ticket,
            routing_class=RoutingClass.PUBLIC,
            policy="sha256:00",
            cause="relay_unreachable",
            put_ms=now_ms + number,
            until_ms=now_ms + 3_600_000,
        )
        store.put(item, CANARY, "")
    return store


def answered(store: DeferredStore) -> None:
    first, _ = store.items(0)
    answer = Answer(
        text="Twelve.",
        provenance=LOCALLY,
        finished=Finished(finish_reason="stop", prompt_tokens=1, completion_tokens=1),
    )
    store.settle(first, State.ANSWERED, outcome_of(answer), now_ms=first.put_ms)


@pytest.mark.usefixtures("store")
def test_queued_questions_are_listed_without_their_texts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["queue", "list"]) == 0
    shown = capsys.readouterr().out
    for ticket, line in zip(TICKETS, shown.splitlines(), strict=True):
        assert line.split()[:4] == [ticket, "waiting", "public", "relay_unreachable"]
    assert CANARY.decode() not in shown


@pytest.mark.usefixtures("store")
def test_the_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["queue", "list", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert [each["ticket"] for each in value] == list(TICKETS)
    assert {each["state"] for each in value} == {"waiting"}


@pytest.mark.usefixtures("policy")
def test_an_unused_queue_is_empty(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["queue", "list"]) == 0
    assert "nothing is queued" in capsys.readouterr().err
    assert cli.main(["queue", "drain"]) == 0


def test_an_answer_is_shown(
    store: DeferredStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["queue", "show", TICKETS[0]]) == 3
    said = capsys.readouterr().err
    assert "curtilage: queued: " in said
    # This process ends, so it does not retry.
    assert "`curtilage queue drain`" in said
    assert f"at least every {MOST_PAUSE_S:.0f} s" in said
    assert f"`curtilage queue show {TICKETS[0]}`" in said
    answered(store)
    assert cli.main(["queue", "show", TICKETS[0]]) == 0
    shown = capsys.readouterr()
    assert shown.out == "Twelve.\n"
    assert "answered locally" in shown.err
    assert cli.main(["queue", "show", "--json", TICKETS[0]]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "Twelve."


def test_a_question_is_forgotten(
    store: DeferredStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["queue", "drop", TICKETS[0]]) == 0
    assert [each.ticket for each in store.items(0)] == [TICKETS[1]]
    assert cli.main(["queue", "drop", TICKETS[0]]) == 3
    assert TICKETS[0] in capsys.readouterr().err
    assert cli.main(["queue", "show", TICKETS[0]]) == 3


def test_all_are_forgotten(
    store: DeferredStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["queue", "drop", "--all"]) == 0
    assert store.items(0) == ()
    assert "2 deleted" in capsys.readouterr().err


def test_a_question_for_an_enclave_is_not_retried_without_a_relay(
    store: DeferredStore,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CURTILAGE_RELAY", raising=False)
    assert cli.main(["queue", "drain"]) == 2
    assert "--relay" in capsys.readouterr().err
    assert {each.state for each in store.items(0)} == {State.WAITING}


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("wrong", "why"),
    [([], "name tickets"), (["--all", TICKETS[0]], "exclude each other")],
)
def test_drop_needs_tickets_or_all(
    wrong: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["queue", "drop", *wrong]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("store_kind", ["none", "memory"])
def test_a_queue_in_another_process_is_not_shown(
    policy: Path, store_kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = policy.read_text()
    policy.write_text(text[: text.index("store: file")] + f"store: {store_kind}}}\n")
    assert cli.main(["queue", "list"]) == 2
    said = {"none": NO_QUEUE, "memory": "is in the memory"}[store_kind]
    assert said in capsys.readouterr().err


def test_a_question_waits_in_a_file_or_not_at_all(
    policy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = policy.read_text()
    policy.write_text(text[: text.index("store: file")] + "store: memory}\n")
    assert cli.main(["ask", "--defer", "hello"]) == 2
    said = capsys.readouterr().err
    assert "--defer: " in said
    assert NO_QUEUE not in said


def test_a_key_that_others_read_opens_nothing(
    policy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy.with_name("queue.key").chmod(0o644)
    assert cli.main(["queue", "list"]) == 2
    assert "chmod 600" in capsys.readouterr().err
