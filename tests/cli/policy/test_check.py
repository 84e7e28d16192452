import base64
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from curtilage.cli import main as cli
from curtilage.cli.policy.command import NER, summary
from curtilage.client import Client, assemble, config
from curtilage.client.errors import UsageError
from curtilage.client.system.files import folder_digest
from curtilage.policy.document.dictionaries import edm_entry
from curtilage.policy.document.load import PROFILES, load_policy, load_profile
from curtilage.policy.document.model import Policy
from curtilage.policy.errors import PolicyError
from curtilage.policy.explain.transport import UNSAFE

CANARY = "canary-3f1c"
POLICY = """\
version: 1
default: {decision: enclave}
rules:
- {id: any-uncertain, when: "uncertain.*", then: local}
- {id: token, when: "secret.*", then: local, reason: A secret.}
"""


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def ran(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = cli.main(["policy", *arguments])
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def line_of(shown: str, start: str) -> str:
    """Return the one line that starts so."""
    (line,) = (each for each in shown.splitlines() if each.strip().startswith(start))
    return line


@pytest.mark.parametrize("action", ["", "list", "explain", "test", "diff", "report"])
def test_help_teaches(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["policy", *([action] if action else []), "--help"])
    assert ended.value.code == 0
    assert "example" in capsys.readouterr().out


def test_list_names_every_profile(capsys: pytest.CaptureFixture[str]) -> None:
    status, shown = ran("list", capsys=capsys)
    assert status == 0
    assert [line.split()[0] for line in shown.splitlines()] == list(PROFILES)
    status, shown = ran("list", "--json", capsys=capsys)
    assert [each["name"] for each in json.loads(shown)] == list(PROFILES)


def test_list_prints_a_profile_to_start_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, shown = ran("list", "clinic", capsys=capsys)
    assert load_policy(shown).document.packs
    status, shown = ran("list", "nobody", capsys=capsys)
    assert status == 2
    assert ", ".join(PROFILES) in shown


def test_check_summarises_a_policy(capsys: pytest.CaptureFixture[str]) -> None:
    own = (
        "packs: [pci]\ndetectors:\n- {id: code, kind: dictionary, "
        "class: org.dictionary.code, entries: [osprey], base_score: 80}\n"
        "exclude:\n- {class: identifier.direct.person, dictionary: famous.txt}\n"
    )
    Path("famous.txt").write_text("Ada Lovelace\n", "utf-8")
    Path("own.yaml").write_text(POLICY + own, "utf-8")
    status, shown = ran("check", "own.yaml", capsys=capsys)
    assert status == 0, shown
    for words in (
        "rules     ",
        "pack      pci: Payment card data",
        "default   enclave",
        "names     no model",
        "detector  code: dictionary, finds org.dictionary.code",
        "excluded  identifier.direct.person listed in famous.txt",
        "enclaves  none: nothing may leave",
        "answers   in frames of 512 bytes, one every 50 ms",
        "cover     none",
        "mirror    none",
    ):
        assert words in shown


def test_check_shows_recognizers(capsys: pytest.CaptureFixture[str]) -> None:
    file = (
        "{recognizers: [{name: Codes, supported_entity: CODE, patterns: "
        "[{name: fast, regex: x1, score: 1}, "
        "{name: slow, regex: '(?<=a)x', score: 1}]}]}"
    )
    Path("r.yaml").write_text(file, "utf-8")
    own = "detectors:\n  presidio: {file: r.yaml, classes: {CODE: health.mrn}}\n"
    Path("own.yaml").write_text(POLICY + own, "utf-8")
    status, shown = ran("check", "own.yaml", capsys=capsys)
    assert status == 0, shown
    line = line_of(shown, "presidio  Codes: ")
    for named in ("CODE", "health.mrn", "r.yaml"):
        assert named in line
    assert ": slow\n" in shown


def test_check_shows_recognizers_in_python(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    info = Path("acme_recognizers-1.0.dist-info")
    info.mkdir()
    head = "Metadata-Version: 2.1\nName: acme-recognizers\nVersion: 1.0\n"
    (info / "METADATA").write_text(head, "utf-8")
    # The module is not imported; it does not exist.
    points = "[curtilage.recognizers]\ncode = acme_recognizers:Code\n"
    (info / "entry_points.txt").write_text(points, "utf-8")
    monkeypatch.setattr(sys, "path", [str(Path.cwd()), *sys.path])
    own = (
        f"detectors:\n  presidio:\n    entry_points: [{POINT}]\n"
        "    classes: {CODE: health.mrn}\n"
    )
    Path("own.yaml").write_text(POLICY + own, "utf-8")
    status, shown = ran("check", "own.yaml", capsys=capsys)
    assert status == 0, shown
    line = line_of(shown, "presidio  code: ")
    for named in ("Python", "acme-recognizers 1.0", "isolated"):
        assert named in line
    assert "CODE as health.mrn" in shown
    for old, new, said in (
        ("'1.0'", "'1.1'", "version: '1.0' is installed here"),
        ("name: code", "name: other", "'acme-recognizers' has none of this name in"),
    ):
        Path("own.yaml").write_text(POLICY + own.replace(old, new), "utf-8")
        status, shown = ran("check", "own.yaml", capsys=capsys)
        assert status == 2
        assert said in shown


def test_check_reports_unsafe_settings(capsys: pytest.CaptureFixture[str]) -> None:
    text = POLICY + "transport: {unsafe_unpadded: true}\n"
    Path("own.yaml").write_text(text, "utf-8")
    status, shown = ran("check", "own.yaml", capsys=capsys)
    assert status == 0
    assert f"answers   {UNSAFE}" in shown


def test_check_compiles_patterns(capsys: pytest.CaptureFixture[str]) -> None:
    own = "detectors:\n- {id: a, kind: regex, class: org.confidential, base_score: 50,"
    Path("own.yaml").write_text(POLICY + own + ' pattern: "(x{900}){900}"}\n', "utf-8")
    status, shown = ran("check", "own.yaml", capsys=capsys)
    assert status == 2
    assert "line 7: detectors[0].pattern: " in shown


def test_check_looks_for_the_files_that_a_policy_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = "exclude:\n- {class: identifier.direct.person, dictionary: gone.txt}\n"
    Path("own.yaml").write_text(POLICY + own, "utf-8")
    status, shown = ran("check", "own.yaml", capsys=capsys)
    assert status == 2
    assert "exclude[0].dictionary: " in shown


def model_policy(folder: Path, digest: str) -> None:
    ner = f"ner: {{engine: spacy, path: {str(folder)!r}, sha256: {digest}, "
    labels = "labels: {PER: identifier.direct.person}}\n"
    Path("own.yaml").write_text(POLICY + ner + labels, "utf-8")


def test_check_looks_for_the_model_and_its_digest(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    model_policy(folder, "0" * 64)
    status, shown = ran("check", "own.yaml", capsys=capsys)
    assert status == 2
    assert f"ner.path: {config.NO_FOLDER}" in shown
    folder.mkdir()
    (folder / "weights").write_bytes(b"w")
    status, shown = ran("check", "own.yaml", capsys=capsys)
    assert status == 2
    assert re.search(rf"ner\.sha256: .*{folder_digest(folder)}", shown)
    model_policy(folder, folder_digest(folder))
    status, shown = ran("check", "own.yaml", capsys=capsys)
    assert status == 0, shown
    assert f"names     {NER['spacy']}" in shown
    (folder / "link").symlink_to(folder / "weights")
    status, shown = ran("check", "own.yaml", capsys=capsys)
    assert status == 2
    assert "holds a link" in shown


def test_check_takes_the_policy_as_other_commands_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("own.yaml").write_text(POLICY, "utf-8")
    assert ran("check", "--policy", "own.yaml", capsys=capsys) == ran(
        "check", "own.yaml", capsys=capsys
    )
    with pytest.raises(SystemExit) as ended:
        cli.main(["policy", "check", "--policy", "own.yaml", "clinic"])
    assert ended.value.code == 2
    assert "exclude each other" in capsys.readouterr().err


def test_check_takes_the_name_of_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    status, shown = ran("check", "bank", capsys=capsys)
    assert status == 0
    assert shown.startswith("profile 'bank': ")


def test_problems_of_a_shipped_profile_have_lines_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def find(_policy: Policy) -> Iterator[tuple[tuple[str, ...], str]]:
        yield ("rules",), "wrong"

    monkeypatch.setattr(config, "_broken_model", find)
    status, shown = ran("check", "bank", capsys=capsys)
    assert status == 2
    assert "rules: wrong" in shown


def test_check_shows_what_an_enclave_must_prove(
    capsys: pytest.CaptureFixture[str],
) -> None:
    section = """\
attestation:
  environment: production
  trust_anchors: []
  required_cpu_tees: [sev-snp]
  releases:
    names: []
    log: {origin: log.example, key: KEY, witnesses: [], quorum: 1}
    max_checkpoint_age_s: 60
  snp: {min_version: 3, vmpl: [0], allow_vlek: false, allow_masked_chip: false, MIN}
  freshness: {max_key_lifetime_s: 60, max_evidence_age_s: 90, clock_skew_s: 1}
"""
    key = base64.b64encode(bytes(32)).decode()
    section = section.replace("KEY", key).replace("MIN", "min_tcb: []")
    Path("own.yaml").write_text(POLICY + section, "utf-8")
    status, shown = ran("check", "own.yaml", capsys=capsys)
    assert status == 0, shown
    for line in (
        "enclaves  production: emulated evidence is never trusted",
        "hardware  AMD SEV-SNP; but no root is pinned for it, so it is refused",
        "releases  none: nothing may leave, in the log log.example",
        "evidence  at most 90 seconds old, for keys that live at most 1 minute",
    ):
        assert line in shown, line


def test_an_unreadable_model_is_reported(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def refuse(_folder: Path) -> str:
        raise PermissionError(13, CANARY)

    monkeypatch.setattr(config, "folder_digest", refuse)
    model_policy(tmp_path, "0" * 64)
    status, shown = ran("check", "own.yaml", capsys=capsys)
    assert status == 2
    assert "ner.path: unreadable" in shown
    assert CANARY not in shown


PATTERN = "{id: a, kind: regex, class: org.confidential, base_score: 50, pattern: "
WORDS = "{id: a, kind: dictionary, class: org.dictionary.a, base_score: 50, entries: "
POINT = "{name: code, distribution: acme-recognizers, version: '1.0'}"
BROKEN = (
    "{recognizers: [{name: Codes, supported_entity: CODE, "
    "patterns: [{regex: '(', score: 1}]}]}"
)
PRESIDIO = "detectors:\n  presidio:\n"
CODE = "    classes: {CODE: health.mrn}\n"
LIST = "{id: a, kind: edm, class: org.edm.a, base_score: 9, file: words, salt: "
ELSEWHERE = (
    f"ner: {{engine: spacy, path: /nowhere/model, sha256: {'0' * 64}, "
    "labels: {PER: identifier.direct.person}}\n"
)
UNUSABLE = {
    "too large": (
        f'detectors:\n- {PATTERN}"(x{{900}}){{900}}"}}\n',
        "pattern: a pattern",
    ),
    "empty text": (f'detectors:\n- {PATTERN}"a*"}}\n', "matches the empty text"),
    "no word": (f'detectors:\n- {WORDS}["---"]}}\n', "detectors[0]"),
    "no model": (ELSEWHERE, f"ner.path: {config.NO_FOLDER}"),
    "ordinary words": (
        f'detectors:\n- {LIST}"{bytes(16).hex()}"}}\n',
        "sent; make the list with `curtilage policy list-make`",
    ),
    "no entry point": (
        f"{PRESIDIO}    entry_points: [{POINT}]\n{CODE}",
        "entry_points[0].distribution: 'acme-recognizers' is not installed here",
    ),
    "broken recognizer": (
        f"{PRESIDIO}    file: broken.yaml\n{CODE}",
        "detectors.presidio.file: Codes, pattern: not a valid pattern",
    ),
    "no class": (
        f"{PRESIDIO}    file: broken.yaml\n{CODE.replace('CODE', 'OTHER')}",
        "'classes' has no class for the entity 'CODE'",
    ),
    "no library": (
        ELSEWHERE.replace("spacy", "transformers"),
        "ner.engine: the library 'transformers' is not installed here",
    ),
}
# Every command that applies a policy or puts it in force.
USERS = {
    "check": ("policy", "check", "own.yaml"),
    "sign": ("policy", "sign", "--key", "key.pem", "own.yaml"),
    "report": ("policy", "report", "--policy", "own.yaml", "--out", "page.html"),
    "test": ("policy", "test", "--policy", "own.yaml"),
    "diff": ("policy", "diff", "own.yaml", "clinic", "--corpus", "none"),
    "explain": ("explain", "--policy", "own.yaml", "a"),
    "decide": ("decide", "--policy", "own.yaml", "--jsonl"),
    "ask": ("ask", "--policy", "own.yaml", "a"),
    "serve": ("serve", "--policy", "own.yaml"),
    "evaluate": ("evaluate", "--policy", "own.yaml", "--data", "."),
}


def only_spacy(name: str) -> bool | None:
    return name == "spacy" or None


def started(_config: object, *, spare: bool) -> None:
    raise UsageError(f"started, {spare=}")


def in_force(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("own.yaml").write_text(POLICY + text, "utf-8")
    entries = [edm_entry(word, salt=bytes(16)) for word in ("what", "the", "and")]
    Path("words").write_text("\n".join(entries), "utf-8")
    Path("broken.yaml").write_text(BROKEN, "utf-8")
    monkeypatch.setattr(config, "find_spec", only_spacy)
    monkeypatch.setattr(assemble, "assemble", started)
    assert cli.main(["policy", "keygen", "key.pem"]) == 0


@pytest.mark.parametrize("arguments", USERS.values(), ids=USERS)
@pytest.mark.parametrize(("text", "result"), UNUSABLE.values(), ids=UNUSABLE)
def test_an_unusable_policy_is_refused_by_every_command(
    text: str,
    result: str,
    arguments: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    in_force(text, monkeypatch)
    capsys.readouterr()
    before = set(Path().iterdir())
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert result in captured.err
    assert captured.err.removeprefix("curtilage: ").startswith("own.yaml: line ")
    assert captured.out == ""
    assert set(Path().iterdir()) == before, "nothing signed, nothing reported"


@pytest.mark.parametrize(("text", "result"), UNUSABLE.values(), ids=UNUSABLE)
def test_the_library_refuses_an_unusable_policy(
    text: str, result: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_force(text, monkeypatch)
    with pytest.raises(PolicyError) as refused:
        Client(policy="own.yaml")
    assert result in str(refused.value)


def test_evidence_is_verified_without_the_names_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # An auditor's machine has none, and decides no query.
    in_force(ELSEWHERE, monkeypatch)
    capsys.readouterr()
    arguments = ["policy", "verify", "--key", "key.pub.pem", "own.yaml"]
    assert cli.main(arguments) == 1
    assert "ner" not in capsys.readouterr().out


def test_check_shows_both_time_limits() -> None:
    shown = "\n".join(summary(load_profile("default"), "default"))
    line = line_of(shown, "time ")
    assert re.findall(r"\d[\d,]* [a-z]+", line) == [
        *("250 ms", "400 ms", "1,000 characters", "30 s")
    ]


def test_check_shows_which_languages_may_be_sent() -> None:
    shown = "\n".join(summary(load_profile("clinic"), "clinic"))
    languages = ("en", "de", "es", "fr", "it", "nl", "pt")
    assert f"  languages {', '.join(languages)}; " in shown


def test_check_shows_who_may_answer() -> None:
    shown = "\n".join(summary(load_profile("default"), "default"))
    assert "; 0.05 US$" in line_of(shown, "tier      local: ")
    assert "  class     restricted: local\n" in shown
    assert "  found     local, enclave " in shown
