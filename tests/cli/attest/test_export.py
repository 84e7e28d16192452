"""Exported verdicts: what is in the file, who can verify it, and every refusal."""

import ast
import base64
import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography.exceptions import InvalidSignature

from curtilage.attest.encoding.strict_json import canonical_json
from curtilage.cli.attest.export_file import KIND
from curtilage.cli.main import main
from curtilage.client.remote.nodes import bundles_of
from curtilage.relay.forward import node_list
from support import stranger
from support.memory_enclave import NOW, MemoryEnclave, deployment_policy

AT = f"{NOW:%Y-%m-%dT%H:%M:%SZ}"
DONE, REFUSED, WRONG = 0, 1, 2
LISTED = "exclude:\n  - {class: identifier.direct.person, dictionary: names.txt}\n"
Printed = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def bundle() -> bytes:
    return MemoryEnclave().bundle


@pytest.fixture
def folder(tmp_path: Path, bundle: bytes) -> Path:
    (tmp_path / "bundle").write_bytes(bundle)
    (tmp_path / "policy.yaml").write_text(deployment_policy(), "utf-8")
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Printed:
    def call(*words: str) -> tuple[int, str, str]:
        try:
            status = main(["attest", *words])
        except SystemExit as left:
            status = cast("int", left.code)
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return call


@pytest.fixture
def export(run: Printed, folder: Path) -> Callable[..., dict[str, Any]]:
    def call(*more: str, status: int = DONE, at: str = AT) -> dict[str, Any]:
        words = ["export", "--bundle", str(folder / "bundle"), "--at", at]
        words += ["--policy", str(folder / "policy.yaml"), *more]
        found, _, printed = run(*words, "--out", str(folder / "export.json"))
        assert found == status, printed
        data = (folder / "export.json").read_bytes()
        assert hashlib.sha256(data).hexdigest() in printed
        return cast("dict[str, Any]", json.loads(data))

    return call


@pytest.fixture
def judge(run: Printed, folder: Path) -> Callable[..., tuple[str | None, str]]:
    """Return the code and the detail of a changed file, None where it is accepted."""

    def call(
        value: object, *more: str, canonical: bool = True
    ) -> tuple[str | None, str]:
        data = (
            canonical_json(value) + b"\n" if canonical else json.dumps(value).encode()
        )
        (folder / "changed.json").write_bytes(data)
        words = ("verify", "--export", str(folder / "changed.json"), "--json", *more)
        status, out, err = run(*words)
        assert status in {DONE, REFUSED}, err
        verdict = json.loads(out)
        assert (status == DONE) == verdict["accepted"]
        return verdict["code"], verdict["detail"] or ""

    return call


Export = Callable[..., dict[str, Any]]
Judge = Callable[..., tuple[str | None, str]]


def test_the_file_is_verified_as_it_was_made(
    export: Export, run: Printed, folder: Path, bundle: bytes
) -> None:
    value = export()
    assert base64.b64decode(value["bundle"]) == bundle
    assert value["made"] == AT
    assert value["kind"] == KIND
    assert value["policy"]["text"] == deployment_policy()
    assert json.loads(value["parts"]["manifest"])["name"] == "curtilage-enclave"
    words = ("verify", "--export", str(folder / "export.json"), "--as-made")
    status, out, _ = run(*words)
    assert (status, "ACCEPTED until" in out) == (DONE, True)
    status, out, _ = run(*words, "--json")
    assert json.loads(out) == value["verdict"]


def test_the_file_is_the_same_each_time(export: Export, folder: Path) -> None:
    export()
    first = (folder / "export.json").read_bytes()
    export()
    assert (folder / "export.json").read_bytes() == first
    assert first.isascii()
    assert first == canonical_json(json.loads(first)) + b"\n"


def test_now_is_another_time_and_may_refuse(export: Export, judge: Judge) -> None:
    value = export()
    assert judge(value, "--at", "2026-11-21T23:59:00Z")[0] == "stale"
    assert judge(value, "--at", AT)[0] is None


def test_a_refusal_is_exported_and_verified(export: Export, judge: Judge) -> None:
    value = export(status=REFUSED, at="2027-11-21T12:00:00Z")
    assert not value["verdict"]["accepted"]
    assert judge(value, "--as-made")[0] == value["verdict"]["code"]
    assert value["verdict"]["code"] in {"expired_endorsement", "stale", "crl_expired"}


def test_something_else_than_a_bundle_is_exported_too(
    export: Export, judge: Judge, folder: Path
) -> None:
    (folder / "bundle").write_bytes(b"{}")
    value = export(status=REFUSED)
    assert value["parts"] == {}
    assert judge(value, "--as-made")[0] == value["verdict"]["code"]


