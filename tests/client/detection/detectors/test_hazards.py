"""The hazards F1 to F11 of docs/detection.md, one after the other.

Each is a way in which a plain Presidio lets a text pass, hangs, fetches or
discloses. Then: every detector, at fault.
"""

import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import cast

import pytest

from curtilage.client.chat.query import Message, Query
from curtilage.client.detection.detectors.all import equipment_of, scanner_of
from curtilage.client.detection.detectors.presidio import engine as detect
from curtilage.client.detection.detectors.presidio.catalog import RECOGNIZERS
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.scanner import Detector, Equipment, Scanner
from curtilage.client.detection.inspection import Inspector, prepare
from curtilage.client.detection.spans import Span
from curtilage.client.detection.worker import worker_environment
from curtilage.policy.decision.decide import decide
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.detection_plan import DetectionPlan, NerPlan
from curtilage.policy.document.load import load_policy, load_profile, profile_text
from support.equipment import OWN_IDS
from support.growth import grows_at_most, seconds_of

pytest.importorskip("presidio_analyzer", reason="SKIPPED LOUDLY: needs the extra pii")
POLICY = load_profile("default")
PLAN = POLICY.plan
CANARY = "zq7canary4711"
# A text with all five readings, so that every detector has its turn.
ALL_READINGS = "\uff11 b\u043eb &amp; five"


def everything(plan: DetectionPlan) -> Equipment:
    first, last = equipment_of(plan)
    return (*first, *last)


@pytest.fixture(scope="module")
def equipment() -> Equipment:
    return everything(PLAN)


@pytest.fixture(scope="module")
def rules() -> Equipment:
    """All but the names model, whose time its own tests measure."""
    return everything(_replaced(ner=NerPlan(engine="none").to_fields()))


def route_of(text: str, equipment: Equipment) -> Route:
    query = Query(messages=(Message(role="user", content=text),))
    prepared = prepare(query, POLICY.limits)
    (found,) = Scanner(equipment).scan(prepared.texts)
    findings = [span.at(prepared.places[0]) for span in found]
    return decide(POLICY.rulebook, prepared.with_findings(findings)).route


def classes(text: str, equipment: Equipment) -> set[str]:
    (found,) = Scanner(equipment).scan([text])
    return {span.data_class for span in found}


def test_f1_a_pattern_that_times_out_is_uncertain_and_never_skipped(
    equipment: Equipment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect, "PATTERN_TIMEOUT_S", 1e-9)
    text = "numbers 12-34-56 " * 400
    assert "uncertain.timeout" in classes(text, equipment)


SLOW = {
    "f2 dotted letters": "a.",
    "f2 dotted digits": "1.2.3.",
    "f3 capitals and digits": "ABCDE1234F ",
    "f3 prose": "The patient asked about the plan of the member. ",
    "f4 colons": "1:",
    "f4 spaces": "1 ",
    "tokens": "\u2026",
    "quotes": "'\"",
    "at signs": "a@",
    "letters": "a",
    "digits": "1",
    "octets": "=C3=A9",
    "encoded words": "=?utf-8?q?a?=",
    "open encoded words": "=?utf-8?q?",
    "pieces": "aB1 ",
    "soft breaks": "a=\n",
    "flags": "\U0001f1ed",
    "open cells": "<td>ab",
}


@pytest.mark.parametrize("piece", SLOW.values(), ids=SLOW.keys())
def test_f2_f3_f4_time_grows_no_faster_than_the_text(
    piece: str, rules: Equipment
) -> None:
    scanner = Scanner(rules)

    def cost(length: int) -> float:
        text = (piece * length)[:length]
        return seconds_of(lambda: scanner.scan([text]))

    # Four times the text; sixteen times the cost if quadratic.
    assert grows_at_most(cost, lengths=(2000, 8000), factor=8, noise_s=0.1)


