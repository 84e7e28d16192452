"""One question over each kind of evidence: emulator, enclave, relay, client."""

from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from end_to_end.conftest import OpenSession, make_stack
from typing_extensions import override

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import Tee
from curtilage.attest.verify import verify
from curtilage.client.chat.answer import Answerer
from curtilage.client.chat.query import Message, Query, Settings
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.policy.document.load import load_policy
from curtilage.policy.expectations import expectations_from
from curtilage_dev.processes import Processes
from curtilage_dev.stack import Stack

HARMLESS = Query(
    messages=(
        Message(
            role="user",
            content="What is the difference between a virus and a bacterium?",
        ),
    ),
    settings=Settings(max_tokens=16, temperature=0, seed=1),
    stream=False,
)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What one stack emulates."""

    tee: Tee
    gpus: int

    @override
    def __str__(self) -> str:
        return f"{self.tee.value}+{self.gpus}"


# Without GPUs, SEV-SNP is what every other test here runs on.
KINDS = (
    Kind(tee=Tee.EMULATED_SEV_SNP, gpus=1),
    Kind(tee=Tee.EMULATED_TDX, gpus=1),
    Kind(tee=Tee.EMULATED_NITRO, gpus=2),
    Kind(tee=Tee.EMULATED_AZURE_SNP, gpus=1),
)


@pytest.fixture(scope="module", params=KINDS, ids=str)
def running(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    model: tuple[str, str],
) -> Generator[Stack]:
    folder = tmp_path_factory.mktemp("kind")
    with Processes(folder) as processes:
        stack = make_stack(folder, processes, model)
        stack.tee, stack.gpus = request.param.tee, request.param.gpus
        stack.start_evidence()
        stack.publish()
        stack.start_enclave()
        stack.start_relay()
        yield stack


def test_the_bundle_is_believed_under_its_policy_alone(
    running: Stack, stack: Stack
) -> None:
    bundle = running.fetch_bundle().read_bytes()
    now = datetime.now(UTC)
    own = expectations_from(load_policy(running.policy.read_text("utf-8")))
    key = verify(bundle, own, now=now)
    assert key.tee == running.tee.value
    assert len(key.devices) == running.gpus
    others = expectations_from(load_policy(stack.policy.read_text("utf-8")))
    with pytest.raises(RefusedError) as caught:
        verify(bundle, others, now=now)
    assert caught.value.code in {
        RefusalCode.EMULATED_REFUSED,
        RefusalCode.UNSIGNED,
    }


async def test_a_question_is_answered(
    running: Stack, open_session: OpenSession
) -> None:
    policy = running.policy.read_text("utf-8")
    async with open_session(relay=running.relay_url, policy=policy) as session:
        answer = await session.ask(HARMLESS)
    assert answer.route is Answerer.ENCLAVE


async def test_a_policy_that_wants_one_more_gpu_keeps_it_at_home(
    running: Stack, open_session: OpenSession
) -> None:
    policy = running.policy.read_text("utf-8")
    wanted = f"emulated-nvidia-gpu: {running.gpus}"
    assert wanted in policy
    more = policy.replace(wanted, f"emulated-nvidia-gpu: {running.gpus + 1}")
    async with open_session(relay=running.relay_url, policy=more) as session:
        answer = await session.ask(HARMLESS)
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.fallback is EnclaveFailure.EVIDENCE_REFUSED
