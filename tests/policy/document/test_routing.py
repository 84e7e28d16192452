import base64
import hashlib
from collections.abc import Mapping
from textwrap import dedent
from typing import get_args

import pytest

from curtilage.attest.log.note import NoteKey
from curtilage.attest.log.witness_policy import simple_policy
from curtilage.policy.decision.classes import CLASSES, expand
from curtilage.policy.decision.conversation import History
from curtilage.policy.decision.tiers import (
    Demand,
    RoutingClass,
    Tier,
    Tiering,
    TierKind,
)
from curtilage.policy.document.load import load_policy
from curtilage.policy.document.model import Policy
from curtilage.policy.document.routing import Routing
from curtilage.policy.document.routing_settings import (
    Aim,
    AimKind,
    Estimator,
    IntentName,
    Local,
    Preference,
    Priors,
    Queue,
    Resilience,
    Speculating,
    TierEntry,
)
from curtilage.policy.errors import PolicyError, Problem

SMALL = """\
version: 1
rules: [{id: any-uncertain, when: "uncertain.*", then: local}]
"""
SPKI = "ab" * 32
ON_PREMISES = (
    "{id: ward, kind: on_premises, address: 'https://llm.clinic.example/v1', "
    "model: big, "
)
PINNED = f"{ON_PREMISES}spki_sha256: {SPKI}}}"
DEVICE = "{id: device, kind: in_process}"
ENCLAVE = "{id: enclave, kind: attested}"
ALL = f"[{DEVICE}, {PINNED}, {ENCLAVE}]"
PEM = (
    "-----BEGIN CERTIFICATE-----\n"
    + base64.b64encode(bytes([0x30, 3, 1, 1, 255])).decode()
    + "\n-----END CERTIFICATE-----\n"
)
FILES = {
    "on-premises.pem": PEM.encode(),
    "two.pem": (PEM + PEM).encode(),
    "key.pem": PEM.replace("CERTIFICATE", "PRIVATE KEY").encode(),
    "binary.pem": b"\xff\xfe",
    "router.npz": b"weights",
    "thresholds.json": b"certified",
}
CERTIFIED = f"sha256: {hashlib.sha256(b'certified').hexdigest()}"


def load(section: str, files: Mapping[str, bytes] = FILES) -> Policy:
    def read(name: str) -> bytes:
        if name not in files:
            raise FileNotFoundError(name)
        return files[name]

    return load_policy(SMALL + dedent(section), files=read)


def plan_of(policy: Policy) -> Routing:
    assert policy.routing is not None
    return policy.routing


def problems_of(text: str) -> tuple[Problem, ...]:
    with pytest.raises(PolicyError) as caught:
        load(text)
    return caught.value.problems


def test_an_absent_section_plans_nothing() -> None:
    policy = load_policy(SMALL)
    assert policy.routing is None
    assert policy.rulebook.tiering == Tiering()


def test_two_tiers_are_what_an_absent_section_means() -> None:
    policy = load(
        "routing: {tiers: [{id: local, kind: in_process}, "
        "{id: enclave, kind: attested}]}\n"
    )
    assert policy.rulebook.tiering == Tiering()
    assert plan_of(policy) == Routing(
        tiers=(
            TierEntry(id="local", kind=TierKind.IN_PROCESS),
            TierEntry(id="enclave", kind=TierKind.ATTESTED),
        )
    )


