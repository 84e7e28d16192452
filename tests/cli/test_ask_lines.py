import asyncio
import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat.chat_completion import Choice as ChatChoice
from typing_extensions import override

from curtilage.cli.ask_lines import (
    Question,
    Results,
    Tally,
    ask_lines,
    read_questions,
    results,
)
from curtilage.client.chat.answer import Answer, Called, Choice, Finished
from curtilage.client.chat.openai_chat import MAX_REQUEST_BYTES
from curtilage.client.chat.query import Query
from curtilage.client.errors import (
    BlockedError,
    ConfigError,
    EnclaveError,
    NotRoutedError,
    UsageError,
)
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.policy.decision.tiers import RoutingClass
from support.client_parts import LOCALLY

CANARY = "canary-2b51"
USUAL: dict[str, object] = {"max_tokens": 9, "preset": "batch"}
DOWN = EnclaveError(EnclaveFailure.RELAY_UNREACHABLE)
BLOCKED = BlockedError(rule="r", reason="no", classes=(), policy_digest="sha256:00")


def read(*lines: object, system: str | None = None) -> list[Question]:
    data = [
        each if isinstance(each, bytes) else json.dumps(each).encode() for each in lines
    ]
    return list(read_questions(data, USUAL, system=system))


def answer_to(query: Query) -> Answer:
    return Answer(
        text=f"Answer: {query.messages[-1].content}",
        provenance=replace(LOCALLY, recorded=False, tier="device"),
        finished=Finished(finish_reason="stop", prompt_tokens=1, completion_tokens=1),
    )


class Asked:
    """Answers, or fails as configured for a text."""

    def __init__(self, fails: dict[str, Exception] | None = None) -> None:
        self.fails = fails or {}
        self.seen: list[str] = []

    async def __call__(self, query: Query) -> Answer:
        text = query.messages[-1].content
        self.seen.append(text)
        await asyncio.sleep(0)
        if text in self.fails:
            raise self.fails[text]
        return answer_to(query)


async def asked(
    path: Path, questions: Iterable[Question], ask: Asked, *, parallel: int = 2
) -> Tally:
    with results(path) as out:
        return await ask_lines(
            tuple(questions), ask, out, parallel=parallel, progress=lambda _: None
        )


def written(path: Path) -> dict[object, dict[str, object]]:
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    found = {line["id"]: line for line in lines}
    assert len(found) == len(lines), "an id has two lines"
    return found


THREE = [{"id": number, "text": f"q{number}"} for number in (1, 2, 3)]


def test_a_line_is_a_question() -> None:
    (one,) = read({"id": "a", "text": "Hello?", "floor": "internal"})
    assert one.id == "a"
    assert [(each.role, each.content) for each in one.query.messages] == [
        ("user", "Hello?")
    ]
    assert one.query.options.floor is RoutingClass.INTERNAL
    assert one.query.settings.max_tokens == 9
    assert not one.query.stream


def test_a_lines_options_override_the_defaults() -> None:
    (one,) = read({"id": 1, "text": "Hello?", "max_tokens": 3})
    assert one.query.settings.max_tokens == 3


def test_a_line_may_be_a_conversation() -> None:
    turns = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    (one,) = read({"id": 1, "messages": turns}, system="Be brief.")
    assert [each.content for each in one.query.messages] == ["a", "b", "c"]


def test_a_system_message_goes_before_each_text() -> None:
    for one in read(*THREE, system="Be brief."):
        assert one.query.messages[0].role == "system"


def test_a_mark_of_byte_order_is_no_part_of_a_line() -> None:
    (question,) = read(b'\xef\xbb\xbf{"id": 1, "text": "a"}\n')
    assert question.query.messages[0].content == "a"


