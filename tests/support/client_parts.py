"""In-memory counterparts of a client's parts, and queries for them."""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from typing_extensions import override

from curtilage.client.audit.record import AuditEntry, ReceiptEntry, receipt_secret
from curtilage.client.chat.answer import (
    Answerer,
    AnswerEvent,
    Delta,
    Finished,
    Provenance,
    TokenSignal,
)
from curtilage.client.chat.options import RoutingOptions
from curtilage.client.chat.query import Message, Query
from curtilage.client.errors import AuditError
from curtilage.client.local.model import LocalContextTooLongError
from curtilage.client.local.reasons import LocalModelError
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.decision.findings import Approved, Finding, Normalization, Where
from curtilage.policy.document.load import profile_text
from curtilage_dev.scripted_engine import SCRIPTED_INFO
from support.inspections import inspection_of

ORGANISATION = bytes(range(32))
MODEL_MISSING: Final = "the model file is missing"
PLAIN: Final = profile_text("default").partition("\nrouting:")[0]
"""The default policy without routing; a test puts its own behind it."""
EASY: Final = "Is this mail spam or not? Classify it: 'You have won a prize.'"
HARD: Final = (
    "Prove step by step that the square root of two is irrational, then write a Python "
    "function that approximates it and explain why its error shrinks."
)

LOCALLY: Final = Provenance(
    route=Answerer.LOCAL,
    model="m",
    classes=(),
    rule="default",
    reason="because",
    policy_digest="sha256:00",
    recorded=True,
)
"""Of an answer of the local model; a test replaces what it is about."""


def query(text: str, **options: object) -> Query:
    """Return a question; ``options`` are of its routing."""
    return Query(
        messages=(Message(role="user", content=text),),
        stream=True,
        options=replace(RoutingOptions(), **options),  # type: ignore[arg-type]
    )


def finding(data_class: str, *, score: int = 90) -> Finding:
    return Finding(
        data_class=data_class,
        detector="test",
        start=0,
        end=1,
        score=score,
        validated=False,
        normalization=Normalization.RAW,
        where=Where(message=0, role="user", json_path="content"),
    )


class ScriptedInspector:
    """Returns the configured findings for every query."""

    advice: str | None = None

    def __init__(self, *data_classes: str) -> None:
        self.findings = tuple(finding(name) for name in data_classes)
        self.approved: tuple[Approved, ...] = ()
        self.closed = False
        self.seen: list[Query] = []

    async def ainspect(self, query: Query) -> Inspection:
        self.seen.append(query)
        return inspection_of(
            findings=self.findings,
            payload_digest=query.payload_digest(),
            messages=len(query.messages),
            approved=self.approved,
        )

    def close(self) -> None:
        self.closed = True


class WordInspector:
    """Finds every occurrence of given words, as a class of data."""

    advice: str | None = None

    def __init__(self, words: Mapping[str, str]) -> None:
        self.words = dict(words)
        self.seen: list[Query] = []

    async def ainspect(self, query: Query) -> Inspection:
        self.seen.append(query)
        return inspection_of(
            findings=tuple(
                replace(
                    finding(name),
                    start=match.start(),
                    end=match.end(),
                    where=leaf.where,
                )
                for leaf in query.leaves()
                for word, name in self.words.items()
                for match in re.finditer(rf"\b{word}\b", leaf.text)
            ),
            payload_digest=query.payload_digest(),
            messages=len(query.messages),
        )

    def close(self) -> None:
        """Stop nothing."""


class ScriptedLocal:
    """Answers with fixed words, or cannot."""

    model_id = "scripted"
    context_tokens: int | None = None
    digests: tuple[str, str | None] | None = (
        SCRIPTED_INFO.model_sha256,
        SCRIPTED_INFO.template_sha256,
    )

    def __init__(
        self,
        words: Sequence[str] = ("At ", "home."),
        *,
        broken: bool = False,
        finish_reason: str = "stop",
    ) -> None:
        self.words = words
        self.broken = broken
        self.finish_reason = finish_reason
        self.sure = TokenSignal(logprob=-0.5, margin=0.5)
        self.asked: list[Query] = []
        self.stopped = 0
        self.closed = False

    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        self.asked.append(query)
        if self.broken:
            raise LocalModelError(MODEL_MISSING)
        try:
            for word in self.words:
                yield Delta(
                    text=word,
                    logprobs=((word, -0.5),),
                    signals=(self.sure,) if signals else (),
                )
        finally:
            self.stopped += 1
        yield Finished(
            finish_reason=self.finish_reason,
            prompt_tokens=3,
            completion_tokens=len(self.words),
        )

    async def close(self) -> None:
        self.closed = True


class SmallLocal(ScriptedLocal):
    """Holds 3,000 characters, each a token."""

    @override
    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        size = sum(len(each.content) for each in query.messages)
        if size + query.settings.max_tokens > 3000:
            raise LocalContextTooLongError(
                prompt_tokens=size,
                max_tokens=query.settings.max_tokens,
                context_tokens=3000,
            )
        async for event in super().generate(query, signals=signals):
            if isinstance(event, Delta) and event.text == self.words[0]:
                yield replace(event, prompt_tokens=size)
            else:
                yield event


class MemoryTrail:
    """Keeps what is recorded, or cannot."""

    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken
        self.entries: list[AuditEntry] = []
        self.receipts: list[ReceiptEntry] = []
        self.closed = False

    @property
    def problem(self) -> str | None:
        return "the disk is full" if self.broken else None

    async def append(self, entry: AuditEntry) -> None:
        if self.broken:
            raise AuditError("the disk is full")
        self.entries.append(entry)

    async def append_receipt(self, entry: ReceiptEntry) -> bool:
        if self.broken:
            return False
        self.receipts.append(entry)
        return True

    async def receipt_secret(self, receipt_id: bytes) -> bytes | None:
        return receipt_secret(ORGANISATION, receipt_id)

    async def checkpoint(self) -> None:
        """Sign nothing: there is no file."""

    async def close(self) -> None:
        self.closed = True