def test_f5_an_address_is_looked_up_nowhere(
    equipment: Equipment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a detector opened a socket")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    found = classes("mia@example.org and https://example.org/a", equipment)
    assert "identifier.direct.email" in found
    assert "uncertain.error" not in found
    assert "EmailRecognizer" not in RECOGNIZERS


@pytest.mark.parametrize(
    "text",
    [
        "alice@hospital.local",
        "bob@corp.internal",
        "user@intranet.lan",
        "root@localhost",
    ],
)
def test_f6_an_address_in_a_private_domain_is_one(
    text: str, equipment: Equipment
) -> None:
    assert "identifier.direct.email" in classes(text, equipment)


@pytest.mark.parametrize(
    "card",
    [
        "2221000000000009",
        "6304000000000000",
        "4000000000000000006",
        "213100000000008",
        "180000000000002",
    ],
    ids=["Mastercard 2", "Maestro", "Visa 19", "JCB 2131", "JCB 1800"],
)
def test_f7_cards_of_every_range_are_known(card: str, equipment: Equipment) -> None:
    assert "financial.pan" in classes(f"my card: {card}", equipment)


def test_f7_a_mistyped_card_stays_home(equipment: Equipment) -> None:
    assert route_of("4111 1111 1111 1112", equipment) is Route.LOCAL


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ssn 536221234", "identifier.direct.gov_id.us_ssn"),
        ("536 22 1234", "identifier.direct.gov_id.us_ssn"),
        ("SS# 536-22-1234", "identifier.direct.gov_id.us_ssn"),
        ("MRN 00482913", "health.mrn"),
        ("born March 3rd, 1982", "identifier.quasi.dob"),
        ("dob 12 May 1980", "identifier.quasi.dob"),
        ("DOB: 3/4/1980", "identifier.quasi.dob"),
        ("my password is hunter2", "secret.password"),
        ("AKIAIOSFODNN7EXAMPLE", "secret.api_key"),
    ],
)
def test_f8_what_presidio_lacks_is_found(
    text: str, expected: str, equipment: Equipment
) -> None:
    assert expected in classes(text, equipment)


@pytest.mark.parametrize("text", ["C4", "S3", "EKS", "use S3 and EKS"])
def test_names_of_things_are_not_personal_data(text: str, equipment: Equipment) -> None:
    found = classes(text, equipment)
    assert not {name for name in found if name.startswith("identifier.direct.")}


def test_f9_f10_nothing_is_logged_at_debug(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG):
        scanner = scanner_of(PLAN)
        scanner.scan(
            [f"{CANARY} ssn 536-22-1234 on 3/4/1980, call {CANARY} +1 202 555 0100"]
        )
    out, err = capfd.readouterr()
    assert CANARY not in caplog.text + out + err
    assert (
        detect.PresidioDetector(("IpRecognizer",)).engine.log_decision_process is False
    )


def test_f11_the_registry_is_what_the_plan_names() -> None:
    names = ("CreditCardRecognizer", "PhoneRecognizer", "UsSsnRecognizer")
    built = detect.PresidioDetector(names).recognizers
    found = sorted(str(vars(each)["name"]) for each in built)
    assert found == ["CreditCardRecognizer", "UsSsnRecognizer", "Windowed"]


@pytest.mark.parametrize("name", ["SpacyRecognizer", "EmailRecognizer", "nothing", ""])
def test_f11_a_recognizer_that_cannot_be_built_keeps_everything_home(name: str) -> None:
    plan = _replaced(recognizers=["PhoneRecognizer", name])
    assert classes("a harmless question", everything(plan)) == {"uncertain.error"}


def _replaced(**fields: object) -> DetectionPlan:
    return DetectionPlan.from_fields(PLAN.to_fields() | fields)


