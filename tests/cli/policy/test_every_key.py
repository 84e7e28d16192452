"""Every command that reads a policy, over a policy for every key there is.

The keys are read off the model, so a key that is added without an example here is
missed by ``test_every_key_has_an_example``.
"""

import asyncio
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any, Final, cast, get_args

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from curtilage.attest.custody import custody_body
from curtilage.attest.log.signers import LogSigner
from curtilage.cli import examine
from curtilage.cli import main as cli
from curtilage.cli.policy import diff as cli_diff
from curtilage.client import config
from curtilage.client.chat.query import Query
from curtilage.client.system.files import folder_digest
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.document.dictionaries import edm_entry
from curtilage.policy.document.load import load_policy
from curtilage.policy.document.model import Document
from curtilage.policy.document.sections import Section
from curtilage.policy.explain.routing import routing_in_words
from support.client_parts import ScriptedInspector
from support.evidence_policies import BASE as EVIDENCE
from support.evidence_policies import SNP, SNP_MINIMUM

Tree = Mapping[str, object]

UNCERTAIN: Final = {"id": "any-uncertain", "when": "uncertain.*", "then": "local"}
SMALL: Final[Tree] = {
    "version": 1,
    "default": {"decision": "enclave"},
    "rules": [UNCERTAIN, {"id": "health", "when": "health.*", "then": "local"}],
}
SHA256: Final = "ab" * 32
PEM: Final = "-----BEGIN CERTIFICATE-----\nMAMBAf8=\n-----END CERTIFICATE-----\n"
SALT: Final = "00" * 16
DEVICE: Final = {"id": "device", "kind": "in_process"}
ENCLAVE: Final = {"id": "enclave", "kind": "attested"}
SERVER: Final = {
    "id": "ward",
    "kind": "on_premises",
    "address": "https://llm.clinic.example/v1",
    "model": "big",
    "spki_sha256": SHA256,
}
TIERS: Final = [DEVICE, SERVER, ENCLAVE]
REQUIREMENTS: Final = [
    "all_detectors_ok",
    "language_covered",
    "policy_current",
    "within_limits",
]
RELEASES: Final = cast("dict[str, Any]", EVIDENCE["releases"])
CUSTODIAN: Final = LogSigner(
    name="custodian", key=Ed25519PrivateKey.from_private_bytes(bytes(32))
)
VKEY: Final = CUSTODIAN.verifier_key.text
FILES: Final = {
    "words.txt": b"osprey\n",
    "machines.txt": CUSTODIAN.note(custody_body(["ab" * 64], 1900000000)).encode(),
    "table.exact": edm_entry("osprey and heron", salt=bytes(16)).encode() + b"\n",
    "server.pem": PEM.encode(),
    "router.npz": b"weights",
    "thresholds.json": b"certified",
    "recognizers.yaml": (
        b"recognizers: [{name: Codes, supported_entity: CODE, deny_list: [osprey]}]"
    ),
}


SPACY: Final = {
    "ner": {
        "engine": "spacy",
        "path": "model",
        "sha256": SHA256,  # a test writes that of the folder
        "labels": {"PER": "identifier.direct.person"},
    }
}


def own_detector(**more: object) -> Tree:
    entry = {"id": "own", "class": "org.dictionary.own", "base_score": 80}
    return {"detectors": {"own": [entry | more]}}


def attestation(**more: object) -> Tree:
    none: dict[str, object] = {"trust_anchors": (), "required_cpu_tees": ()}
    return {"attestation": {**EVIDENCE, **none, **more}}


def routing(**more: object) -> Tree:
    return {"routing": {"tiers": TIERS} | more}


def classes(name: str, **entry: object) -> Tree:
    # ``history`` has an effect only if ``restricted`` has its own entry.
    kept = {} if name == "restricted" else {"restricted": {"history": "never"}}
    return routing(classes={name: entry, **kept}, queue={"store": "memory"})


