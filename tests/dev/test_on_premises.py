"""The development on-premises server, with a real model behind it."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from curtilage.client.chat.answer import Delta, Finished
from curtilage.client.chat.query import Message, Query, Settings
from curtilage.client.errors import OnPremisesUnavailableError
from curtilage.client.on_premises.reasons import OnPremisesFailure
from curtilage.client.on_premises.settings import (
    OnPremisesSettings,
    on_premises_settings,
)
from curtilage_dev.processes import Processes
from curtilage_dev.stack import DEVELOPMENT
from support.on_premises import asking

QUERY = Query(
    messages=(Message(role="user", content="What is the capital of France?"),),
    settings=Settings(max_tokens=12, temperature=0, logprobs=True, stop=("\n",)),
)


@pytest.fixture(scope="module", params=["tls", "socket"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[OnPremisesSettings]:
    folder = tmp_path_factory.mktemp("on_premises")
    flag = ["--socket"] if request.param == "socket" else []
    with Processes(folder) as processes:
        started = processes.start(
            "on_premises",
            ["-m", "curtilage_dev.on_premises", "--folder", str(folder), *flag],
            environment={"PYTHONPATH": str(DEVELOPMENT)},
        )
        ready = started.wait_ready()
        yield on_premises_settings(
            address=str(ready["address"]),
            model=str(ready["model"]),
            ca=Path(str(ready["ca"])).read_bytes() if "ca" in ready else b"",
        )


@pytest.fixture(autouse=True)
async def said_good_bye() -> AsyncGenerator[None]:
    """Wait at the end until TLS has, as a program that runs on would.

    The other side's good-bye comes from another process; a loop that is closed before
    leaves the socket open.
    """
    yield
    transports = vars(asyncio.get_running_loop())["_transports"]
    for _ in range(1000):
        if all(vars(each)["_sock"] is None for each in transports.values()):
            break
        await asyncio.sleep(0.01)


async def test_a_real_model_answers_on_premises(server: OnPremisesSettings) -> None:
    async with asking(server, first_s=120, stall_s=120) as asked:
        *deltas, finished = await asked.ask(QUERY)
    assert isinstance(finished, Finished)
    assert finished.finish_reason in {"stop", "length"}
    assert finished.prompt_tokens > finished.completion_tokens > 0
    said = [each for each in deltas if isinstance(each, Delta)]
    assert "Paris" in "".join(each.text for each in said)
    assert all(value <= 0 for each in said for _, value in each.logprobs)
    assert sum(len(each.logprobs) for each in said) > 1


async def test_its_refusals_are_reported(server: OnPremisesSettings) -> None:
    long = Query(messages=(Message(role="user", content="word " * 9000),))
    async with asking(server, first_s=120) as asked:
        with pytest.raises(OnPremisesUnavailableError) as error:
            await asked.ask(long)
    assert (error.value.reason, error.value.code) == (
        OnPremisesFailure.REFUSED,
        "400",
    )