def test_the_section_is_read() -> None:
    policy = load(
        f"""\
        routing:
          tiers:
          - {{id: device, kind: in_process, cost_microusd_per_mtok: 50000}}
          - id: ward
            kind: on_premises
            address: https://10.1.2.3:8443/v1
            model: Qwen/Qwen2.5-7B-Instruct
            ca: on-premises.pem
            trusted: ["health.*", identifier.direct.person, "uncertain.*"]
            context_tokens: 32768
            priors: {{ttft_ms: 300, tokens_per_s: 40, quality_permille: 850}}
          - {{id: enclave, kind: attested, context_tokens: 8192, questions_per_min: 9}}
          classes:
            public: {{tiers: [device, enclave], queue: {{ttl_s: 60}}}}
            internal: {{history: safe_summary}}
            confidential: {{history: redacted_extract, consent: required}}
            restricted: {{tiers: [device, ward], history: never, queue: {{ttl_s: 0}}}}
          demands:
          - {{classes: ["legal.*"], only: [enclave]}}
          - {{classes: [financial.pan, "export.*"], never: [device, ward]}}
          intents: {{threshold_permille: 600, overrides: {{code: only_home}}}}
          estimator:
            file: router.npz
            sha256: {hashlib.sha256(b"weights").hexdigest()}
          weights_permille: {{latency: 1, cost: 2, risk: 3, switch: 4, hysteresis: 5}}
          aim: {{quality_loss_permille: 35}}
          budgets: {{first_signal_ms: 500, total_ms: 9000}}
          breaker: {{fails: 1, window_s: 2, open_s: 3}}
          observe: true
          queue: {{store: file, max_items: 9, max_bytes: 5000, key_file: /q.key}}
          resilience: {{retry_after_max_s: 0, retry_budget_percent: 5}}
          local: {{stall_s: 2, long_text: refuse}}
        """
    )
    tiering, plan = policy.rulebook.tiering, plan_of(policy)
    trusted = expand("health.*") | expand("uncertain.*") | {"identifier.direct.person"}
    assert tiering.tiers == (
        Tier(id="device", kind=TierKind.IN_PROCESS),
        Tier(id="ward", kind=TierKind.ON_PREMISES, trusted=trusted),
        Tier(id="enclave", kind=TierKind.ATTESTED),
    )
    assert tiering.classes == {
        RoutingClass.PUBLIC: {"device", "enclave"},
        RoutingClass.RESTRICTED: {"device", "ward"},
    }
    legal, other = tiering.demands
    assert legal == Demand(classes=expand("legal.*"), only=frozenset({"enclave"}))
    assert other == Demand(
        classes=expand("export.*") | {"financial.pan"},
        never=frozenset({"device", "ward"}),
    )
    assert plan.tiers[0].cost_microusd_per_mtok == 50_000
    assert plan.tier("ward") == TierEntry(
        id="ward",
        kind=TierKind.ON_PREMISES,
        address="https://10.1.2.3:8443/v1",
        model="Qwen/Qwen2.5-7B-Instruct",
        ca="on-premises.pem",
        trusted=("health.*", "identifier.direct.person", "uncertain.*"),
        context_tokens=32768,
        priors=Priors(ttft_ms=300, tokens_per_s=40, quality_permille=850),
    )
    assert plan.tier("enclave").context_tokens == 8192
    assert plan.tier("enclave").questions_per_min == 9
    intents = plan.intents
    assert intents.threshold_permille == 600
    assert intents.overrides == {"code": Preference.ONLY_HOME}
    assert plan.estimator == Estimator(
        file="router.npz", sha256=hashlib.sha256(b"weights").hexdigest()
    )
    assert policy.routing_files == {
        "on-premises.pem": PEM.encode(),
        "router.npz": b"weights",
    }
    weights = plan.weights_permille
    assert (weights.latency, weights.cost, weights.risk) == (1, 2, 3)
    assert (weights.switch, weights.hysteresis) == (4, 5)
    assert plan.aim == Aim(quality_loss_permille=35)
    assert (plan.budgets.first_signal_ms, plan.budgets.total_ms) == (500, 9000)
    breaker = plan.breaker
    assert (breaker.fails, breaker.window_s, breaker.open_s) == (1, 2, 3)
    assert plan.observe
    assert plan.resilience == Resilience(retry_after_max_s=0, retry_budget_percent=5)
    assert plan.local == Local(stall_s=2, long_text="refuse")
    assert not plan.local.shortens
    assert plan.history == {
        RoutingClass.RESTRICTED: History.NEVER,
        RoutingClass.CONFIDENTIAL: History.REDACTED_EXTRACT,
        RoutingClass.INTERNAL: History.SAFE_SUMMARY,
        RoutingClass.PUBLIC: History.NEVER,
    }
    assert plan.consent == {RoutingClass.CONFIDENTIAL}
    assert plan.queue == Queue(
        store="file", max_items=9, max_bytes=5000, key_file="/q.key"
    )
    assert plan.ttl_s == {
        RoutingClass.RESTRICTED: 0,
        RoutingClass.CONFIDENTIAL: 28_800,
        RoutingClass.INTERNAL: 86_400,
        RoutingClass.PUBLIC: 60,
    }


