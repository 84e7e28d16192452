"""In-memory counterparts of a client's doors: detectors and local model."""

from collections.abc import AsyncGenerator, Sequence

from curtilage.client.answers import AnswerEvent, Delta, Finished
from curtilage.client.errors import LocalUnavailableError
from curtilage.client.query import Query
from curtilage.policy.decide import Inspection
from curtilage.policy.findings import Finding, View, Where


def finding(data_class: str, *, score: int = 90) -> Finding:
    return Finding(
        data_class=data_class,
        detector="test",
        start=0,
        end=1,
        score=score,
        validated=False,
        view=View.RAW,
        where=Where(message=0, role="user", json_path="content"),
    )


class ScriptedInspector:
    """Finds what it is told to find, in whatever it is asked about."""

    def __init__(self, *data_classes: str) -> None:
        self.findings = tuple(finding(name) for name in data_classes)
        self.closed = False
        self.seen: list[Query] = []

    async def ainspect(self, query: Query) -> Inspection:
        self.seen.append(query)
        return Inspection(
            findings=self.findings,
            payload_digest=query.payload_digest(),
            messages=len(query.messages),
        )

    def close(self) -> None:
        self.closed = True


class ScriptedLocal:
    """Answers with fixed words, or cannot."""

    def __init__(
        self, words: Sequence[str] = ("At ", "home."), *, broken: bool = False
    ) -> None:
        self.words = words
        self.broken = broken
        self.asked: list[Query] = []
        self.stopped = 0
        self.closed = False

    async def generate(self, query: Query) -> AsyncGenerator[AnswerEvent]:
        self.asked.append(query)
        if self.broken:
            raise LocalUnavailableError("the model file is missing")
        try:
            for word in self.words:
                yield Delta(text=word, logprobs=((word, -0.5),))
        finally:
            self.stopped += 1
        yield Finished(
            finish_reason="stop", prompt_tokens=3, completion_tokens=len(self.words)
        )

    async def close(self) -> None:
        self.closed = True