EXAMPLES: Final[Sequence[Tree]] = (
    {"default": {"decision": "enclave", "require": REQUIREMENTS}},
    {"languages": ["en", "de"], "strict_topics": True, "sticky": "content"},
    {"sticky": "validated", "pseudonymised_health": "leave", "scan": "early_exit"},
    {"public_figures": "leave", "packs": ["hipaa", "pci"]},
    {
        "limits": {
            "max_chars": 9,
            "deadline_ms": 8,
            "deadline_ms_per_1000_chars": 7,
            "deadline_wall_ms": 6,
            "over": "local",
        }
    },
    {"thresholds": {"direct": 1, "quasi": 2, "topic": 3}},
    {"ner": {"engine": "none", "recall": 9}},
    {"ner": {"engine": "embedded"}},
    SPACY,
    {
        "rules": [
            UNCERTAIN,
            {
                "id": "several",
                "when": "health.condition & identifier.quasi.age",
                "within": "message",
                "min_conf": 9,
                "distinct": 2,
                "then": "local",
                "then_if_pseudonymised": "deidentify",
                "reason": "A reason.",
            },
        ]
    },
    {
        "exclude": [
            {
                "class": "identifier.direct.person",
                "unless": "health.condition",
                "reason": "They are named everywhere.",
                "dictionary": "words.txt",
            }
        ]
    },
    {
        "approved": [
            {
                "sha256": SHA256,
                "role": "system",
                "by": "Someone",
                "date": "2026-11-01",
                "note": "A note.",
            }
        ]
    },
    {"detectors": {"wall": "required"}},
    own_detector(kind="regex", pattern="osprey", validate=""),
    own_detector(
        kind="dictionary",
        entries=["osprey"],
        context=["bird"],
        window=9,
        boost=8,
        exclude=["heron"],
    ),
    own_detector(kind="dictionary", file="words.txt"),
    own_detector(kind="edm", file="table.exact", salt=SALT, **{"class": "org.edm.own"}),
    {
        "detectors": {
            "presidio": {
                "file": "recognizers.yaml",
                "entry_points": [
                    {"name": "code", "distribution": "acme-codes", "version": "1.0"}
                ],
                "classes": {"CODE": "health.mrn"},
            }
        }
    },
    attestation(
        trust_anchors=[
            {"kind": "emulated", "product": "Genoa", "certificate": PEM},
            {"kind": "tpm", "fingerprint": SHA256},
        ],
        environment="development",
        required_cpu_tees=["emulated-sev-snp", "tpm"],
        snp={**SNP, "min_tcb": [{**SNP_MINIMUM, "product": "Genoa"}]},
        tpm={},
        measurements={"tpm": [{"pcr11": SHA256}]},
    ),
    attestation(
        trust_anchors=[{"kind": "amd", "product": "Turin"}],
        required_cpu_tees=["sev-snp"],
        snp={
            **SNP,
            "allow_vlek": True,
            "allow_masked_chip": True,
            "min_tcb": [{**SNP_MINIMUM, "product": "Turin", "fmc": 1}],
            "max_crl_age_s": 9_000_000,
            "host_data": [SHA256],
        },
        releases={**RELEASES, "denied": ["curtilage-enclave 1.0"]},
        sandbox=[SHA256],
        platforms={"deny": ["ab" * 64], "allow": ["cd" * 64]},
        accept_broken=[{"id": "rmpocalypse", "reason": "A reason."}],
        custody={"file": "machines.txt", "name": "custodian", "key": VKEY},
        classes=[
            {
                "classes": ["health.*"],
                "require": [
                    *("hardware", "gpu", "weights"),
                    *("no_write", "isolation", "ephemerality", "custody"),
                ],
                "cpu_tees": ["sev-snp"],
                "max_evidence_age_s": 60,
                "challenge": True,
                "operators": ["Us"],
                "countries": ["DE"],
                "regions": ["eu-1"],
            }
        ],
    ),
    attestation(
        trust_anchors=[{"kind": "intel"}, {"kind": "nvidia"}],
        required_cpu_tees=["tdx"],
        required_devices={"nvidia-gpu": 1},
        tdx={
            "statuses": ["UpToDate", "OutOfDate"],
            "min_tcb_evaluation_number": 9,
            "rejected_advisories": ["INTEL-SA-00001"],
        },
        gpu={
            "drivers": ["1.0"],
            "vbioses": ["2.0"],
            "golden": [SHA256],
            "revocation": "required",
        },
    ),
    *(
        attestation(
            trust_anchors=[{"kind": "aws"}], required_cpu_tees=["nitro"], nitro=each
        )
        for each in ({}, {"revocation": "required"}, {"revocation": "if_stapled"})
    ),
    {
        "transport": {
            "accept": [
                {
                    "frame_bytes": 512,
                    "period_ms": 50,
                    "first_bucket": 8,
                    "buckets": 6,
                }
            ],
            "cover": {"delay_s": [1, 2], "share": 9, "classes": ["health.*"]},
            "mirror": "https://keys.example",
            "gateway": "https://enclave.example",
        }
    },
    {"transport": {"accept": [], "unsafe_unpadded": True}},
    routing(
        tiers=[
            {**DEVICE, "cost_microusd_per_mtok": 9},
            {
                **{k: v for k, v in SERVER.items() if k != "spki_sha256"},
                "ca": "server.pem",
                "trusted": ["*"],
                "context_tokens": 4096,
                "questions_per_min": 9,
                "priors": {
                    "ttft_ms": 9,
                    "tokens_per_s": 8,
                    "quality_permille": 7,
                },
            },
            ENCLAVE,
        ]
    ),
    *(
        classes(name, tiers=["device"], history=history, queue={"ttl_s": 9}, **more)
        for name, history, more in (
            ("public", "never", {"speculation": "deny"}),
            ("internal", "redacted_extract", {"speculation": "allow"}),
            ("confidential", "safe_summary", {"consent": "required"}),
            ("restricted", "safe_summary", {}),
        )
    ),
    *(classes(n, consent="required") for n in ("public", "internal")),
    # Drafts are for public or internal queries; the third class has a key, too.
    classes("confidential", speculation="deny"),
    routing(
        demands=[
            {"classes": ["org.*"], "only": ["device"]},
            {"classes": ["legal.*"], "never": ["ward"]},
        ],
        intents={"threshold_permille": 9, "overrides": {"code": "only_home"}},
        observe=True,
    ),
    routing(estimator={"kind": "rules"}),
    routing(
        estimator={
            "file": "router.npz",
            "sha256": hashlib.sha256(FILES["router.npz"]).hexdigest(),
        }
    ),
    routing(
        weights_permille={
            "latency": 1,
            "cost": 2,
            "risk": 3,
            "switch": 4,
            "hysteresis": 5,
        },
        aim={"local_percent": 70},
        budgets={"first_signal_ms": 1, "total_ms": 2},
        breaker={"fails": 1, "window_s": 2, "open_s": 3},
        resilience={"retry_after_max_s": 1, "retry_budget_percent": 2},
    ),
    routing(aim={"quality_loss_permille": 40}),
    routing(aim={"cost_per_1000": "0.5"}),
    *(
        routing(local={"stall_s": 9, "long_text": each})
        for each in ("shorten", "refuse")
    ),
    *(
        routing(queue={"store": each, "max_items": 9, "max_bytes": 4096})
        for each in ("none", "memory")
    ),
    routing(queue={"store": "file", "key_file": "/etc/key"}),
    *(
        routing(
            speculation={
                "mode": mode,
                "thresholds": "thresholds.json",
                "sha256": hashlib.sha256(FILES["thresholds.json"]).hexdigest(),
            }
        )
        for mode in ("off", "verify", "race")
    ),
    routing(rollout={"name": "home", "log": RELEASES["log"]}),
)