@pytest.mark.parametrize(
    ("written", "kind", "value"),
    [
        ("local_percent: 70", AimKind.LOCAL_PERCENT, 70),
        ("cost_per_1000: 2", AimKind.COST_PER_1000, 2000),
        ("cost_per_1000: 0.125", AimKind.COST_PER_1000, 125),
        ('cost_per_1000: "0.5"', AimKind.COST_PER_1000, 500),
    ],
)
def test_an_aim_is_one_number(written: str, kind: AimKind, value: int) -> None:
    plan = plan_of(load(f"routing: {{tiers: {ALL}, aim: {{{written}}}}}\n"))
    assert plan.aim is not None
    assert (plan.aim.kind, plan.aim.value) == (kind, value)


def test_without_a_word_of_history_a_conversation_stays_whole() -> None:
    plan = plan_of(
        load(
            f"""\
            routing:
              tiers: {ALL}
              classes: {{restricted: {{tiers: [device, ward]}}}}
            """
        )
    )
    assert RoutingClass.RESTRICTED not in plan.history
    assert plan.consent == frozenset()


def test_a_plan_knows_no_other_tier() -> None:
    with pytest.raises(KeyError):
        plan_of(load(f"routing: {{tiers: {ALL}}}\n")).tier("cloud")


@pytest.mark.parametrize("intent", get_args(IntentName))
def test_every_intent_has_an_override(intent: str) -> None:
    policy = load(
        f"routing: {{tiers: [{DEVICE}], intents: "
        f"{{overrides: {{{intent}: prefer_strong}}}}}}\n"
    )
    assert plan_of(policy).intents.overrides == {intent: Preference.PREFER_STRONG}


def test_a_socket_needs_no_pin() -> None:
    tier = (
        "{id: ward, kind: on_premises, address: 'unix:/run/llm/api.sock', model: big}"
    )
    ward = plan_of(load(f"routing: {{tiers: [{tier}]}}\n")).tier("ward")
    assert (ward.address, ward.ca, ward.spki_sha256) == (
        "unix:/run/llm/api.sock",
        None,
        None,
    )


def test_anything_may_be_trusted_with_own_classes_too() -> None:
    own = (
        "detectors: [{id: ticket, kind: dictionary, class: org.dictionary.ticket, "
        "entries: [x], base_score: 80}]\n"
    )
    tier = f"{ON_PREMISES}spki_sha256: {SPKI}, trusted: ['*']}}"
    (ward,) = load(f"{own}routing: {{tiers: [{tier}]}}\n").rulebook.tiering.tiers
    assert ward.trusted == CLASSES | {"org.dictionary.ticket"}
    tiering = load(f"{own}routing: {{tiers: [{tier}]}}\n").rulebook.tiering
    assert tiering.known == ward.trusted


def test_files_of_the_section_are_under_the_digest() -> None:
    text = f"routing: {{tiers: [{ON_PREMISES}ca: on-premises.pem}}]}}\n"
    other = {**FILES, "on-premises.pem": FILES["two.pem"]}
    assert load(text).digest != load(text, other).digest


def test_claimed_are_the_classes_with_a_demand() -> None:
    text = """\
        attestation:
          environment: development
          trust_anchors: [{kind: amd, product: Genoa}]
          required_cpu_tees: [emulated-sev-snp]
          releases:
            names: [curtilage-enclave]
            log: {origin: o.example, key: KEY, witnesses: [], quorum: 1}
            max_checkpoint_age_s: 60
          snp:
            min_version: 3
            vmpl: [0]
            allow_vlek: false
            allow_masked_chip: false
            min_tcb: []
          freshness: {max_key_lifetime_s: 1, max_evidence_age_s: 1, clock_skew_s: 0}
          classes:
          - {classes: [health, financial.account], require: [hardware]}
          - {classes: [legal], challenge: true}
        """.replace("KEY", base64.b64encode(bytes(32)).decode())
    demanded = expand("health.*") | expand("legal.*") | {"financial.account"}
    assert load(text).rulebook.tiering.claimed == demanded
    routed = load(dedent(text) + f"routing: {{tiers: {ALL}}}\n")
    assert routed.rulebook.tiering.claimed == demanded


