"""HPKE vectors of the development dependency ``cryptography-vectors``."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from curtilage.wire.hpke.suite import PrivateKey, RecipientContext, SenderContext

Case = dict[str, Any]

BASE_MODE = 0


@cache
def load_cases(name: str) -> list[Case]:
    """Load ``test-vectors.json`` (RFC 9180) or ``hpke-pq-test-vectors.json``."""
    text = (files("cryptography_vectors") / "HPKE" / name).read_text("utf-8")
    cases: list[Case] = json.loads(text)
    return cases


def octets(text: str) -> bytes:
    return bytes.fromhex(text)


def check_sender(case: Case, sender: SenderContext) -> None:
    """Seal every message and derive every export of ``case``."""
    for one in case["encryptions"]:
        assert sender.seal(octets(one["pt"]), octets(one["aad"])).hex() == one["ct"]
    check_exports(case, sender)


def check_recipient(case: Case, recipient: RecipientContext) -> None:
    """Open every message and derive every export of ``case``."""
    for one in case["encryptions"]:
        opened = recipient.open(octets(one["ct"]), octets(one["aad"]))
        assert opened.hex() == one["pt"]
    check_exports(case, recipient)


def check_exports(case: Case, context: SenderContext | RecipientContext) -> None:
    assert case["exports"]
    for one in case["exports"]:
        value = context.export(octets(one["exporter_context"]), one["L"])
        assert value.hex() == one["exported_value"]


def check_key(case: Case, key: PrivateKey) -> None:
    assert key.public_key.hex() == case["pkRm"]
