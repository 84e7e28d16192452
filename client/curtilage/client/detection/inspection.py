"""Inspects a whole query: every text, within limits, in time, or as uncertain.

What could not be examined is a finding and never an absence of findings: too long, not
text, not decodable, late, or by detectors that failed. This module decides nothing;
``policy.decision.decide`` does.
"""

import asyncio
import hashlib
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Self

from curtilage.client import telemetry
from curtilage.client.chat.query import Leaf, Query
from curtilage.client.detection.limits import (
    cost_of,
    is_oversize,
    time_limit,
    weight_of,
)
from curtilage.client.detection.persons import settled
from curtilage.client.detection.spans import GarbageError, failure, parse_found
from curtilage.client.detection.turns import seams, told_numbers
from curtilage.client.detection.worker import (
    DetectorProcess,
    Task,
    TimeLimit,
    WorkerError,
    advice_on,
    require_presidio,
    worker_command,
)
from curtilage.client.detection.worker_pool import Workers
from curtilage.client.errors import BusyError
from curtilage.client.health import Detectors
from curtilage.client.system.fair_queue import APPLICATION, FairQueue, TurnRefusedError
from curtilage.client.telemetry import RestartCause
from curtilage.policy.decision.classes import UNFINISHED
from curtilage.policy.decision.decide import INSPECTION_DOOR, Inspection
from curtilage.policy.decision.findings import Approved, Finding, Where
from curtilage.policy.decision.rules import APPROVABLE_ROLES

if TYPE_CHECKING:  # a policy's file, packs and trust are not needed here
    from curtilage.policy.document.model import Limits, Policy