def test_no_socket_is_made_and_no_program_started() -> None:
    # A library tries one when it is imported, and takes the refusal for "no IPv6".
    code = """
import sys
from curtilage.client.detection.detectors.__main__ import refuse_network_and_files
from curtilage.policy.document.load import load_profile
seen = []
def note(event, args):
    if event.startswith(("socket.", "subprocess.", "os.system", "urllib.")):
        seen.append(event)
plan = load_profile("default").plan
refuse_network_and_files()
sys.addaudithook(note)  # is told of what was not refused
from curtilage.client.detection.detectors.all import scanner_of
scanner_of(plan).scan(["mia@example.org, 536-22-1234, https://example.org"])
print(sorted(set(seen) - {"socket.gethostname"}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        env=worker_environment(),
        timeout=300,
    )
    assert done.stdout == b"[]\n"


# --- every detector, at fault ----------------------------------------------------


class Faulty:
    """A detector that raises, or answers with something that is no finding."""

    id = "faulty"

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def find(self, reading: Reading) -> Iterator[Span]:
        del reading
        if isinstance(self._answer, BaseException):
            raise self._answer
        return cast("Iterator[Span]", self._answer)


ANSWERS: dict[str, object] = {
    "raises": ValueError(CANARY),
    "memory": MemoryError(),
    "late": TimeoutError(),
    "none": None,
    "garbage": [CANARY],
}
NAMES = (*(each for each in OWN_IDS if each != "name"), "presidio", "ner")


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
@pytest.mark.parametrize("index", range(len(NAMES)), ids=NAMES)
def test_every_detector_at_fault_keeps_the_query_home(
    index: int, answer: object, equipment: Equipment
) -> None:
    fitted = list(equipment)
    assert tuple(detector.id for detector, _ in fitted) == NAMES
    fitted[index] = (cast("Detector", Faulty(answer)), equipment[index][1])
    assert route_of(ALL_READINGS, tuple(fitted)) is Route.LOCAL
    (found,) = Scanner(fitted).scan([ALL_READINGS])
    assert {"uncertain.error", "uncertain.timeout"} & {s.data_class for s in found}
    assert CANARY not in repr(found)


HANGING = """
import sys, time
from curtilage.client.detection.detectors import __main__ as worker
from curtilage.sandbox.wall import compute_only
from curtilage.client.detection.detectors.all import equipment_of
from curtilage.client.detection.detectors.scanner import Scanner
from curtilage.policy.decision.findings import Normalization
class Hanging:
    def __init__(self, inner):
        self.inner = inner
    @property
    def id(self):
        return self.inner.id
    def find(self, reading):
        raw = reading.normalization is Normalization.RAW
        if raw and f"HANG {self.id} " in reading.text:
            began = time.process_time()
            while time.process_time() - began < 1.2:
                pass
        return self.inner.find(reading)
requests, replies = worker.take_streams()
plan = worker.read_plan(requests)
first, last = equipment_of(plan)
fitted = [(Hanging(each), views) for each, views in (*first, *last)]
Scanner(fitted).scan(["warm up 1 a@b.example"])
worker.serve(requests, replies, Scanner(fitted), compute_only())
"""


@pytest.fixture(scope="module")
def hanging() -> Iterator[Inspector]:
    text = profile_text("default").replace("deadline_ms: 250", "deadline_ms: 500", 1)
    policy = load_policy(text)
    command = (sys.executable, "-c", HANGING)
    inspector = Inspector.start(policy, command=command, spare=False)
    yield inspector
    inspector.close()


@pytest.mark.parametrize("name", NAMES)
def test_every_detector_that_hangs_keeps_the_query_home(
    name: str, hanging: Inspector
) -> None:
    assert hanging.wait_ready(60)
    text = f"HANG {name} {ALL_READINGS}"
    query = Query(messages=(Message(role="user", content=text),))
    inspection = hanging.inspect(query)
    assert "uncertain.timeout" in {each.data_class for each in inspection.findings}
    assert decide(POLICY.rulebook, inspection).route is Route.LOCAL
