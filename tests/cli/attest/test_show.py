"""Who vouches for what, as text and as JSON."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from curtilage.attest.claims import Link
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import Tee
from curtilage.attest.evidence_json import encode_bundle
from curtilage.attest.verify import VerifiedKey, verify
from curtilage.cli.attest import verdict_json as verdicts
from curtilage.cli.attest.refusals import MEANINGS
from curtilage.cli.attest.tree import WIDTH, left_text, tree_text, verdict_text
from curtilage.cli.attest.words import meaning_text
from curtilage.cli.main import main
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.policy.breaks import known_breaks
from curtilage.relay.forward import node_list
from curtilage_dev.deployment import MEASUREMENT, make_any_deployment
from curtilage_dev.emulated.machines import make_gpus, make_machine
from support.memory_enclave import (
    NOW,
    ROOMY,
    MemoryEnclave,
    deployment_policy,
    verified,
)

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "attestation.md"
KINDS = ["emulated-tdx", "emulated-nitro", "emulated-azure-snp"]


def verdict_of(kind: str) -> VerifiedKey:
    machine = make_machine(Tee(kind), MEASUREMENT, now=NOW)
    made = make_any_deployment(machine, now=NOW, gpus=make_gpus(2, now=NOW))
    return verify(encode_bundle(made.bundle()), made.expectations(), now=NOW)


@pytest.fixture(scope="module")
def keys() -> dict[str, VerifiedKey]:
    own = {"emulated-sev-snp": verified(MemoryEnclave(parameters=ROOMY))}
    return own | {kind: verdict_of(kind) for kind in KINDS}


@pytest.mark.parametrize("kind", ["emulated-sev-snp", *KINDS])
def test_every_line_fits_a_terminal(keys: dict[str, VerifiedKey], kind: str) -> None:
    text = verdict_text(keys[kind], known_breaks().rows)
    assert max(len(line) for line in text.splitlines()) <= WIDTH
    assert text.isprintable() or "\n" in text


@pytest.mark.parametrize("kind", ["emulated-sev-snp", *KINDS])
def test_every_link_is_in_the_tree_once(
    keys: dict[str, VerifiedKey], kind: str
) -> None:
    key = keys[kind]
    text = verdict_text(key, ())
    for link in key.links:
        assert link.subject in text
        if link.not_after is not None:
            assert f"{link.not_after:%Y-%m-%d %H:%M}" in text
    assert text.count("this GPU's firmware key") == len(key.devices)
    assert "EMULATED" in text


def test_the_verdict_of_the_audit_trail_is_named(
    keys: dict[str, VerifiedKey],
) -> None:
    key = keys["emulated-sev-snp"]
    text = verdict_text(key, ())
    assert key.verdict_id in text
    assert key.expectations_digest in text
    assert "TRUSTED until 2026-11-21 23:00 UTC" in text
    # Wherever lines are broken.
    assert "signs receipts" in " ".join(text.split())
    other = verdict_text(keys["emulated-tdx"], ())
    assert "signs no receipts" in " ".join(other.split())
    assert text.endswith("- everything: this evidence comes without hardware")


class Genuine:
    """A key of hardware, of which only what is asked here is there."""

    emulated = False


def test_what_is_not_ruled_out_comes_last() -> None:
    """Each break that is left, by name and with its source; else that there is none."""
    key = cast("VerifiedKey", Genuine())
    rows = known_breaks().rows
    text = left_text(key, rows)
    assert max(len(line) for line in text.splitlines()) <= WIDTH
    for row in rows:
        assert f"- {row.name} ({row.published}," in text
        assert row.source in text
    assert known_breaks().as_of in text.splitlines()[0]
    assert left_text(key, ()).endswith("- of the attacks in that list, none")


def link(subject: str, issuer: str, *, ends: datetime | None = None) -> Link:
    return Link(
        subject=subject, issuer=issuer, role="a role", fingerprint="00", not_after=ends
    )


def test_a_tree_of_two_branches() -> None:
    moment = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    text = tree_text(
        [
            link("root", "root", ends=moment),
            link("one", "root"),
            link("below one", "one"),
            link("two", "root"),
            link("apart", "somebody"),
        ]
    )
    assert text.splitlines() == [
        "root" + " " * 60 + "2026-01-02 03:04",
        "│ a role",
        "├─ one",
        "│  │ a role",
        "│  └─ below one",
        "│       a role",
        "└─ two",
        "     a role",
        "apart",
        "  a role, vouched for by somebody",
    ]


def test_a_name_that_comes_again_is_the_last_one() -> None:
    chain = [link("root", "root"), link("leaf", "root")]
    text = tree_text([*chain, *chain])
    assert text.count("└─ leaf") == 2


def test_names_of_any_length_fit() -> None:
    text = tree_text([link("x" * 300, "x" * 300), link("y " * 90, "x" * 300)])
    assert max(len(line) for line in text.splitlines()) <= WIDTH


def test_an_empty_chain_is_an_empty_tree() -> None:
    assert tree_text([]) == ""


# --- words for refusals ------------------------------------------------------


def test_every_code_has_its_words_here_and_in_the_document() -> None:
    document = DOCUMENT.read_text("utf-8")
    assert set(MEANINGS) == set(RefusalCode)
    for code, (meaning, what_now) in MEANINGS.items():
        assert f"| `{code.value}` | {meaning} | {what_now} |" in document
    assert len({meaning for meaning, _ in MEANINGS.values()}) == len(MEANINGS)


def test_the_document_names_every_key_of_a_verdict(
    keys: dict[str, VerifiedKey],
) -> None:
    document = DOCUMENT.read_text("utf-8")
    rows = known_breaks().rows
    result = verdicts.key_object(keys["emulated-sev-snp"], rows, at=NOW)
    claims = cast("dict[str, object]", result["claims"])
    for name in (*result, *claims, "bound_checked", "report_data", "nonce"):
        assert f"`{name}`" in document, name
    left = cast("dict[str, list[dict[str, str]]]", result["not_ruled_out"])
    assert [each["id"] for each in left["breaks"]] == [row.id for row in rows]
    assert all(f"`{name}`" in document for name in (*left, *left["breaks"][0]))


# --- the command -------------------------------------------------------------


@pytest.fixture
def bundle(tmp_path: Path) -> str:
    path = tmp_path / "bundle.json"
    path.write_bytes(MemoryEnclave().bundle)
    return str(path)


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "policy.yaml"
    path.write_text(deployment_policy(), "utf-8")
    return str(path)


AT = f"{NOW:%Y-%m-%dT%H:%M:%SZ}"


def test_show_draws_a_file(
    bundle: str, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["attest", "show", "--bundle", bundle, "--policy", policy, "--at", AT]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "└─ SEV-VCEK" in shown
    assert main([*arguments, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["version"], result["kind"], result["accepted"]) == (
        1,
        "bundle",
        True,
    )
    assert re.fullmatch(r"[0-9a-f]{64}", result["claims"]["verdict"])
    ends = {each["name"]: each["expires_at"] for each in result["expiries"]}
    assert min(ends.values()) == result["expires_at"]


def test_each_node_of_a_pool_is_shown(
    bundle: str, policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = tmp_path / "bundles"
    good = Path(bundle).read_bytes()
    listed.write_bytes(node_list({"a": good, "b": b""}))
    arguments = ["attest", "show", "--bundle", str(listed), "--policy", policy]
    arguments += ["--at", AT]
    assert main(arguments) == 1, "one of them gave nothing"
    shown = capsys.readouterr()
    assert shown.out.startswith("node a\n")
    assert "└─ SEV-VCEK" in shown.out
    assert "node b\n" in shown.out
    assert "REFUSED: malformed" in shown.err
    assert main([*arguments, "--json"]) == 1
    result = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["node"], each["accepted"]) for each in result] == [
        ("a", True),
        ("b", False),
    ]
    listed.write_bytes(node_list({"a": good}))
    assert main(arguments) == 0


def test_show_and_verify_say_the_same(
    bundle: str, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result: list[object] = []
    for command in ("show", "verify"):
        options = ["--bundle", bundle, "--policy", policy, "--at", AT, "--json"]
        assert main(["attest", command, *options]) == 0
        result.append(json.loads(capsys.readouterr().out))
    assert result[0] == result[1]


def test_a_refusal_is_explained_with_what_to_do(
    bundle: str, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    late = f"{NOW + timedelta(days=2):%Y-%m-%dT%H:%M:%SZ}"
    options = ["--bundle", bundle, "--policy", policy, "--at", late]
    assert main(["attest", "show", *options]) == 1
    result = capsys.readouterr()
    assert "FAIL  key window" in result.out
    assert "REFUSED: stale" in result.err
    assert meaning_text(RefusalCode.STALE) in result.err
    assert main(["attest", "show", *options, "--json"]) == 1
    refused = json.loads(capsys.readouterr().out)
    assert (refused["code"], refused["step"]) == ("stale", "key window")


def test_a_live_enclave_needs_a_relay_and_no_date(
    policy: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CURTILAGE_RELAY", raising=False)
    assert main(["attest", "show", "--policy", policy]) == 2
    assert FAILURE_TEXTS["not_configured"] in capsys.readouterr().err
    assert main(["attest", "show", "--policy", policy, "--at", AT]) == 2


def test_a_refusal_object_has_every_key() -> None:
    refusal = RefusedError(RefusalCode.REVOKED, "by AMD", step="revocation list")
    result = verdicts.refusal_object("evidence", refusal, at=NOW)
    assert result["code"] == "revoked"
    assert result["claims"] == {}