@pytest.mark.parametrize(
    ("tiers", "path", "said"),
    [
        ("[]", "tiers", "at least 1 item"),
        (
            "[{id: a, kind: in_process}, {id: a, kind: attested}]",
            "tiers[1].id",
            "above has the same id",
        ),
        (
            f"[{DEVICE}, {{id: other, kind: in_process}}]",
            "tiers[1].kind",
            "in this process",
        ),
        (
            f"[{ENCLAVE}, {{id: other, kind: attested}}]",
            "tiers[1].kind",
            "asks one pool",
        ),
        ("[{id: cloud, kind: remote}]", "tiers[0].kind", "expected 'in_process', 'on_"),
        ("[{id: Ward 3, kind: on_premises}]", "tiers[0].id", "match pattern"),
        ("[{id: ward, kind: on_premises}]", "tiers[0]", "has 'address' and 'model'"),
        (f"[{ON_PREMISES}}}]", "tiers[0]", "either 'ca' or 'spki_sha256'"),
        (
            f"[{ON_PREMISES}ca: on-premises.pem, spki_sha256: {SPKI}}}]",
            "tiers[0]",
            "either 'ca' or 'spki_sha256'",
        ),
        (
            "[{id: w, kind: on_premises, model: m, address: 'unix:/s', ca: key.pem}]",
            "tiers[0]",
            "such an address has no certificate",
        ),
        (
            "[{id: w, kind: on_premises, model: m, address: 'unix:/a/../b'}]",
            "tiers[0].address",
            "expected unix:/path",
        ),
        (
            f"[{{id: w, kind: on_premises, model: m, address: 'unix:/{'a' * 120}'}}]",
            "tiers[0].address",
            "expected unix:/path",
        ),
        (
            "[{id: w, kind: on_premises, model: m, address: 'http://llm.clinic.example'}]",
            "tiers[0].address",
            "plain http is for this machine",
        ),
        (
            "[{id: w, kind: on_premises, model: m, address: 'http://127.0.0.1:11434/v1'}]",
            "tiers[0].address",
            "needs environment: development",
        ),
        (
            f"[{ON_PREMISES}ca: key.pem}}]",
            "tiers[0].ca",
            "expected one certificate in PEM",
        ),
        (f"[{ON_PREMISES}ca: binary.pem}}]", "tiers[0].ca", "not PEM"),
        (f"[{ON_PREMISES}ca: missing.pem}}]", "tiers[0].ca", "cannot be read"),
        (
            f"[{ON_PREMISES}spki_sha256: {SPKI}, trusted: [nonsense]}}]",
            "tiers[0].trusted[0]",
            "unknown class",
        ),
        ("[{id: d, kind: in_process, trusted: ['*']}]", "tiers[0]", "only for a tier"),
        (
            "[{id: e, kind: attested, address: 'unix:/s'}]",
            "tiers[0]",
            "only for a tier of kind 'on_premises'",
        ),
        (
            "[{id: d, kind: in_process, context_tokens: 4096}]",
            "tiers[0]",
            "knows its own",
        ),
        (
            "[{id: d, kind: in_process, questions_per_min: 9}]",
            "tiers[0]",
            "has no limit",
        ),
        (
            "[{id: d, kind: in_process, cost_microusd_per_mtok: -1}]",
            "tiers[0].cost_microusd_per_mtok",
            "greater than or equal to 0",
        ),
        ("[{id: d, kind: in_process, gpu: 1}]", "tiers[0].gpu", "unknown key"),
    ],
)
def test_tiers_are_refused_with_their_line(tiers: str, path: str, said: str) -> None:
    (problem,) = problems_of(f"routing: {{tiers: {tiers}}}\n")
    assert (problem.path, problem.line) == (f"routing.{path}", 3)
    assert said in problem.message