def keys_of(section: type[Section], place: str = "") -> Iterator[str]:
    """Yield the path of every key of a section, nested ones included."""
    for name, field in section.model_fields.items():
        path = f"{place}{field.alias or name}"
        yield path
        for below in sections_in(field.annotation):
            yield from keys_of(below, f"{path}.")


def sections_in(annotation: object) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for each in get_args(annotation):
        yield from sections_in(each)


def keys_set(value: object, place: str = "") -> Iterator[str]:
    """Yield the path of every key in a document."""
    if isinstance(value, Section):
        for name in value.model_fields_set:
            path = f"{place}{type(value).model_fields[name].alias or name}"
            yield path
            yield from keys_set(getattr(value, name), f"{path}.")
    elif isinstance(value, tuple):
        for each in cast("tuple[object, ...]", value):
            yield from keys_set(each, place)


def written(example: Tree) -> str:
    return json.dumps({**SMALL, **example})


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        Path(name).write_bytes(content)
    model = Path("model")
    model.mkdir()
    (model / "config.cfg").write_text("a model", "utf-8")
    info = Path("acme_codes-1.0.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Name: acme-codes\nVersion: 1.0\n", "utf-8")
    points = "[curtilage.recognizers]\ncode = acme_codes:Code\n"
    (info / "entry_points.txt").write_text(points, "utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(config, "find_spec", is_spacy)
    # Findings do not matter here, and a process for each example takes seconds.
    for command in (examine, cli_diff):
        monkeypatch.setattr(command, "start_detectors", scripted_detectors)


def is_spacy(name: str) -> bool | None:
    return name == "spacy" or None


class Detectors(ScriptedInspector):
    def inspect_many(self, queries: Sequence[Query]) -> list[Inspection]:
        return [asyncio.run(self.ainspect(each)) for each in queries]


def scripted_detectors(*_policy_and_currency: object) -> Detectors:
    return Detectors("health.condition", "identifier.direct.person")


def with_model_digest(example: Tree) -> Tree:
    if example.get("ner") != SPACY["ner"]:
        return example
    return {"ner": {**SPACY["ner"], "sha256": folder_digest(Path("model"))}}


# --- the examples are complete --------------------------------------------------


def test_every_key_has_an_example() -> None:
    given = set[str]()
    for example in EXAMPLES:
        text = written(with_model_digest(example))
        policy = load_policy(text, files=lambda name: FILES[name])
        given.update(keys_set(policy.document))
    assert sorted(set(keys_of(Document)) - given) == []


def test_a_key_without_an_example_is_seen() -> None:
    class Sub(Section):
        inner: int = 1

    class Grown(Document):
        brand_new: Sub | None = None

    assert set(keys_of(Grown)) - set(keys_of(Document)) == {
        "brand_new",
        "brand_new.inner",
    }
    assert "routing.tiers.priors.ttft_ms" in set(keys_of(Document))


# --- every command takes every one of them ---------------------------------------


def _ids(example: Tree) -> str:
    return ",".join(example)


@pytest.mark.parametrize("example", EXAMPLES, ids=_ids)
def test_every_command_takes_it(
    example: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.yaml").write_text(written(with_model_digest(example)), "utf-8")
    Path("plain.yaml").write_text(json.dumps(SMALL), "utf-8")
    Path("corpus.jsonl").write_text('{"text": "an osprey"}\n', "utf-8")
    assert cli.main(["policy", "keygen", "key.pem"]) == 0
    for arguments in (
        ["policy", "check", "own.yaml"],
        ["policy", "report", "--policy", "own.yaml", "--out", "page.html"],
        ["policy", "explain", "--policy", "own.yaml", "an osprey"],
        ["policy", "diff", "plain.yaml", "own.yaml", "--corpus", "corpus.jsonl"],
        ["policy", "sign", "--key", "key.pem", "own.yaml"],
    ):
        done = {0, 1} if "explain" in arguments else {0}
        assert cli.main(arguments) in done, (arguments, capsys.readouterr())
    shown = capsys.readouterr()
    assert "Traceback" not in shown.out + shown.err
    assert_report_says_what_check_says(Path("page.html"))


def assert_report_says_what_check_says(page: Path) -> None:
    """Every sentence of ``policy check`` about routing is on the page as well."""
    policy, _ = config.read_policy("own.yaml")
    shown = unescape(page.read_text("utf-8"))
    for label, sentence in routing_in_words(policy):
        if label != "found":  # the page has a table of these
            assert f"{sentence[0].upper()}{sentence[1:]}." in shown
