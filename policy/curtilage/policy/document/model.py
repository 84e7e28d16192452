"""A policy as data: the model of the file, and the policy that is built from it.

The models mirror the file, section by section. They check types, ranges and
enumerations; checks across entries are in ``checks``. Everything is frozen, and
every key that is defined here has an effect.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    model_validator,
)

from curtilage.attest.expectations import CustodyExpectations
from curtilage.policy.decision.classes import CLASSES, expand
from curtilage.policy.decision.conditions import (
    MAX_SCORE,
    Condition,
    parse_condition,
)
from curtilage.policy.decision.decide import Decision
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import (
    FIGURE,
    FIGURE_IS_SOMEBODY,
    FLOOR,
    PERSON,
    STICKY,
    Exclusion,
    Rule,
    Rulebook,
    Sticky,
    Within,
    fires,
    scores_of,
    with_figures_as_persons,
)
from curtilage.policy.decision.tiers import Tiering
from curtilage.policy.document.attestation import Attestation
from curtilage.policy.document.detection_plan import (
    DEFAULT_RECALL,
    DEFAULT_WINDOW,
    MAX_RECALL,
    MAX_WINDOW,
    NO_RECOGNIZERS,
    DetectionPlan,
    Engine,
    ExclusionList,
    Kind,
    NerPlan,
    OwnDetector,
    PresidioPlan,
    Scan,
)
from curtilage.policy.document.dictionaries import MAX_ENTRY_CHARS, MIN_SALT_BYTES
from curtilage.policy.document.routing import Routing
from curtilage.policy.document.sections import (
    FileName,
    Id,
    Section,
    Transport,
)
from curtilage.policy.document.values import (
    all_requirements,
    calendar_day,
    covered_languages,
    each_once,
    excludable,
    expression,
    no_text_twice,
    one_class,
    own_classes_of,
    own_route,
    re2_pattern,
    unreserved_id,
)

PackName = Literal["secrets", "pci", "hipaa", "gdpr", "glba", "legal_export"]
PATIENT_MS: Final = 60_000  # the most that a policy can ask for
PATIENT_WALL_MS: Final = 3_600_000
PACKS: Final[tuple[str, ...]] = get_args(PackName)


# --- detection: what is detected, and when it counts -------------------------


RouteName = Annotated[Route, BeforeValidator(own_route)]
RuleId = Annotated[Id, AfterValidator(unreserved_id)]
Expression = Annotated[str, AfterValidator(expression)]
Reason = Annotated[str, Field(max_length=1000)]
Confidence = Annotated[int, Field(ge=1, le=MAX_SCORE)]
DataClass = Annotated[str, AfterValidator(one_class)]
Word = Annotated[str, Field(min_length=1, max_length=MAX_ENTRY_CHARS)]
Words = Annotated[tuple[Word, ...], Field(max_length=1000)]
Pattern = Annotated[
    str, Field(min_length=1, max_length=1000), AfterValidator(re2_pattern)
]
Salt = Annotated[str, Field(pattern=rf"^(?:[0-9a-f]{{2}}){{{MIN_SALT_BYTES},64}}$")]
SHA256 = Annotated[str, Field(pattern=r"^(?:[0-9a-f]{64})?$")]
Label = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
CheckName = Annotated[str, Field(pattern=r"^(?:[a-z][a-z0-9_]{0,31})?$")]
Packs = Annotated[tuple[PackName, ...], AfterValidator(each_once)]


class Default(Section):
    """Treatment of a query that no rule keeps local."""

    decision: RouteName
    require: Annotated[tuple[str, ...], AfterValidator(all_requirements)] = ()


class Limits(Section):
    """Limits of inspection; whatever exceeds them is uncertain.

    The deadline counts the processor time of the detectors, so that other load does not
    reduce it; ``deadline_wall_ms`` stops a detector that hangs.
    """

    max_chars: Annotated[int, Field(ge=1, le=1_000_000)] = 20_000
    deadline_ms: Annotated[int, Field(ge=1, le=60_000)] = 250
    deadline_ms_per_1000_chars: Annotated[int, Field(ge=0, le=60_000)] = 300
    deadline_wall_ms: Annotated[int, Field(ge=1, le=3_600_000)] = 30_000
    over: Literal["local"] = "local"


class Thresholds(Section):
    """The least score at which a class counts, where a rule says none.

    They concern ``identifier.direct`` (and public figures, who count as persons),
    ``identifier.quasi`` and ``topic``.
    Every other class counts at any score.
    """

    direct: Confidence = 35
    quasi: Confidence = 50
    topic: Confidence = 50

    def minimum_of(self, name: str) -> int:
        """Return the least score at which this class counts."""
        if name.startswith(("identifier.direct.", "identifier.public.")):
            return self.direct
        if name.startswith("identifier.quasi."):
            return self.quasi
        return self.topic if name.startswith("topic.") else 0


class Ner(Section):
    """The model that finds names."""

    engine: Engine
    path: Annotated[str, Field(max_length=4096)] = ""
    sha256: SHA256 = ""
    labels: dict[Label, DataClass] = Field(default_factory=dict[str, str])
    recall: Annotated[int, Field(ge=0, le=MAX_RECALL)] = DEFAULT_RECALL

    @model_validator(mode="after")
    def _complete_or_none(self) -> Self:
        # A model without a digest could be replaced on the disk, and one without labels
        # would find nothing that counts.
        given = (bool(self.path), bool(self.sha256), bool(self.labels))
        if self.engine in {"spacy", "transformers"} and not all(given):
            raise ValueError(f"{self.engine} needs 'path', 'sha256' and 'labels'")
        if self.engine in {"none", "embedded"} and any(given):
            raise ValueError(f"{self.engine} takes no 'path', 'sha256' or 'labels'")
        return self


# What a detector of each kind brings: exactly one of the keys in its line.
_BRINGS: Final = {
    "regex": frozenset({"pattern"}),
    "dictionary": frozenset({"file", "entries"}),
    "edm": frozenset({"file"}),
}


class DetectorEntry(Section):
    """A detector of the policy's own, as it is written."""

    id: Id
    kind: Kind
    data_class: DataClass = Field(alias="class")
    base_score: Confidence
    pattern: Pattern | None = None
    file: FileName | None = None
    entries: Words | None = Field(default=None, min_length=1, repr=False)
    salt: Salt | None = Field(default=None, repr=False)
    context: Words = ()
    window: Annotated[int, Field(ge=1, le=MAX_WINDOW)] = DEFAULT_WINDOW
    boost: Annotated[int, Field(ge=0, le=MAX_SCORE)] = 0
    check: CheckName = Field(default="", alias="validate")
    exclude: Words = Field(default=(), repr=False)

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        # Exactly one source: with two, one would be ignored.
        keys = ("pattern", "file", "entries")
        given = {key for key in keys if getattr(self, key) is not None}
        if len(given) != 1 or not given <= _BRINGS[self.kind]:
            wanted = " or ".join(repr(key) for key in sorted(_BRINGS[self.kind]))
            raise ValueError(f"a detector of kind {self.kind} has {wanted}, and one")
        if (self.salt is not None) != (self.kind == "edm"):
            raise ValueError("'salt' is required for the kind edm, and only there")
        if self.boost and not self.context:
            raise ValueError("'boost' needs 'context', or it has no effect")
        return self

    def compile(self, entries: tuple[str, ...], table: bytes = b"") -> OwnDetector:
        """Return the detector, ready to run, with what its file holds."""
        return OwnDetector(
            id=self.id,
            kind=self.kind,
            data_class=self.data_class,
            base_score=self.base_score,
            pattern=self.pattern or "",
            entries=self.entries or entries,
            table=table,
            salt=self.salt or "",
            context=self.context,
            window=self.window,
            boost=self.boost,
            validate=self.check,
            exclude=self.exclude,
        )