@pytest.mark.parametrize(
    ("inside", "path", "said"),
    [
        ("classes: {secret: {tiers: [device]}}", "classes.secret", "unknown key"),
        ("classes: {public: {tiers: []}}", "classes.public.tiers", "at least 1 item"),
        (
            "classes: {public: {tiers: [cloud]}}",
            "classes.public.tiers[0]",
            "there is no tier 'cloud'",
        ),
        (
            "classes: {restricted: {tiers: [device, enclave]}}",
            "classes.restricted.tiers[1]",
            "must be kept on premises",
        ),
        (
            "classes: {public: {tiers: [device]}, confidential: {tiers: [enclave]}}",
            "classes.confidential.tiers[0]",
            "'public' is less private, and does not list it",
        ),
        (
            "classes: {public: {history: raw}}",
            "classes.public.history",
            "expected 'never', 'redacted_extract' or 'safe_summary'",
        ),
        (
            "classes: {restricted: {history: redacted_extract}}",
            "classes.restricted.history",
            "expected 'never' or 'safe_summary'",
        ),
        (
            "classes: {restricted: {consent: required}}",
            "classes.restricted.consent",
            "unknown key",
        ),
        (
            "classes: {public: {consent: asked}}",
            "classes.public.consent",
            "expected 'required'",
        ),
        ("queue: {store: disk}", "queue.store", "expected 'none', 'memory' or 'file'"),
        ("queue: {store: file}", "queue", "it needs 'key_file'"),
        (
            "queue: {store: memory, key_file: /etc/q.key}",
            "queue",
            "only for a queue in a file",
        ),
        (
            "queue: {store: file, key_file: q.key}",
            "queue.key_file",
            "match pattern",
        ),
        ("queue: {store: memory, max_items: 0}", "queue.max_items", "greater than"),
        (
            "classes: {public: {queue: {ttl_s: -1}}}\n  queue: {store: memory}",
            "classes.public.queue.ttl_s",
            "greater than",
        ),
        (
            "classes: {restricted: {queue: {ttl_s: 60}}}",
            "classes.restricted.queue",
            "nothing waits",
        ),
        (
            "classes: {public: {queue: {ttl_s: 60}}}\n  queue: {store: none}",
            "classes.public.queue",
            "nothing waits",
        ),
        (
            "demands: [{classes: ['org.*'], only: [cloud]}]",
            "demands[0].only[0]",
            "there is no tier 'cloud'",
        ),
        (
            "demands: [{classes: ['org.*'], never: [cloud]}]",
            "demands[0].never[0]",
            "there is no tier 'cloud'",
        ),
        (
            "demands: [{classes: ['org.*'], never: [enclave, ward, device]}]",
            "demands[0].never",
            "leaves no tier",
        ),
        (
            "demands: [{classes: ['org.*'], only: []}]",
            "demands[0].only",
            "at least 1 item",
        ),
        (
            "demands: [{classes: ['org.*'], only: [ward], never: [device]}]",
            "demands[0]",
            "either 'only' or 'never'",
        ),
        ("demands: [{classes: ['org.*']}]", "demands[0]", "either 'only' or 'never'"),
        (
            "demands: [{classes: [org], only: [ward]}]",
            "demands[0].classes[0]",
            "not a class",
        ),
        (
            "intents: {overrides: {poetry: prefer_home}}",
            "intents.overrides.poetry",
            "expected 'classification'",
        ),
        (
            "intents: {overrides: {code: only_strong}}",
            "intents.overrides.code",
            "expected 'prefer_home'",
        ),
        (
            "intents: {threshold_permille: 1001}",
            "intents.threshold_permille",
            "less than or equal to 1000",
        ),
        ("estimator: {kind: oracle}", "estimator.kind", "expected 'ngram' or 'rules'"),
        ("estimator: {file: router.npz}", "estimator", "must be given together"),
        (f"estimator: {{sha256: {SPKI}}}", "estimator", "must be given together"),
        (
            f"estimator: {{file: router.npz, sha256: {SPKI}}}",
            "estimator.sha256",
            "another digest",
        ),
        (
            f"estimator: {{file: missing.npz, sha256: {SPKI}}}",
            "estimator.file",
            "cannot be read",
        ),
        (
            f"estimator: {{kind: rules, file: router.npz, sha256: {SPKI}}}",
            "estimator",
            "rules have no 'file'",
        ),
        ("weights_permille: {risk: 1001}", "weights_permille.risk", "equal to 1000"),
        ("aim:", "aim", "one of local_percent, quality_loss_permille"),
        ("aim: {}", "aim", "one of local_percent, quality_loss_permille"),
        ("aim: {local_percent: 9, cost_per_1000: 1}", "aim", "exactly one of"),
        ("aim: {local_percent: 101}", "aim.local_percent", "equal to 100"),
        ("aim: {cost_per_1000: -1}", "aim.cost_per_1000", "expected US dollars"),
        ("aim: {cost_per_1000: true}", "aim.cost_per_1000", "expected US dollars"),
        ("aim: {cost_per_1000: 0.0001}", "aim.cost_per_1000", "expected US dollars"),
        ("budgets: {total_ms: 0}", "budgets.total_ms", "equal to 1"),
        ("breaker: {fails: 0}", "breaker.fails", "equal to 1"),
        ("observe: yes", "observe", "true or false"),
        ("weather: {mode: verify}", "weather", "unknown key"),
        ("speculation: {mode: maybe}", "speculation.mode", "'off', 'verify' or 'race'"),
        (
            "speculation: {thresholds: thresholds.json}",
            "speculation",
            "must be given together",
        ),
        (f"speculation: {{sha256: {SPKI}}}", "speculation", "must be given together"),
        (
            f"speculation: {{thresholds: thresholds.json, sha256: {SPKI}}}",
            "speculation.sha256",
            "another digest",
        ),
        (
            f"speculation: {{thresholds: missing.json, sha256: {SPKI}}}",
            "speculation.thresholds",
            "cannot be read",
        ),
        (
            "classes: {confidential: {speculation: allow}}",
            "classes.confidential.speculation",
            "drafts are only for",
        ),
        (
            "classes: {restricted: {speculation: allow}}",
            "classes.restricted.speculation",
            "unknown key",
        ),
        (
            "resilience: {retry_after_max_s: 11}",
            "resilience.retry_after_max_s",
            "equal to 10",
        ),
        (
            "resilience: {retry_budget_percent: 101}",
            "resilience.retry_budget_percent",
            "equal to 100",
        ),
        ("local: {stall_s: 0}", "local.stall_s", "equal to 1"),
        ("local: {long_text: cut}", "local.long_text", "'shorten' or 'refuse'"),
    ],
)
def test_routing_is_refused_with_its_line(inside: str, path: str, said: str) -> None:
    problems = problems_of(f"routing:\n  tiers: {ALL}\n  {inside}\n")
    assert [(each.path, each.line) for each in problems] == [(f"routing.{path}", 5)]
    assert said in problems[0].message


