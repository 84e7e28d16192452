"""Where a policy must be signed, nothing leaves while it is not."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from curtilage.client.chat.query import Message, Query
from curtilage.client.config import Flags, read_config, read_policy
from curtilage.client.detection.checked import CheckedInspector
from curtilage.client.detection.inspection import Inspector
from curtilage.client.errors import ConfigError
from curtilage.policy.decision.decide import Inspection, decide
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.load import load_profile, profile_text
from curtilage.policy.errors import PolicyError
from curtilage.policy.signing import (
    Currency,
    public_bytes,
    public_pem,
    sign_policy,
    stale_finding,
)
from support.audit_logs import NOW
from support.client_parts import ScriptedInspector
from support.inspections import inspection_of

POLICY = load_profile("default")
KEY = Ed25519PrivateKey.from_private_bytes(bytes([5]) * 32)
QUERY = Query(messages=(Message(role="user", content="hello"),))
UNTIL = NOW + timedelta(days=1)
SIGNATURE = sign_policy(
    POLICY.digest,
    KEY,
    not_before=int(NOW.timestamp()),
    not_after=int(UNTIL.timestamp()),
).encode()


class Scripted(ScriptedInspector):
    """Answers in every way that the detectors do."""

    def inspect(self, query: Query) -> Inspection:
        return inspection_of(
            findings=self.findings, payload_digest=query.payload_digest(), messages=1
        )

    def inspect_many(self, queries: Sequence[Query]) -> Iterator[Inspection]:
        return map(self.inspect, queries)


def as_detectors(scripted: Scripted) -> Inspector:
    return cast(Inspector, scripted)  # noqa: TC006 - the import is needed anyway


def checked(
    signature: bytes | None, now: datetime = NOW, *, demanded: bool = True
) -> CheckedInspector:
    currency = Currency(
        policy_digest=POLICY.digest, signature=signature, public_key=public_bytes(KEY)
    )
    return CheckedInspector(
        as_detectors(Scripted()), currency if demanded else None, lambda: now
    )


async def routes(inspector: CheckedInspector) -> set[Route]:
    found = [
        inspector.inspect(QUERY),
        await inspector.ainspect(QUERY),
        *inspector.inspect_many([QUERY]),
    ]
    return {decide(POLICY.rulebook, each).route for each in found}


@pytest.mark.parametrize(
    ("signature", "now"),
    [
        (None, NOW),
        (b"", NOW),
        (SIGNATURE[:-2], NOW),
        (SIGNATURE, NOW - timedelta(seconds=1)),
        (SIGNATURE, UNTIL + timedelta(seconds=1)),
    ],
    ids=["none", "empty", "broken", "early", "late"],
)
async def test_a_policy_that_is_not_current_keeps_everything_home(
    signature: bytes | None, now: datetime
) -> None:
    inspector = checked(signature, now)
    assert await routes(inspector) == {Route.LOCAL}
    assert stale_finding() in inspector.inspect(QUERY).findings
    assert inspector.problem is not None


async def test_a_policy_that_is_current_lets_go() -> None:
    assert await routes(checked(SIGNATURE)) == {Route.ENCLAVE}
    assert await routes(checked(None, demanded=False)) == {Route.ENCLAVE}


def test_it_is_asked_anew_for_every_query() -> None:
    now = [NOW]
    currency = Currency(
        policy_digest=POLICY.digest, signature=SIGNATURE, public_key=public_bytes(KEY)
    )
    inspector = CheckedInspector(as_detectors(Scripted()), currency, lambda: now[0])
    assert inspector.inspect(QUERY).findings == ()
    now[0] = UNTIL + timedelta(seconds=1)
    assert inspector.inspect(QUERY).findings == (stale_finding(),)


def test_closing_stops_the_detectors() -> None:
    scripted = Scripted()
    CheckedInspector(as_detectors(scripted), None).close()
    assert scripted.closed


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(profile_text("default"), "utf-8")
    (tmp_path / "key.pem").write_bytes(public_pem(KEY))
    return path


def test_the_signature_lies_next_to_the_policy(policy: Path, tmp_path: Path) -> None:
    flags = Flags(policy=str(policy), policy_key=str(tmp_path / "key.pem"))
    currency = read_config(flags, {}).currency
    assert currency is not None
    assert "not signed" in str(currency.problem(NOW))
    Path(f"{policy}.sig").write_bytes(
        sign_policy(
            read_policy(str(policy))[0].digest, KEY, not_before=0, not_after=2**31
        ).encode()
    )
    currency = read_config(flags, {}).currency
    assert currency is not None
    assert currency.problem(NOW) is None


def test_the_key_may_stand_in_the_environment(policy: Path, tmp_path: Path) -> None:
    environ = {"CURTILAGE_POLICY_KEY": str(tmp_path / "key.pem")}
    assert read_config(Flags(policy=str(policy)), environ).currency is not None
    assert read_config(Flags(), environ).currency is not None
    assert read_config(Flags(), {}).currency is None


def test_a_shipped_profile_has_no_signature(tmp_path: Path, policy: Path) -> None:
    del policy
    flags = Flags(policy="default", policy_key=str(tmp_path / "key.pem"))
    currency = read_config(flags, {}).currency
    assert currency is not None
    assert currency.signature is None


@pytest.mark.parametrize("content", [None, b"", b"nonsense", b"x" * 10_000])
def test_a_key_that_cannot_be_read_is_an_error(
    tmp_path: Path, content: bytes | None
) -> None:
    key = tmp_path / "key"
    if content is not None:
        key.write_bytes(content)
    with pytest.raises(ConfigError):
        read_config(Flags(policy_key=str(key)), {})


def test_a_profile_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_policy("clinic")[0].digest == load_profile("clinic").digest
    (tmp_path / "clinic").write_text(profile_text("default"), "utf-8")
    assert read_policy("clinic")[0].digest == POLICY.digest, "a file goes first"
    with pytest.raises(ConfigError):
        read_policy("hospital")


LISTS = """detectors:
- id: codename
  kind: dictionary
  class: org.dictionary.codename
  base_score: 80
  file: """


def with_list(folder: Path, file: str) -> str:
    path = folder / "mine.yaml"
    text = profile_text("default").replace("detectors: []\n", f"{LISTS}{file}\n")
    path.write_text(text, "utf-8")
    return str(path)


def test_a_list_is_read_from_the_policys_folder(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "names.txt").write_text("bluebird\n", "utf-8")
    policy, _ = read_policy(with_list(tmp_path, "lists/names.txt"))
    assert policy.digest != POLICY.digest


def test_a_list_is_read_from_nowhere_else(tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("bluebird\n", "utf-8")
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "link.txt").symlink_to(outside)
    for name in ("link.txt", "missing.txt"):
        with pytest.raises(PolicyError, match="cannot be read"):
            read_policy(with_list(folder, name))
    with pytest.raises(PolicyError):
        read_policy(with_list(folder, "../outside.txt"))


def test_a_list_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("curtilage.client.config.MAX_LIST_BYTES", 4)
    (tmp_path / "names.txt").write_text("bluebird\n", "utf-8")
    with pytest.raises(PolicyError, match="cannot be read"):
        read_policy(with_list(tmp_path, "names.txt"))