class EntryPoint(Section):
    """A recognizer in Python, as an installed distribution offers it."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")]
    distribution: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")]
    version: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+!-]{1,100}$")]


class Recognizers(Section):
    """The operator's recognizers, in Presidio's YAML or in Python."""

    file: FileName | None = None
    entry_points: Annotated[tuple[EntryPoint, ...], Field(max_length=50)] = ()
    classes: Annotated[dict[Label, DataClass], Field(min_length=1, max_length=500)]

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.file is None and not self.entry_points:
            raise ValueError("'presidio' has 'file' or 'entry_points', or both")
        return self


class Detectors(Section):
    """The policy's own detectors, and the sandbox of the detectors' process.

    A file may also give the list of its own alone (``load.detectors_named``).
    """

    wall: Literal["wanted", "required"] = "wanted"
    own: Annotated[tuple[DetectorEntry, ...], Field(max_length=100)] = ()
    presidio: Recognizers | None = None


class RuleEntry(Section):
    """One rule as it is written."""

    id: RuleId
    when: Expression
    within: Within = Within.CONVERSATION
    min_conf: Confidence | None = None
    distinct: Annotated[int, Field(ge=1, le=100)] = 1
    then: RouteName
    # In a pack, of a rule that concerns health with a name and nothing else.
    then_if_pseudonymised: Literal["deidentify"] | None = None
    reason: Reason = ""

    @model_validator(mode="after")
    def _can_fire(self, info: ValidationInfo) -> Self:
        # A rule that can never fire has no effect, and looks as if it did.
        if self.distinct > len(
            parse_condition(self.when, own=own_classes_of(info)).classes
        ):
            raise ValueError("'distinct' is more than the classes that 'when' names")
        return self

    def compile(
        self,
        thresholds: Thresholds,
        own: frozenset[str],
        pack: str = "",
        *,
        pseudonymised: bool = False,
    ) -> Rule:
        """Return the rule, ready to run in a policy with classes of its own.

        Args:
            thresholds: of the policy.
            own: the classes of the policy's own detectors.
            pack: the pack that the rule comes from; empty: the policy's own file.
            pseudonymised: health may leave once the name is replaced.
        """
        leaves = pseudonymised and self.then_if_pseudonymised is not None

        def minimum_of(name: str) -> int:
            return self.min_conf or thresholds.minimum_of(name)

        return Rule(
            id=self.id,
            when=self.when,
            condition=parse_condition(self.when, minimum_of=minimum_of, own=own),
            within=self.within,
            distinct=self.distinct,
            route=Route.DEIDENTIFY if leaves else self.then,
            reason=self.reason,
            pack=pack,
        )


class ExclusionEntry(Section):
    """Unvalidated findings that do not count, as it is written."""

    pattern: Annotated[str, AfterValidator(excludable)] = Field(alias="class")
    unless: Expression | None = None
    reason: Reason = ""
    dictionary: FileName | None = None

    def classes(self, own: frozenset[str]) -> frozenset[str]:
        """Return the classes meant: with persons, public figures, who count as such."""
        named = expand(self.pattern, own=own)
        return named | {FIGURE} if PERSON in named else named

    def compile(self, thresholds: Thresholds, own: frozenset[str]) -> Exclusion:
        """Return the exclusion, ready to run in a policy with classes of its own."""
        unless = self.unless
        return Exclusion(
            pattern=self.pattern,
            classes=self.classes(own),
            unless=None
            if unless is None
            else parse_condition(unless, minimum_of=thresholds.minimum_of, own=own),
            unless_text=unless or "",
            reason=self.reason,
            listed=self.dictionary or "",
        )


Sentence = Annotated[str, Field(min_length=1, max_length=1000)]
RecognizerName = Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]{2,63}$")]
RecognizerNames = Annotated[tuple[RecognizerName, ...], AfterValidator(each_once)]
RuleEntries = Annotated[tuple[RuleEntry, ...], Field(max_length=500)]


Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Day = Annotated[str, AfterValidator(calendar_day)]


class Approval(Section):
    """A text that a person has read and approved; its findings do not decide.

    ``sha256`` is that of the text in UTF-8, exactly as it is sent.
    """

    sha256: Digest
    role: Literal["system", "developer"] = "system"
    by: Annotated[str, Field(min_length=1, max_length=200)]
    date: Day
    note: Reason = ""


Approvals = Annotated[
    tuple[Approval, ...], Field(max_length=100), AfterValidator(no_text_twice)
]


class Document(Section):
    """The file, key by key; what may be left out has the value shown here.

    The order is that of the shipped profile. Without ``default`` every query is kept
    local, and without ``attestation`` no enclave is trusted.
    """

    version: Literal[1]
    languages: Annotated[tuple[str, ...], AfterValidator(covered_languages)] = ("en",)
    default: Default = Default(decision=Route.LOCAL)
    limits: Limits = Limits()
    thresholds: Thresholds = Thresholds()
    strict_topics: bool = False
    sticky: Sticky = "conversation"
    pseudonymised_health: Literal["stay", "leave"] = "stay"
    public_figures: Literal["stay", "leave"] = "stay"
    scan: Scan = "full"
    ner: Ner = Ner(engine="none")
    packs: Packs = ()
    detectors: Detectors = Detectors()
    rules: RuleEntries
    exclude: Annotated[tuple[ExclusionEntry, ...], Field(max_length=500)] = ()
    approved: Approvals = ()
    attestation: Attestation | None = None
    transport: Transport = Transport()
    routing: Routing | None = None


# --- the policy that is built from it ----------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy in force: the document, its digest, and its rules in executable form.

    ``load.load_policy`` makes it.

    Attributes:
        document: the file as data.
        digest: ``sha256:`` and 64 hexadecimal digits: of the file's bytes, and
            of the packs and files that it names (``attachments.digest_of``).
        source: what the caller calls the file.
        rules: those of the packs, then the file's own, each in its order;
            ``any-uncertain`` is among them.
        exclusions: in the file's order.
        classes: the tree, and what the policy's own detectors find.
        recognizers: Presidio's, as the packs name them, sorted.
        detectors: the policy's own, ready to run.
        lists: the texts that exclusions name.
        presidio: the operator's recognizers, ready to be built.
        custody: the list that ``attestation.custody`` names, verified.
        tiering: where an answer may be made; without the section ``routing``, here
            and in an enclave.
        routing_files: contents of the files that ``routing`` names, by name.
        notices: what the author should change before the next version.
        rulebook: the part that a decision reads.
    """

    document: Document = field(repr=False)
    digest: str
    source: str
    rules: tuple[Rule, ...] = field(repr=False)
    exclusions: tuple[Exclusion, ...] = field(repr=False)
    classes: frozenset[str] = field(default=CLASSES, repr=False)
    recognizers: tuple[str, ...] = field(default=(), repr=False)
    detectors: tuple[OwnDetector, ...] = field(default=(), repr=False)
    lists: tuple[ExclusionList, ...] = field(default=(), repr=False)
    presidio: PresidioPlan = NO_RECOGNIZERS
    custody: CustodyExpectations | None = field(default=None, repr=False)
    tiering: Tiering = field(default_factory=Tiering, repr=False)
    routing_files: Mapping[str, bytes] = field(
        default_factory=dict[str, bytes], repr=False
    )
    notices: tuple[str, ...] = ()
    rulebook: Rulebook = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Build what decisions read; refuse a policy without a rule for the unknown."""
        # Once, and not at each query. Past the frozen __setattr__: nothing of ours but
        # this line writes here.
        figures: Condition | None = None
        if self.document.public_figures == "leave":
            figures = parse_condition(
                FIGURE_IS_SOMEBODY,
                minimum_of=self.document.thresholds.minimum_of,
                own=self.classes - CLASSES,
            )
        rulebook = Rulebook(
            digest=self.digest,
            default=self.document.default.decision,
            rules=self.rules,
            exclusions=self.exclusions,
            classes=self.classes,
            strict_topics=self.document.strict_topics,
            topic_threshold=self.document.thresholds.topic,
            sticky=self.document.sticky,
            figures=figures,
            approved=frozenset(
                (each.role, each.sha256) for each in self.document.approved
            ),
            tiering=self.tiering,
        )
        object.__setattr__(self, "rulebook", rulebook)

    @property
    def attestation(self) -> Attestation | None:
        """Requirements on evidence; None: no evidence is accepted."""
        return self.document.attestation

    @property
    def routing(self) -> Routing | None:
        """The tiers and what to prefer; None: every query that may leave is sent."""
        return self.document.routing

    @property
    def transport(self) -> Transport:
        """Permitted shapes of answers, and the cover traffic."""
        return self.document.transport

    def wants_cover(self, decision: Decision) -> bool:
        """Return whether a query that is not sent may get a cover request.

        Whether it does is drawn by ``transport.cover.share``.
        """
        cover = self.transport.cover
        if cover is None or cover.classes is None:
            return cover is not None
        # The reason why a conversation was pinned is no longer known, and a sender who
        # asks for care may know of something that was not found: both may be of these
        # classes.
        if not {STICKY, FLOOR}.isdisjoint(hit.id for hit in decision.rules):
            return True
        own = self.classes - CLASSES
        covered = frozenset[str]().union(
            *(expand(pattern, own=own) for pattern in cover.classes)
        )
        return not covered.isdisjoint((*decision.classes, *decision.uncertain))

    @property
    def limits(self) -> Limits:
        """Limits of the inspection: its size and its time."""
        return self.document.limits

    @property
    def wall_required(self) -> bool:
        """Whether detectors may inspect a text only in a sandbox of the kernel."""
        return self.document.detectors.wall == "required"

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages in which a text may leave, as ISO 639-1."""
        return self.document.languages

    @property
    def plan(self) -> DetectionPlan:
        """The detectors that their process must run for this policy."""
        document = self.document
        ner = document.ner
        return DetectionPlan(
            packs=document.packs,
            recognizers=self.recognizers,
            ner=NerPlan(
                engine=ner.engine,
                path=ner.path,
                sha256=ner.sha256,
                # Sorted: a policy has one plan, whatever the order of its entries.
                labels=tuple(sorted(ner.labels.items())),
                recall=ner.recall,
            ),
            detectors=self.detectors,
            scan=document.scan,
            exit_classes=tuple(_exit_classes(self)),
            lists=self.lists,
            languages=tuple(sorted(document.languages)),
            presidio=self.presidio,
        )