@pytest.mark.parametrize("tiers", [f"[{DEVICE}, {PINNED}]", f"[{PINNED}, {ENCLAVE}]"])
@pytest.mark.parametrize("mode", ["verify", "race"])
def test_drafts_need_who_writes_and_who_answers_after(tiers: str, mode: str) -> None:
    section = f"{{mode: {mode}, thresholds: thresholds.json, {CERTIFIED}}}"
    (problem,) = problems_of(f"routing: {{tiers: {tiers}, speculation: {section}}}\n")
    assert problem.path == "routing.speculation.mode"
    assert " attested " in problem.message


@pytest.mark.parametrize("mode", ["verify", "race"])
def test_drafts_may_be_judged_by_what_comes_with_curtilage(mode: str) -> None:
    plan = plan_of(load(f"routing: {{tiers: {ALL}, speculation: {{mode: {mode}}}}}\n"))
    assert plan.speculation.mode is Speculating(mode)
    assert (plan.speculation.thresholds, plan.speculation.sha256) == (None, None)


def test_without_a_word_there_are_no_drafts() -> None:
    plan = plan_of(load(f"routing: {{tiers: {ALL}}}\n"))
    assert plan.speculation.mode is Speculating.OFF


@pytest.mark.parametrize(
    ("classes", "drafted"),
    [
        ("{}", {RoutingClass.PUBLIC, RoutingClass.INTERNAL}),
        ("{internal: {speculation: deny}}", {RoutingClass.PUBLIC}),
        ("{public: {speculation: deny}, internal: {speculation: allow}}",
         {RoutingClass.INTERNAL}),
        ("{confidential: {speculation: deny}}",
         {RoutingClass.PUBLIC, RoutingClass.INTERNAL}),
    ],
)  # fmt: skip
def test_drafts_are_of_classes_that_allow_them(
    classes: str, drafted: set[RoutingClass]
) -> None:
    section = f"{{mode: verify, thresholds: thresholds.json, {CERTIFIED}}}"
    text = f"routing: {{tiers: {ALL}, classes: {classes}, speculation: {section}}}\n"
    policy = load(text)
    plan = plan_of(policy)
    assert plan.speculation.mode is Speculating.VERIFY
    assert policy.routing_files == {"thresholds.json": b"certified"}
    assert plan.drafted == drafted