def test_blank_lines_are_no_questions() -> None:
    assert [each.id for each in read(b"", *THREE, b" \n")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (CANARY.encode(), "not a JSON object"),
        (b'{"id": 1, "id": 2, "text": "x"}', "repeats a key"),
        (b" " * MAX_REQUEST_BYTES + b'{"id": 1, "text": "x"}', "too long"),
        ([CANARY], "not a JSON object"),
        ({"text": CANARY}, "id must be"),
        ({"id": True, "text": CANARY}, "id must be"),
        ({"id": "x" * 257, "text": CANARY}, "id must be"),
        ({"id": 1}, "accepts id, text or messages"),
        ({"id": 1, "text": CANARY, "messages": []}, "accepts id, text or messages"),
        ({"id": 1, "text": CANARY, CANARY: 1}, "accepts id, text or messages"),
        ({"id": 1, "text": CANARY, "consent": "x"}, "accepts id, text or messages"),
        ({"id": 1, "text": CANARY, "defer": True}, "accepts id, text or messages"),
        ({"id": 1, "messages": [CANARY]}, "a list of objects"),
        ({"id": 1, "messages": CANARY}, "a list of objects"),
        ({"id": 1, "text": 7}, "content must be"),
        ({"id": 1, "text": " "}, "text is empty"),
        ({"id": 1, "text": CANARY, "max_tokens": 0}, "max_tokens"),
        ({"id": 1, "text": CANARY, "floor": CANARY}, "floor"),
    ],
)
def test_an_invalid_line_is_reported_with_its_number(line: object, said: str) -> None:
    with pytest.raises(UsageError, match=r"^line 2: ") as refused:
        read({"id": 9, "text": "fine"}, line)
    assert said in str(refused.value)
    assert CANARY not in str(refused.value)


def test_an_id_is_unique() -> None:
    with pytest.raises(UsageError, match=r"^line 4: line 1 "):
        read(*THREE, THREE[0])


async def test_each_question_has_its_answer(tmp_path: Path) -> None:
    tally = await asked(tmp_path / "out", read(*THREE), Asked())
    lines = written(tmp_path / "out")
    for number in (1, 2, 3):
        answer = lines[number]["answer"]
        assert isinstance(answer, dict)
        assert answer["text"] == f"Answer: q{number}"
        assert answer["route"] == "local"
    assert tally.summary() == "3 answered (3 by device)"


TOP = (("yes", -0.5), ("no", -1.0))
FULL = replace(
    answer_to(read(THREE[0])[0].query),
    id="ans-1",
    logprobs=(("yes", -0.5),),
    tops=(TOP,),
    calls=(Called(index=0, name="find", arguments='{"a": 1}'),),
    others=(Choice(text="no", finish_reason="length"),),
)


async def test_a_line_has_all_that_was_requested(tmp_path: Path) -> None:
    async def full(query: Query) -> Answer:
        return FULL if query.messages[-1].content == "q1" else answer_to(query)

    with results(tmp_path / "out") as out:
        await ask_lines(read(*THREE), full, out, parallel=1, progress=lambda _: None)
    lines = written(tmp_path / "out")
    answer: Any = lines[1]["answer"]
    (call,) = answer["tool_calls"]
    assert (call["type"], call["function"]) == (
        "function",
        {"name": "find", "arguments": '{"a": 1}'},
    )
    (token,) = answer["logprobs"]["content"]
    assert (token["token"], token["logprob"]) == ("yes", -0.5)
    assert [each["token"] for each in token["top_logprobs"]] == ["yes", "no"]
    # As OpenAI's own library reads them.
    first, second = map(ChatChoice.model_validate, answer["choices"])
    assert first.message.tool_calls is not None
    assert first.message.tool_calls[0].id == call["id"]
    assert (first.message.content, first.index) == ("Answer: q1", 0)
    assert (second.message.content, second.finish_reason) == ("no", "length")
    # Nothing of it where nothing of it was requested.
    plain: Any = lines[2]["answer"]
    assert not plain.keys() & {"tool_calls", "logprobs", "choices"}


async def test_a_refusal_has_a_line_and_is_not_asked_again(tmp_path: Path) -> None:
    ask = Asked({"q2": BLOCKED})
    tally = await asked(tmp_path / "out", read(*THREE), ask)
    error = written(tmp_path / "out")[2]["error"]
    assert isinstance(error, dict)
    assert error["code"] == "blocked_by_policy"
    assert (tally.by, tally.refused) == ({"device": 2}, 1)
    again = Asked()
    await asked(tmp_path / "out", read(*THREE), again)
    assert again.seen == []


