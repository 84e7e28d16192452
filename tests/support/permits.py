"""Permits for tests: a desk, and ``seal`` with a permit created for the call."""

import hashlib
import itertools
from datetime import UTC, datetime, timedelta
from typing import cast

from curtilage.attest.verify import VerifiedKey
from curtilage.client.chat.query import Query
from curtilage.client.chat.receipt import ReceiptSecret
from curtilage.client.remote.answer_opener import AnswerReader
from curtilage.client.remote.fetch_order import FetchOrder
from curtilage.client.remote.keys import fetch_order
from curtilage.client.remote.seal import NO_SKEW, seal
from curtilage.client.remote.sealed import SealedExchange
from curtilage.policy.decision.decide import Allowed
from curtilage.policy.decision.permit import (
    KEY_BYTES,
    EgressPermit,
    Party,
    Permit,
    PermitDesk,
    time_ms,
)


def new_desk() -> PermitDesk:
    numbers = itertools.count()
    return PermitDesk(
        bytes(KEY_BYTES), lambda size: next(numbers).to_bytes(size, "big")
    )


def unfinished_permit() -> object:
    """Return a permit that no desk built, and that has no field."""
    return object.__new__(cast("type[object]", Permit))


def permit_for(
    desk: PermitDesk, allowed: Allowed, key: VerifiedKey, *, now: datetime
) -> EgressPermit:
    return desk.mint(
        allowed,
        tier="enclave",
        enclave_key_digest=hashlib.sha256(key.key_configs).digest(),
        release_digest=key.release_digest,
        attempt=0,
        now_ms=time_ms(now),
    )


def seal_permitted(
    allowed: Allowed,
    query: Query,
    key: VerifiedKey,
    *,
    now: datetime,
    skew: timedelta = NO_SKEW,
    secret: ReceiptSecret | None = None,
) -> tuple[SealedExchange, AnswerReader]:
    """Seal a query, with a permit for this call."""
    desk = new_desk()
    permit = permit_for(desk, allowed, key, now=now)
    payload = query.payload()
    return seal(permit, payload, key, desk=desk, now=now, skew=skew, secret=secret)


def order(party: Party = Party.RELAY) -> FetchOrder:
    return fetch_order(new_desk(), party, datetime.now(UTC))