def test_the_thresholds_are_under_the_digest() -> None:
    section = f"{{thresholds: thresholds.json, {CERTIFIED}}}"
    text = f"routing: {{tiers: {ALL}, speculation: {section}}}\n"
    without = f"routing: {{tiers: {ALL}, speculation: {{mode: off}}}}\n"
    assert load(text).digest != load(without).digest


def test_values_of_wrong_types_are_reported_once() -> None:
    problems = problems_of(
        """\
        routing:
          tiers:
          - {id: [1], kind: {a: b}}
          - {id: [1], kind: {a: b}}
          - 7
          classes: {public: {tiers: [[enclave]]}, internal: 7}
          demands: [7, {classes: 7, only: [{a: b}], never: 7}]
        """
    )
    assert {each.line for each in problems} == {5, 6, 7, 8, 9}


def test_plain_http_on_this_machine_is_for_development() -> None:
    text = (
        SMALL + "attestation: {environment: development}\nrouting: {tiers: "
        "[{id: w, kind: on_premises, model: m, address: 'http://127.0.0.1:1/v1'}]}\n"
    )
    with pytest.raises(PolicyError) as caught:
        load_policy(text)
    assert not [each for each in caught.value.problems if "routing" in each.path]


# Whose manifests name the model.

KEYS = [base64.b64encode(bytes([number] * 32)).decode() for number in range(3)]
WITNESS = f"{{name: w.example, key: '{KEYS[1]}'}}"
LOG = f"origin: log.example/home, key: '{KEYS[0]}', witnesses: [{WITNESS}], quorum: 1"


def test_a_rollout_names_a_line_and_a_log() -> None:
    assert plan_of(load(f"routing: {{tiers: {ALL}}}\n")).rollout is None
    policy = load(
        f"routing:\n  tiers: {ALL}\n  rollout: {{name: home, log: {{{LOG}}}}}\n"
    )
    rollout = plan_of(policy).rollout
    assert rollout is not None
    assert rollout.name == "home"
    assert rollout.log_policy() == simple_policy(
        log=NoteKey(name="log.example/home", public_key=bytes(32)),
        witnesses=[NoteKey(name="w.example", public_key=bytes([1] * 32))],
        quorum=1,
    )


@pytest.mark.parametrize(
    ("rollout", "path", "said"),
    [
        (f"{{log: {{{LOG}}}}}", "rollout.name", "missing"),
        ("{name: home}", "rollout.log", "missing"),
        (f"{{name: Home, log: {{{LOG}}}}}", "rollout.name", ""),
        # Otherwise no one else would have seen which model this device has to run.
        (
            f"{{name: home, log: {{{LOG.replace(WITNESS, '')}}}}}",
            "rollout",
            "not between 1 and the number of witnesses",
        ),
        (
            f"{{name: home, log: {{{LOG.replace('quorum: 1', 'quorum: 2')}}}}}",
            "rollout.log",
            "larger than the number of witnesses",
        ),
        (
            f"{{name: home, log: {{{LOG.replace('w.example', 'none')}}}}}",
            "rollout",
            "or is 'none'",
        ),
        (f"{{name: home, log: {{{LOG}}}, stage: 5}}", "rollout.stage", "unknown key"),
    ],
)
def test_a_wrong_rollout_is_refused(rollout: str, path: str, said: str) -> None:
    problems = problems_of(f"routing:\n  tiers: {ALL}\n  rollout: {rollout}\n")
    assert [each.path for each in problems] == [f"routing.{path}"]
    assert said in problems[0].message


def test_a_rollout_needs_a_tier_that_runs_the_model() -> None:
    problems = problems_of(
        f"routing:\n  tiers: [{ENCLAVE}]\n  rollout: {{name: home, log: {{{LOG}}}}}\n"
    )
    assert [(each.path, each.line) for each in problems] == [("routing.rollout", 5)]


def test_the_old_name_of_a_kind_is_accepted_with_a_notice() -> None:
    text = f"routing: {{tiers: [{DEVICE}, {PINNED}]}}\n"
    new, old = load(text), load(text.replace("kind: on_premises", "kind: house"))
    assert old.tiering == new.tiering
    (notice,) = old.notices
    assert notice.startswith("routing.tiers[1].kind: 'house' ")
    assert "'on_premises'" in notice
    assert new.notices == ()