def unmet(*, final: bool) -> NotRoutedError:
    error = NotRoutedError("required_unmet", "an enclave was required")
    error.final = final
    return error


async def test_a_policys_refusal_is_final_and_a_failure_is_not(
    tmp_path: Path,
) -> None:
    fails: dict[str, Exception] = {"q1": unmet(final=True), "q2": unmet(final=False)}
    tally = await asked(tmp_path / "out", read(*THREE), Asked(fails))
    assert tally.summary() == (
        "1 answered (1 by device); 1 refused; 1 without an answer (required_unmet: 1)"
    )
    error = written(tmp_path / "out")[1]["error"]
    assert isinstance(error, dict)
    assert error["code"] == "required_unmet"
    again = Asked()
    await asked(tmp_path / "out", read(*THREE), again)
    assert again.seen == ["q2"]
    with results(tmp_path / "out") as out:
        assert out.known == {1: True, 2: False, 3: False}


async def test_only_questions_without_an_answer_are_asked_again(
    tmp_path: Path,
) -> None:
    tally = await asked(tmp_path / "out", read(*THREE), Asked({"q1": DOWN, "q3": DOWN}))
    assert (tally.by, tally.refused) == ({"device": 1}, 0)
    assert tally.failed == {"relay_unreachable": 2}
    again = Asked()
    await asked(tmp_path / "out", read(*THREE), again)
    assert again.seen == ["q1", "q3"]
    assert written(tmp_path / "out").keys() == {1, 2, 3}


async def test_a_process_killed_in_a_line_has_not_written_it(tmp_path: Path) -> None:
    path = tmp_path / "out"
    await asked(path, read(*THREE[:2]), Asked(), parallel=1)
    whole = path.read_bytes()
    for cut in range(1, len(whole)):
        path.write_bytes(whole[:cut])
        again = Asked()
        await asked(path, read(*THREE[:2]), again, parallel=1)
        assert path.read_bytes() == whole
        assert len(again.seen) == 2 - whole[:cut].count(b"\n")


@pytest.mark.parametrize(
    "content", ["a letter", "a letter\n", '{"id": 1}\n', '{"id": 1, "text": "x"}']
)
async def test_a_file_that_holds_something_else_is_left_alone(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "letter"
    path.write_text(content)
    with pytest.raises(ConfigError), results(path):
        pass
    assert path.read_text() == content


def test_only_its_owner_can_read_the_answers(tmp_path: Path) -> None:
    with results(tmp_path / "out"):
        pass
    assert (tmp_path / "out").stat().st_mode & 0o077 == 0


def test_a_file_of_another_account_gets_no_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(ConfigError, match="another account"), results(path):
        pass


def test_one_process_writes_it_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with (
        results(path),
        pytest.raises(ConfigError, match="another process"),
        results(path),
    ):
        pass


async def test_questions_are_asked_in_parallel(tmp_path: Path) -> None:
    running, most = 0, 0

    class Counting(Asked):
        @override
        async def __call__(self, query: Query) -> Answer:
            nonlocal running, most
            running += 1
            most = max(most, running)
            try:
                return await super().__call__(query)
            finally:
                running -= 1

    many = [{"id": number, "text": f"q{number}"} for number in range(20)]
    await asked(tmp_path / "out", read(*many), Counting(), parallel=3)
    assert most == 3


async def test_after_a_write_error_nothing_more_is_asked(
    tmp_path: Path,
) -> None:
    path, ask = tmp_path / "out", Asked()
    path.touch()
    descriptor = os.open(path, os.O_RDONLY)
    with pytest.raises(OSError, match=r"descriptor|argument"):
        await ask_lines(
            read(*THREE),
            ask,
            Results(descriptor, {}),
            parallel=1,
            progress=lambda _: None,
        )
    os.close(descriptor)
    assert ask.seen == ["q1"]