def test_a_list_of_names_stays_at_home(
    export: Export, judge: Judge, run: Printed, folder: Path
) -> None:
    text = deployment_policy().replace("exclude: []\n", LISTED)
    (folder / "policy.yaml").write_text(text, "utf-8")
    (folder / "names.txt").write_text("Erika Mustermann\n", "utf-8")
    value = export()
    assert "Mustermann" not in json.dumps(value)
    (entry,) = value["policy"]["files"]
    assert entry == {
        "name": "names.txt",
        "sha256": hashlib.sha256(b"Erika Mustermann\n").hexdigest(),
    }
    assert value["policy"]["digest"] == value["verdict"]["claims"]["policy"]
    words = ("verify", "--export", str(folder / "export.json"), "--at", AT)
    status, _, err = run(*words)
    assert (status, "--attachments" in err) == (WRONG, True)
    assert run(*words, "--policy", str(folder / "policy.yaml"))[0] == DONE
    value = export("--attachments")
    assert judge(value, "--as-made")[0] is None
    value["policy"]["files"][0]["content"] = base64.b64encode(b"Nobody\n").decode()
    assert judge(value, "--as-made")[0] == "policy_invalid"
    # Also where the reader's own policy applies: the file contradicts itself.
    mine = ("--at", AT, "--policy", str(folder / "policy.yaml"))
    assert judge(value, *mine)[0] == "policy_invalid"


def test_a_digest_of_another_policy_is_refused(
    export: Export, judge: Judge, folder: Path
) -> None:
    value = export()
    mine = ("--at", AT, "--policy", str(folder / "policy.yaml"))
    assert judge(value, *mine)[0] is None
    policy = value["policy"] | {"text": value["policy"]["text"] + " "}
    assert judge(value | {"policy": policy}, *mine)[0] == "policy_invalid"


def without(value: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: each for key, each in value.items() if key != name}


def test_a_changed_file_is_refused(export: Export, judge: Judge) -> None:
    value = export()
    policy, parts = value["policy"], value["parts"]
    pack = {"name": "swiss", "text": "name: swiss"}
    rows: tuple[tuple[dict[str, Any], str], ...] = (
        (value | {"v": 2}, "unsupported_version"),
        (value | {"kind": "other"}, "unsupported_version"),
        (without(value, "verdict"), "malformed"),
        (value | {"more": 1}, "malformed"),
        (value | {"made": AT.replace("Z", "+00:00")}, "malformed"),
        (value | {"made": "2026-11-21T12:00:00"}, "malformed"),
        (value | {"made": "yesterday"}, "malformed"),
        (value | {"verdict": []}, "malformed"),
        (value | {"parts": parts | {"log_proof": ""}}, "malformed"),
        (value | {"policy": policy | {"text": policy["text"] + " "}}, "policy_invalid"),
        (value | {"policy": policy | {"packs": [pack]}}, "policy_invalid"),
        (value | {"policy": policy | {"packs": [pack, pack]}}, "malformed"),
        (value | {"policy": without(policy, "packs")}, "malformed"),
        (
            value | {"expectations": value["expectations"] | {"release_names": []}},
            "policy_invalid",
        ),
        (value | {"verdict": value["verdict"] | {"links": []}}, "malformed"),
    )
    for changed, code in rows:
        assert judge(changed, "--as-made")[0] == code
    assert judge(value, canonical=False)[0] == "malformed"
    assert judge([value])[0] == "malformed"


def test_a_verdict_without_the_rest_is_not_believed(
    export: Export, judge: Judge
) -> None:
    refused = export(status=REFUSED, at="2027-11-21T12:00:00Z")
    accepted = export()
    code, detail = judge(accepted | {"verdict": refused["verdict"]}, "--as-made")
    assert (code, "export.verdict" in detail) == ("malformed", True)
    # Now is verified anew, so there is nothing to believe.
    assert judge(accepted | {"verdict": refused["verdict"]}, "--at", AT)[0] is None


def test_a_pack_of_another_version_is_named(export: Export, judge: Judge) -> None:
    value = export()
    policy = cast("dict[str, Any]", value["policy"])
    policy["packs"][0]["text"] += "\n"
    policy["digest"] = stranger.policy_digest(policy)
    code, detail = judge(value, "--as-made")
    assert (code, "pack" in detail) == ("policy_invalid", True)