def full_scan(policy: Policy) -> Policy:
    """Return a policy under which everything is inspected, however long it takes.

    The rules, the digest and the limit of size stay. Only for the detectors: decide
    under the policy itself.
    """
    limits = policy.limits.model_copy(
        update={
            "deadline_ms": PATIENT_MS,
            "deadline_ms_per_1000_chars": PATIENT_MS,
            "deadline_wall_ms": PATIENT_WALL_MS,
        }
    )
    document = policy.document.model_copy(update={"scan": "full", "limits": limits})
    return replace(policy, document=document)


def _exit_classes(policy: Policy) -> Iterator[str]:
    # A detector that could block must run, whatever else was found.
    blocks = policy.document.default.decision is Route.BLOCK or any(
        rule.route is Route.BLOCK for rule in policy.rules
    )
    if policy.document.scan == "full" or blocks:
        return
    # Only rules that a single finding makes fire: no later finding makes a route less
    # private, so the result is final.
    keeping = [rule for rule in policy.rules if rule.route is Route.LOCAL]
    for name in sorted(policy.classes):
        if any(_settles(policy.rulebook, rule, name) for rule in keeping):
            yield name


def _settles(rulebook: Rulebook, rule: Rule, data_class: str) -> bool:
    """Return whether one validated finding of a class makes a rule fire."""
    found = Finding(
        data_class=data_class,
        detector="plan",
        start=0,
        end=1,
        score=MAX_SCORE,
        validated=True,
        normalization=Normalization.RAW,
        where=Where(message=0, role="user", json_path="content"),
    )
    findings = with_figures_as_persons(rulebook, [found])
    return fires(rule, findings, scores_of(findings))
