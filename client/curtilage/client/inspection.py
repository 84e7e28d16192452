"""Inspect a whole query: every text, within limits, in time, or uncertain.

What could not be looked at is a finding, never an absence of findings: too
long, not text, not decodable, late, or looked at by detectors that failed.
Decides nothing; ``policy.decide`` does.
"""

import asyncio
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

from curtilage.client import telemetry
from curtilage.client.detect import require_presidio
from curtilage.client.detector_process import (
    GRACE_S,
    DetectorProcess,
    Task,
    WorkerError,
    start_worker,
)
from curtilage.client.errors import DetectorsError
from curtilage.client.findings import GarbageError, failure, parse_findings
from curtilage.client.query import Leaf, Query
from curtilage.client.telemetry import RestartCause
from curtilage.policy.decide import Inspection
from curtilage.policy.findings import Finding, Where
from curtilage.policy.model import Limits, Policy

START_TIMEOUT_S = 60.0
MAX_LEAVES = 2000  # texts of one query; a longer conversation is oversize
_NO_DIGEST = bytes(32)
_WHOLE_QUERY = Where(message=0, role="user", json_path="")
# Between the texts of a query, read as one: ASCII's record separator. It is
# white space to every rule, but no line break, at which a number run would end.
JOINT = "\x1e"
_DETECTOR = "inspector"
_CLASS_OF = {
    RestartCause.TIMEOUT: "uncertain.timeout",
    RestartCause.CRASH: "uncertain.error",
    RestartCause.GARBAGE: "uncertain.error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """A query with what is known of it before any detector runs."""

    digest: bytes
    messages: int
    findings: tuple[Finding, ...]
    leaves: tuple[Leaf, ...] = field(repr=False)
    limit_s: float  # the last leaf is the whole query, if it has several texts

    @property
    def places(self) -> tuple[Where, ...]:
        return tuple(leaf.where for leaf in self.leaves)

    @property
    def task(self) -> Task:
        texts = tuple(leaf.text for leaf in self.leaves)
        return Task(texts=texts, limit_s=self.limit_s)

    def with_findings(self, more: Sequence[Finding]) -> Inspection:
        return Inspection(
            findings=(*self.findings, *_without_repeats(more)),
            payload_digest=self.digest,
            messages=self.messages,
        )


def deadline_s(limits: Limits, characters: int) -> float:
    """Return how long a query may be looked at; grows with its length."""
    thousands = math.ceil(characters / 1000)
    per_thousand = limits.deadline_ms_per_1000_chars
    return (limits.deadline_ms + thousands * per_thousand) / 1000


def prepare(query: Query, limits: Limits) -> _Prepared:
    """Check what needs no detector: parts, decodability, size.

    A query beyond the limits is handed to no detector; it stays home anyway.
    Several texts are one more text, joined: a number split over them is found.
    """
    leaves = tuple(query.leaves())
    findings = [failure("uncertain.attachment", _DETECTOR, at) for at in query.opaque]
    try:
        digest = query.payload_digest()
    except UnicodeEncodeError:
        digest = _NO_DIGEST
        findings.append(failure("uncertain.undecodable", _DETECTOR, _WHOLE_QUERY))
    joined = _joined(leaves)
    if len(joined) > limits.max_chars or len(leaves) > MAX_LEAVES:
        findings.append(failure("uncertain.oversize", _DETECTOR, _WHOLE_QUERY))
        leaves = ()
    elif len(leaves) > 1:
        leaves = (*leaves, Leaf(where=_WHOLE_QUERY, text=joined))
    characters = sum(len(leaf.text) for leaf in leaves)
    return _Prepared(
        digest=digest,
        messages=len(query.messages),
        findings=tuple(findings),
        leaves=leaves,
        limit_s=deadline_s(limits, characters),
    )


def _joined(leaves: Sequence[Leaf]) -> str:
    return JOINT.join(leaf.text.strip() for leaf in leaves)


def _without_repeats(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Drop what the joined texts show and one of them shows alone as surely.

    The rest crosses from one text into another, and has no place but the whole.
    """
    surest: dict[str, tuple[bool, int]] = {}
    for each in findings:
        if each.where != _WHOLE_QUERY:
            sure = (each.validated, each.score)
            surest[each.data_class] = max(sure, surest.get(each.data_class, sure))
    for each in findings:
        known = surest.get(each.data_class, (False, -1))
        if each.where != _WHOLE_QUERY or known < (each.validated, each.score):
            yield each


class Inspector:
    """The detectors, ready; thread-safe, one query after the other.

    A worker that fails is replaced in the background. Until another is warm,
    every query is ``uncertain.error``: it stays home.
    """

    def __init__(self, policy: Policy, *, command: Sequence[str] | None = None) -> None:
        self._limits = policy.limits
        self._command = command
        self._asking = threading.Lock()
        self._state = threading.Lock()
        self._process: DetectorProcess | None = None
        self._recovery: threading.Thread | None = None
        self._closed = False

    @classmethod
    def start(cls, policy: Policy, *, command: Sequence[str] | None = None) -> Self:
        """Start the worker and wait until it is warm, some seconds.

        Args:
            policy: its limits apply.
            command: another worker than ours; for tests.

        Raises:
            ConfigError: Presidio is not installed.
            DetectorsError: the worker does not start.
        """
        if command is None:
            require_presidio()
        inspector = cls(policy, command=command)
        inspector._process = start_worker(command, timeout_s=START_TIMEOUT_S)
        return inspector

    @property
    def ready(self) -> bool:
        """Whether a warm worker is there."""
        return self._process is not None

    @property
    def worker_pid(self) -> int | None:
        """The worker's process id, or None while there is none."""
        process = self._process
        return None if process is None else process.pid

    def inspect(self, query: Query) -> Inspection:
        """Return everything found in a query; a failure is a finding too."""
        with telemetry.timed(telemetry.Stage.INSPECT), self._asking:
            (inspection,) = self._inspect_batch([query])
        telemetry.inspected()
        return inspection

    async def ainspect(self, query: Query) -> Inspection:
        """Do the same without blocking the event loop."""
        return await asyncio.to_thread(self.inspect, query)

    def inspect_many(self, queries: Sequence[Query]) -> Iterator[Inspection]:
        """Yield what ``inspect`` would, faster; waits for a new worker.

        Each query has its own deadline. One on which the worker fails is
        uncertain; the queries after it go to the next worker.
        """
        at = 0
        while at < len(queries):
            self.wait_ready(START_TIMEOUT_S)
            with self._asking:
                done = list(self._inspect_batch(queries[at:]))
            at += len(done)
            yield from done

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait for a replacement that is on its way."""
        recovery = self._recovery
        if recovery is not None:
            recovery.join(timeout_s)
        return self.ready

    def close(self) -> None:
        """Stop the worker; every later query is ``uncertain.error``."""
        with self._state:
            self._closed = True
            process, self._process = self._process, None
        if process is not None:
            process.kill()
        if self._recovery is not None:
            self._recovery.join()

    def _inspect_batch(self, queries: Sequence[Query]) -> Iterator[Inspection]:
        """Yield inspections up to and including the first failure."""
        prepared = [prepare(query, self._limits) for query in queries]
        process = self._process
        if process is None:
            self._recover(None, RestartCause.CRASH)
            yield _failed(prepared[0], RestartCause.CRASH)
            return
        process.send([each.task for each in prepared])
        for each in prepared:
            try:
                answer = process.receive(each.limit_s)
                found = parse_findings(answer, each.places)
            except WorkerError as error:
                self._recover(process, error.cause)
                yield _failed(each, error.cause)
                return
            except GarbageError:
                self._recover(process, RestartCause.GARBAGE)
                yield _failed(each, RestartCause.GARBAGE)
                return
            yield each.with_findings(found)

    def _recover(self, process: DetectorProcess | None, cause: RestartCause) -> None:
        """Replace a worker in the background, unless that is under way."""
        with self._state:
            self._process = None
            busy = self._recovery is not None and self._recovery.is_alive()
            if busy or (self._closed and process is None):
                return
            self._recovery = threading.Thread(
                target=self._replace, args=(process, cause), daemon=True
            )
            self._recovery.start()

    def _replace(self, process: DetectorProcess | None, cause: RestartCause) -> None:
        # A worker that is merely slow is kept: a new one costs seconds.
        if process is not None:
            late = cause is RestartCause.TIMEOUT
            if late and process.drain(GRACE_S):
                self._install(process)
                return
            process.kill()
        if self._closed:
            return
        telemetry.detector_restart(cause)
        try:
            self._install(start_worker(self._command, timeout_s=START_TIMEOUT_S))
        except (DetectorsError, OSError):
            return  # none: the next query tries again, and stays home

    def _install(self, process: DetectorProcess) -> None:
        with self._state:
            if not self._closed:
                self._process = process
                return
        process.kill()


def _failed(prepared: _Prepared, cause: RestartCause) -> Inspection:
    return prepared.with_findings([failure(_CLASS_OF[cause], _DETECTOR, _WHOLE_QUERY)])
