"""Write the tables of docs/openai-api.md from those that the endpoint reads by.

The errors of tiers come from their reasons and classes; a new one without a sentence
here is a ``KeyError``. ``tests/test_openai_api.py`` fails where the document and the
code differ.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, cast

from curtilage.client.chat.openai_fields import (
    DOCUMENT,
    DROPPED,
    DROPPED_IN_MESSAGES,
    DROPPED_IN_PARTS,
    MESSAGE_FIELDS,
    NEUTRAL,
    OTHERS,
    PARTS,
    REFUSALS,
    ROUTES,
    USED,
)
from curtilage.client.endpoint.openai_answers import error_object
from curtilage.client.errors import (
    ClientError,
    ConfigError,
    ConsentRequiredError,
    ElsewhereError,
    LocalUnavailableError,
    NotRoutedError,
    QueuedError,
    TicketError,
    TooLongError,
)
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.local import model as local_model
from curtilage.client.local.reasons import LocalFailure
from curtilage.client.queue.deferred_store import QueueFullError
from curtilage.client.queue.reasons import REASONS
from curtilage.client.remote.reasons import EnclaveFailure, Unmet
from curtilage.client.routing.utility import Refusal

PATH: Final = Path(__file__).resolve().parents[1] / DOCUMENT
_TABLE: Final = re.compile(r"(<!-- table: ([a-z]+) -->\n).*?(<!-- end -->)", re.DOTALL)

_OPERATOR: Final = "tell the operator"
_AGAIN: Final = f"ask again, or {_OPERATOR}"
_QUEUE: Final = "[operating.md](operating.md#questions-that-wait)"
_CONSENT: Final = "[commands.md](commands.md#serve-the-endpoint)"

MEANINGS: Final[Mapping[str, str]] = {
    "consent_required": "the policy requires consent before this is sent",
    "cost_unmeetable": "every permitted tier costs more than `max_cost`",
    "home_unavailable": "`mode` is `home`, and no local or on-premises tier may answer",
    "internal": "an error of this program or of its files, which `message` names",
    "local_model_changed": "the local model's file has another SHA-256 than configured",
    "local_model_missing": "there is no local model, or its file is none",
    "no_permitted_tier": "the policy permits no tier for such data",
    "queue_damaged": "the queued question can no longer be read",
    "queue_expired": "no tier could answer a queued question as long as it may wait",
    "queue_full": "no tier could answer, and the queue is full",
    "queue_unknown": "nothing is queued under the ticket",
    "queued": "no tier can answer at present; the question is asked again by itself",
    "required_unmet": "the tier that `require` names may not or cannot answer; "
    "`message` says why",
    "slo_unmeetable": "no permitted tier is likely to meet `slo_ms`, and `slo_hard` is "
    "`true`",
    "unavailable": "every permitted tier failed a moment ago",
}
"""The meaning of codes that are no reason of ``failure_texts``."""

REMEDIES: Final[Mapping[str, str]] = {
    "audit_failed": "free the disk: nothing is sent that cannot be recorded",
    "consent_required": f"show what would be sent and repeat it with the token: "
    f"{_CONSENT}",
    "cost_unmeetable": "raise `max_cost`, or leave it out",
    "date_refused": "set this machine's clock",
    "enclave_refused_query": "change the field that `param` or `message` names",
    "home_unavailable": "leave `mode` out, or install a local model",
    "internal": _OPERATOR,
    "local_late": "ask for a shorter answer, or raise `--answer-seconds`",
    "local_model_changed": "register the file anew: `curtilage models`",
    "local_model_missing": "`curtilage models recommend`",
    "local_out_of_memory": "free memory, or choose a smaller model; it is tried again "
    "after half a minute",
    "no_permitted_tier": "ask the policy's author",
    "on_premises_no_logprobs": "leave `logprobs` out",
    "on_premises_not_deterministic": "leave `deterministic` out",
    "on_premises_refused": "leave out what that server does not know, such as a "
    "keyword of a schema",
    "queue_damaged": "ask again",
    "queue_expired": "ask again",
    "queue_full": "ask again later",
    "queue_unknown": "ask again",
    "queued": f"come back with the ticket: {_QUEUE}",
    "required_unmet": "leave `require` out, or make that tier answer",
    "slo_unmeetable": "allow more time, or leave `slo_hard` out",
    "too_large": "shorten the question",
    "unavailable": "ask again in half a minute",
    "unmet_consent": f"give the consent: {_CONSENT}",
}
"""What to do; of other reasons, by whether they pass."""


def failures() -> dict[tuple[int, str], tuple[str, str]]:
    """Return the meaning of each error after a tier was asked, and what to do."""
    found: dict[tuple[int, str], tuple[str, str]] = {}
    for error in _errors():
        status, body = error_object(error)
        code = str(cast("dict[str, object]", body["error"])["code"])
        if (status, code) not in REFUSALS:
            found[status, code] = _meaning(error, code), _remedy(error, code)
    return dict(sorted(found.items()))


def local_errors(
    root: type[LocalUnavailableError] = LocalUnavailableError,
) -> Iterator[type[LocalUnavailableError]]:
    """Yield each class of what the local model raises."""
    yield root
    for each in root.__subclasses__():
        yield from local_errors(each)


def _errors() -> Iterator[ClientError]:
    for reason in REASONS.values():
        # The local model has classes; a rejected draft is another tier's to answer.
        if not isinstance(reason, LocalFailure):
            yield ElsewhereError(reason)
    for kind in local_errors():
        if kind.__module__ == local_model.__name__:
            yield kind.__new__(kind, "")
    for refusal in Refusal:
        too_long = refusal is Refusal.CONTEXT_TOO_LONG
        yield (TooLongError if too_long else NotRoutedError)(refusal.value, "")
    yield ConsentRequiredError("")
    yield QueuedError("", EnclaveFailure.BUSY)
    yield TicketError.unknown("")
    yield TicketError("queue_expired", "", http_status=410)
    yield TicketError("queue_damaged", "")
    yield QueueFullError("")
    yield ConfigError("")


def _meaning(error: ClientError, code: str) -> str:
    if code in MEANINGS:
        return MEANINGS[code]
    reason = error.reason if isinstance(error, LocalUnavailableError) else code
    return FAILURE_TEXTS[reason]


def _remedy(error: ClientError, code: str) -> str:
    if code in REMEDIES:
        return REMEDIES[code]
    reason = (
        REASONS[code]
        if code in REASONS
        else cast("LocalUnavailableError", error).reason
    )
    if isinstance(reason, Unmet):
        return "ask the policy's author or the enclave's operator"
    return _AGAIN if reason.passes else _OPERATOR


def tables() -> dict[str, str]:
    """Return each table of the document by its name."""
    return {
        "routes": _table(
            ("request", "answer"),
            [
                *((f"`{route}`", note) for route, note in ROUTES.items()),
                (", ".join(f"`{path}`" for path in OTHERS), "404, `not_found`"),
            ],
        ),
        "used": _table(
            ("field", "values"), ((f"`{name}`", note) for name, note in USED.items())
        ),
        "neutral": _table(
            ("field", "accepted where it is"),
            ((f"`{name}`", _values(values)) for name, values in NEUTRAL.items()),
        ),
        "dropped": _table(
            ("of", "fields"),
            [
                ("the request", _names(DROPPED)),
                ("a message", _names(DROPPED_IN_MESSAGES)),
                ("a part of a message", _names(DROPPED_IN_PARTS)),
            ],
        ),
        "content": _table(
            ("of a message", "is refused as"),
            [*_refused("field", MESSAGE_FIELDS), *_refused("part of type", PARTS)],
        ),
        "refusals": _table(
            ("status", "`code`", "when"),
            ((str(status), f"`{code}`", w) for (status, code), w in REFUSALS.items()),
        ),
        "failures": _table(
            ("status", "`code`", "meaning", "what to do"),
            (
                (str(status), f"`{code}`", meaning, remedy)
                for (status, code), (meaning, remedy) in failures().items()
            ),
        ),
    }


def written(text: str) -> str:
    """Return the document with the tables as they are to be.

    Raises:
        KeyError: it names an unknown table.
    """
    made = tables()
    return _TABLE.sub(lambda found: found[1] + made[found[2]] + found[3], text)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    first, *others = (f"| {' | '.join(row)} |\n" for row in (head, *rows))
    return f"{first}|{'---|' * len(head)}\n{''.join(others)}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _values(values: tuple[object, ...]) -> str:
    return " or ".join(f"`{json.dumps(value)}`" for value in (*values, None))


def _refused(what: str, words: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    return ((f"{what} `{name}`", kind) for name, kind in words.items())


if __name__ == "__main__":
    PATH.write_text(written(PATH.read_text("utf-8")), "utf-8")