START = TimeLimit(processor_s=60.0, wall_s=300.0)
# Short queries of a batch are examined together, as long as that is fast.
_GROUP = 32
_GROUP_CHARS = 4000
_NO_DIGEST = bytes(32)
_WHOLE_QUERY = Where(message=0, role="user", json_path="")
_SPLIT = Where(message=-1, role="user", json_path="")  # never in a finding
_DETECTOR = "inspector"
_CLASS_OF = {
    RestartCause.TIMEOUT: "uncertain.timeout",
    RestartCause.WAITED: "uncertain.waited",
    RestartCause.CRASH: "uncertain.error",
    RestartCause.GARBAGE: "uncertain.error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """A query with everything that is known before any detector runs."""

    digest: bytes
    messages: int
    findings: tuple[Finding, ...]
    leaves: tuple[Leaf, ...] = field(repr=False)
    seams: tuple[str, ...] = field(repr=False)  # read additionally, for the whole query
    split_numbers: str = field(repr=False)  # numbers of several turns, or empty
    weight: int
    limit: TimeLimit
    approved: tuple[Approved, ...] = ()
    apart: "_Prepared | None" = None  # the texts that a policy approves

    @property
    def parts(self) -> tuple["_Prepared", ...]:
        return (self,) if self.apart is None else (self, self.apart)

    @property
    def places(self) -> tuple[Where, ...]:
        own = tuple(leaf.where for leaf in self.leaves)
        split = (_SPLIT,) if self.split_numbers else ()
        return (*own, *(_WHOLE_QUERY for _ in self.seams), *split)

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts that the detectors read, in the order of ``places``."""
        own = tuple(leaf.text for leaf in self.leaves)
        split = (self.split_numbers,) if self.split_numbers else ()
        return (*own, *self.seams, *split)

    def with_findings(self, more: Sequence[Finding]) -> Inspection:
        # Findings in approved texts may be waived, so the others must keep their own.
        approved = {each.where for each in self.approved}
        aside = [each for each in more if each.where in approved]
        others = [each for each in more if each.where not in approved]
        return Inspection(
            door=INSPECTION_DOOR,
            findings=(
                *settled((*self.findings, *_without_repeats(others))),
                *aside,
            ),
            payload_digest=self.digest,
            messages=self.messages,
            approved=self.approved,
        )


def prepare(
    query: Query,
    limits: "Limits",
    approvals: frozenset[tuple[str, str]] = frozenset(),
) -> _Prepared:
    """Check what needs no detector: parts, decodability, size.

    A query beyond the limits goes to no detector, since it is kept local in any case.

    Args:
        query: the query.
        limits: how much is examined.
        approvals: role and SHA-256 of each text that the policy approves.
    """
    leaves = tuple(query.leaves())
    findings = [failure("uncertain.attachment", _DETECTOR, at) for at in query.opaque]
    try:
        digest = query.payload_digest()
    except UnicodeEncodeError:
        digest = _NO_DIGEST
        findings.append(failure("uncertain.undecodable", _DETECTOR, _WHOLE_QUERY))
    if is_oversize(leaves, limits):
        findings.append(failure("uncertain.oversize", _DETECTOR, _WHOLE_QUERY))
        leaves = ()
    approved = _approved_of(leaves, approvals)
    apart: _Prepared | None = None
    if approved:
        # As a separate conversation: an approved text combines with no other text,
        # neither where two texts meet nor where one finding changes the meaning of
        # another. And the others are examined as if it were absent.
        places = {each.where for each in approved}
        own = tuple(leaf for leaf in leaves if leaf.where in places)
        leaves = tuple(leaf for leaf in leaves if leaf.where not in places)
        apart = _Prepared(
            digest=_NO_DIGEST,
            messages=0,
            findings=(),
            leaves=own,
            seams=(),
            split_numbers="",
            weight=(heavy := weight_of([leaf.text for leaf in own])),
            limit=time_limit(limits, heavy),
        )
    between = seams(leaves)
    weight = weight_of([*(leaf.text for leaf in leaves), *between])
    return _Prepared(
        digest=digest,
        messages=len(query.messages),
        findings=tuple(findings),
        approved=approved,
        apart=apart,
        leaves=leaves,
        seams=between,
        split_numbers=told_numbers(leaves),
        weight=weight,
        limit=time_limit(limits, weight),
    )


def _approved_of(
    leaves: Sequence[Leaf], approvals: frozenset[tuple[str, str]]
) -> tuple[Approved, ...]:
    """Return the texts that are approved, word for word."""
    if not approvals:
        return ()
    found: list[Approved] = []
    for leaf in leaves:
        at = leaf.where
        if at.role in APPROVABLE_ROLES and at.json_path == "content":
            # Exactly the characters that would be sealed, not trimmed or folded. A lone
            # surrogate has no UTF-8 form, and so is in no approved file.
            encoded = leaf.text.encode("utf-8", "surrogatepass")
            digest = hashlib.sha256(encoded).hexdigest()
            if (at.role, digest) in approvals:
                found.append(Approved(where=at, sha256=digest))
    return tuple(found)


def _without_repeats(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Drop findings in a seam that one of the texts alone shows with equal certainty.

    The others extend from one text into another, and only have the whole as their
    place. Numbers over several turns count if a check holds, or if the detectors
    failed.
    """
    surest: dict[str, tuple[bool, int]] = {}
    for each in findings:
        if each.where.json_path:
            sure = (each.validated, each.score)
            surest[each.data_class] = max(sure, surest.get(each.data_class, sure))
    for each in findings:
        known = surest.get(each.data_class, (False, -1))
        failed = each.data_class in UNFINISHED
        if each.where == _SPLIT and not (each.validated or failed):
            continue
        if each.where.json_path or known < (each.validated, each.score):
            yield each if each.where != _SPLIT else replace(each, where=_WHOLE_QUERY)


class Inspector:
    """The running detectors; thread-safe, one query after the other.

    A worker that fails is replaced by the spare at once, or by a new one in the
    background. While no worker is warm, every query is ``uncertain.error`` and is kept
    local.
    """

    def __init__(
        self,
        policy: "Policy",
        *,
        command: Sequence[str] | None = None,
        spare: bool = True,
    ) -> None:
        self._limits = policy.limits
        self._lists = frozenset(each.name for each in policy.lists)
        self._approvals = policy.rulebook.approved
        self._asking = threading.Lock()
        self._turns = FairQueue()
        plan = policy.plan

        def launch(in_background: bool) -> DetectorProcess:
            ours = worker_command(spare=in_background)
            return DetectorProcess(
                command or ours, plan=plan, wall_required=policy.wall_required
            )

        self._workers = Workers(launch, limit=START, spare=spare)

    @classmethod
    def start(
        cls,
        policy: "Policy",
        *,
        command: Sequence[str] | None = None,
        spare: bool = True,
    ) -> Self:
        """Start the worker and wait until it is warm, which takes seconds.

        Args:
            policy: determines what is searched for, and the limits.
            command: another worker than ours; for tests.
            spare: keep a second worker warm from the first single query on;
                it takes the memory of a process. ``inspect_many`` needs none.

        Raises:
            ConfigError: Presidio is not installed.
            DetectorsError: the worker does not start, or has no sandbox although the
                policy requires one.
        """
        if command is None:
            require_presidio()
        inspector = cls(policy, command=command, spare=spare)
        inspector._workers.start()
        return inspector

    @property
    def advice(self) -> str | None:
        """Advice for the user about the worker and its sandbox, or None."""
        process = self._workers.current
        return None if process is None else advice_on(process.wall, process.broken)

    @property
    def condition(self) -> Detectors:
        """The state of the workers."""
        return self._workers.condition

    @property
    def worker_pid(self) -> int | None:
        """The worker's process id, or None while there is none."""
        process = self._workers.current
        return None if process is None else process.pid

    @property
    def spare_pid(self) -> int | None:
        """The spare worker's process id, or None while there is none."""
        process = self._workers.spare
        return None if process is None else process.pid

    def inspect(self, query: Query) -> Inspection:
        """Return everything found in a query; a failure is a finding too."""
        with telemetry.timed(telemetry.Stage.INSPECT), self._asking:
            prepared = prepare(query, self._limits, self._approvals)
            (found,) = self._inspect_groups([(prepared,)])
            if isinstance(found, RestartCause):
                inspection = _failed(prepared, found)
            else:
                (inspection,) = found
        telemetry.inspected()
        self._workers.keep_spare()
        return inspection

    async def ainspect(self, query: Query) -> Inspection:
        """Return the same without blocking the event loop, in turn over the callers.

        Raises:
            BusyError: too many are already waiting.
        """
        try:
            await self._turns.take(cost_of(tuple(query.leaves()), self._limits))
        except TurnRefusedError:
            raise BusyError(
                "too many queries are waiting for the detectors; try again later"
            ) from None
        work = asyncio.ensure_future(asyncio.to_thread(self.inspect, query))
        # Only when the detectors have ended, even if the caller is gone: otherwise
        # callers that leave at once would occupy them, and the threads.
        work.add_done_callback(self._end_turn)
        return await asyncio.shield(work)

    def _end_turn(self, work: asyncio.Future[Inspection]) -> None:
        self._turns.end()
        if not work.cancelled():
            work.exception()  # retrieved, since no caller may be left to do so

    def inspect_many(self, queries: Sequence[Query]) -> Iterator[Inspection]:
        """Yield the results of ``inspect``, faster; waits for a new worker.

        Each query has its own deadline. A query on which the worker fails is uncertain;
        the queries after it go to the next worker.
        """
        waiting = deque(self._groups(queries))
        while waiting:
            self.wait_ready(START.wall_s)
            done: list[Inspection] = []
            with self._asking:
                for found in self._inspect_groups(tuple(waiting)):
                    group = waiting.popleft()
                    if not isinstance(found, RestartCause):
                        done += found
                    elif len(group) > 1:
                        # One of them caused it, and only that one should be kept local
                        # for it.
                        waiting.extendleft((each,) for each in reversed(group))
                    else:
                        done += (_failed(each, found) for each in group)
            yield from done

    def _groups(self, queries: Sequence[Query]) -> Iterator[tuple[_Prepared, ...]]:
        """Yield the queries in groups that cost no more than one of some length."""
        group: list[_Prepared] = []
        weight = 0
        for query in queries:
            prepared = prepare(query, self._limits, self._approvals)
            size = sum(part.weight for part in prepared.parts)
            if group and (weight + size > _GROUP_CHARS or len(group) == _GROUP):
                yield tuple(group)
                group, weight = [], 0
            group.append(prepared)
            weight += size
        if group:
            yield tuple(group)

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait for a replacement that is being started."""
        return self._workers.wait(timeout_s)

    def close(self) -> None:
        """Stop the workers; every later query is ``uncertain.error``."""
        self._workers.close()

    def _inspect_groups(
        self, groups: Sequence[tuple[_Prepared, ...]]
    ) -> Iterator[list[Inspection] | RestartCause]:
        """Yield the inspections of each group up to a failure, then its cause."""
        process = self._workers.current
        if process is None:
            self._workers.refill()
            yield RestartCause.CRASH
            return
        tasks = [_task(group, self._limits) for group in groups]
        process.send(tasks)
        for group, task in zip(groups, tasks, strict=True):
            parts = [part for each in group for part in each.parts]
            try:
                answer = process.receive(task.limit)
                places = [part.places for part in parts]
                found = iter(parse_found(answer, places, lists=self._lists))
            # The first failure ends the batch: this process is drained or killed, and
            # the rest goes to the next one.
            except WorkerError as error:
                self._workers.failed(process, error.cause)
                yield error.cause
                return
            except GarbageError:
                self._workers.failed(process, RestartCause.GARBAGE)
                yield RestartCause.GARBAGE
                return
            yield [
                each.with_findings([*chain(*islice(found, len(each.parts)))])
                for each in group
            ]


def _task(group: Sequence[_Prepared], limits: "Limits") -> Task:
    """Return the task for a group; it has the time limit of one query."""
    parts = [part for each in group for part in each.parts]
    return Task(
        conversations=tuple(part.texts for part in parts),
        limit=time_limit(limits, sum(part.weight for part in parts)),
        application=APPLICATION.get(),
    )


def _failed(prepared: _Prepared, cause: RestartCause) -> Inspection:
    telemetry.unfinished(cause)
    return prepared.with_findings([failure(_CLASS_OF[cause], _DETECTOR, _WHOLE_QUERY)])