def test_options_that_do_not_fit_are_refused(
    export: Export, run: Printed, folder: Path
) -> None:
    export()
    file, policy = str(folder / "export.json"), str(folder / "policy.yaml")
    plain = ("verify", "--bundle", str(folder / "bundle"))
    for words in (
        plain,
        (*plain, "--policy", policy, "--as-made"),
        ("verify", "--export", file, "--as-made", "--at", AT),
        ("verify", "--export", file, "--as-made", "--policy", policy),
        (*plain, "--export", file, "--policy", policy),
        ("export", "--policy", policy, "--at", AT),
    ):
        assert run(*words)[0] == WRONG


def test_of_a_pool_one_node_is_named(run: Printed, folder: Path, bundle: bytes) -> None:
    nodes = node_list({"aa": bundle, "bb": bundle})
    assert bundles_of(nodes).keys() == {"aa", "bb"}
    (folder / "bundle").write_bytes(nodes)
    words = ["export", "--bundle", str(folder / "bundle"), "--at", AT]
    words += ["--policy", str(folder / "policy.yaml")]
    status, _, err = run(*words)
    assert (status, "aa, bb" in err) == (WRONG, True)
    assert run(*words, "--node", "cc")[0] == WRONG
    status, out, _ = run(*words, "--node", "bb")
    assert base64.b64decode(json.loads(out)["bundle"]) == bundle


def test_a_profile_without_an_enclave_is_exported(run: Printed, folder: Path) -> None:
    words = ("export", "--bundle", str(folder / "bundle"), "--at", AT)
    status, out, _ = run(*words)
    assert (status, json.loads(out)["verdict"]["code"]) == (REFUSED, "policy_invalid")


def test_a_stranger_reaches_the_same_verdict(export: Export, folder: Path) -> None:
    value = export()
    found = stranger.verify((folder / "export.json").read_bytes())
    claims = value["verdict"]["claims"]
    assert {name: claims.get(name) for name in found if name != "accepted"} == {
        name: each for name, each in found.items() if name != "accepted"
    }


def test_the_stranger_knows_nothing_of_ours() -> None:
    tree = ast.parse(Path(stranger.__file__).read_text("utf-8"))
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add((node.module or "").partition(".")[0])
    assert modules - sys.stdlib_module_names == {"cryptography"}


def flipped(text: str, at: int) -> str:
    data = bytearray(base64.b64decode(text))
    data[at] ^= 1
    return base64.b64encode(data).decode()


def changed(value: dict[str, Any], *path: str, to: object) -> bytes:
    """Return the file with one member changed; ``inner`` is the bundle as JSON.

    An integer flips a bit of that byte of base64 text.
    """
    copy = json.loads(json.dumps(value))
    copy["inner"] = json.loads(base64.b64decode(copy["bundle"]))
    holder = copy
    for name in path[:-1]:
        holder = holder[name]
    last = path[-1]
    holder[last] = flipped(holder[last], to) if isinstance(to, int) else to
    inner = copy.pop("inner")
    copy["bundle"] = base64.b64encode(json.dumps(inner).encode()).decode()
    copy["parts"]["cpu"] = inner["cpu"]
    return canonical_json(copy) + b"\n"


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("inner cpu report", 0x90),
        ("inner cpu report", 0x2A0),
        ("inner cpu vek", 300),
        ("inner cpu crl", 60),
        ("inner key_configs", 8),
        ("inner receipt_public_key", base64.b64encode(bytes(32)).decode()),
        ("inner transport_parameters", 0),
        ("inner devices", ["a device"]),
        ("policy text", ""),
        ("made", "2026-11-22T12:00:00Z"),
        ("made", "2026-11-20T12:00:00Z"),
        ("expectations release_names", ["other"]),
        ("expectations required_cpu_tees", ["sev-snp"]),
        ("expectations roots", [""]),
        ("expectations log quorum", "9"),
        ("expectations log origin", "other"),
        ("expectations log public_key", "00" * 32),
        ("parts manifest", "{}"),
    ],
)
def test_a_stranger_refuses_every_change(export: Export, path: str, to: object) -> None:
    value = export()
    names = path.split()
    if names[-1] == "quorum":
        to = value["expectations"]["log"]["quorum"]
        data = json.loads(changed(value, "made", to=value["made"]))
        data["expectations"]["log"]["quorum"] = cast("int", to) + 8
        file = canonical_json(data) + b"\n"
    else:
        file = changed(value, *names, to=to)
    with pytest.raises(
        (stranger.StrangerError, InvalidSignature, ValueError, TypeError)
    ):
        stranger.verify(file)
    assert stranger.verify(changed(value, "made", to=value["made"]))["accepted"]
