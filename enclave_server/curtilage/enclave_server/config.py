"""The enclave's configuration: one TOML file, read once, strictly.

``parse_config`` is pure; it takes text and returns a frozen ``EnclaveConfig`` or raises
a ``ConfigError`` with all problems. Unknown keys are refused, because a misspelled
limit would otherwise be no limit. No environment variable is read.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from curtilage.enclave_server.errors import ConfigError
from curtilage.enclave_server.toml_reader import Listen, Table, Within, is_loopback
from curtilage.inference.settings import (
    FLASH_ATTENTION,
    ISOLATIONS,
    KV_TYPES,
    MAX_GPU_LAYERS,
    FlashAttention,
    Isolation,
    KVType,
)

MAX_CONFIG_BYTES: Final = 64 * 1024
EMBEDDED: Final = "embedded"
LLAMA_CPP: Final = "llama.cpp"
OPENAI: Final = "openai"
EMULATED_GPU: Final = "nvidia-gpu"
_AMD_PRODUCTS: Final = ("Genoa", "Milan", "Turin")
_PRODUCTS: Final[Mapping[str, tuple[str, ...]]] = {
    "amd": _AMD_PRODUCTS,
    "intel": (),
    "aws": (),
    "nvidia": (),
    "tpm": (),
    "emulated": (*_AMD_PRODUCTS, "tdx", "nitro", EMULATED_GPU),
}
"""The vendors whose roots may be configured, and their products."""
_UNISOLATED: Final = frozenset({"emulated", "tpm"})
"""Kinds that prove no isolation, and are for development only."""


class Environment(StrEnum):
    """Environment of this enclave; production accepts no emulated evidence."""

    PRODUCTION = "production"
    DEVELOPMENT = "development"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorFile:
    """A root certificate at which evidence may end.

    Attributes:
        kind: ``amd``, ``intel``, ``aws``, ``nvidia``, ``tpm`` or ``emulated``.
        product: the product line, such as ``Genoa``, for AMD; the emulated product;
            empty for the others.
        certificate: a PEM file with one certificate, for a TPM with its
            attestation key; None where a vendor's fingerprint is enough.
    """

    kind: str
    product: str
    certificate: Path | None

    @property
    def is_device(self) -> bool:
        """Whether it certifies devices rather than the machine."""
        return self.kind == "nvidia" or self.product == EMULATED_GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A witness of the log: name and Ed25519 key (32 bytes)."""

    name: str
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogKeys:
    """The transparency log that must hold the release.

    Attributes:
        origin: the log's name.
        key: Ed25519, 32 bytes.
        witnesses: that may cosign.
        quorum: how many must cosign.
        max_checkpoint_age_s: older checkpoints are stale.
    """

    origin: str
    key: bytes
    witnesses: tuple[Witness, ...]
    quorum: int
    max_checkpoint_age_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """An OpenAI-compatible server inside the same trusted boundary.

    Attributes:
        address: a UNIX socket, or a loopback address with its port.
        name: of its model, as it lists it.
        parallel: requests sent to it at a time; it batches them itself.
        stall_s: how long it may write nothing, in its queue or while it reads.
    """

    address: Listen
    name: str
    parallel: int = 64
    stall_s: float = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """The model to load, or the server that has loaded one.

    Attributes:
        path: a file, or None for the embedded default.
        sha256: lower-case hex, or empty for the embedded default's own.
        context_tokens: 256 to 131072; None: what the model was trained for, as far as
            memory allows.
        threads: of the engine, at most; it leaves one CPU to the rest.
        sequences: requests that are answered at the same time, each with a context of
            ``context_tokens``.
        peer: that answers instead of an engine of ours, or None.
        kv_type: how keys and values are held.
        flash_attention: whether attention is computed in pieces.
        gpu_layers: how many layers a GPU computes.
        isolation: what separates requests.
    """

    path: Path | None
    sha256: str
    context_tokens: int | None
    threads: int
    sequences: int
    peer: Peer | None = None
    kv_type: KVType = "f16"
    flash_attention: FlashAttention = "auto"
    gpu_layers: int = 0
    isolation: Isolation = "shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every bound of the server.

    Attributes:
        max_body_bytes: of one outer request; held in memory.
        max_connections: each may hold one body, so this bounds memory.
        max_queue: requests that wait for the model; further ones get 503, and so do
            those that would wait too long.
        max_tokens: the longest answer, however much a request asks for.
        max_requests_per_key: the replay set's size; beyond it, no answers
            until the key is rotated.
        header_s: from the start of a connection, or a further request's first byte,
            to the end of its head.
        body_s: for the whole body.
        idle_s: between requests of a connection.
        write_s: for a reader to take one piece; then generation stops.
        answer_s: for a whole answer, including waiting.
        shutdown_s: for answers in progress after SIGTERM.
    """

    max_body_bytes: Annotated[int, Within(1024, 16 * 1024 * 1024)] = 1024 * 1024
    max_connections: Annotated[int, Within(1, 4096)] = 64
    max_queue: Annotated[int, Within(1, 1024)] = 16
    max_tokens: Annotated[int, Within(1, 131072)] = 4096
    max_requests_per_key: Annotated[int, Within(1, 2**22)] = 262144
    header_s: Annotated[int, Within(1, 600)] = 10
    body_s: Annotated[int, Within(1, 600)] = 30
    idle_s: Annotated[int, Within(1, 3600)] = 30
    write_s: Annotated[int, Within(1, 600)] = 10
    answer_s: Annotated[int, Within(1, 3600)] = 600
    shutdown_s: Annotated[int, Within(0, 600)] = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """Lifetimes of keys and evidence, and when they are renewed.

    Attributes:
        key_lifetime_s: the window that evidence binds; at most 12 h.
        max_evidence_age_s: since the anchor's time; at most 12 h.
        refresh_s: new evidence for the same key; default half the age.
        rotate_s: a new pair of keys; default half the lifetime.
    """

    key_lifetime_s: int = 43200
    max_evidence_age_s: int = 43200
    refresh_s: int = 21600
    rotate_s: int = 21600


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeChoice:
    """Whether challenges are answered.

    Attributes:
        enabled: see there.
        least_interval_s: from one acquisition of evidence to the next, for all
            callers together.
    """

    enabled: bool = False
    least_interval_s: Annotated[int, Within(1, 3600)] = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSFiles:
    """The TLS files of a TCP address.

    Attributes:
        certificate: PEM, our own certificate first, then its chain.
        key: PEM, without a passphrase.
    """

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class EnclaveConfig:
    """The whole file.

    Attributes:
        environment: see there.
        listen: see there.
        evidence: UNIX socket of the evidence process.
        release: directory with manifest.json, proof.txt, checkpoint.txt and, if the
            two have different sizes, consistency.txt.
        anchors: what the bundle's certificates may end at.
        log: what the release's proof must verify under.
        model: see there.
        limits: see there.
        freshness: see there.
        challenge: see there.
        tls: for a TCP address; None for a UNIX socket, and for plain TCP, which
            is for development only.
        counters: UNIX socket that shows the operator's figures; None: there is none.
    """

    environment: Environment
    listen: Listen
    evidence: Path
    release: Path
    anchors: tuple[AnchorFile, ...]
    log: LogKeys
    model: ModelChoice
    limits: Limits = field(default_factory=Limits)
    freshness: Freshness = field(default_factory=Freshness)
    challenge: ChallengeChoice = field(default_factory=ChallengeChoice)
    tls: TLSFiles | None = None
    counters: Path | None = None


def parse_config(text: str) -> EnclaveConfig:
    """Parse and validate the configuration's text.

    Raises:
        ConfigError: with all problems found; they name keys, not values.
    """
    try:
        table: dict[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}") from None
    top = Table(table)
    # The stricter environment is first: it is used if the value is invalid.
    environment = Environment(top.one_of("environment", tuple(Environment)))
    listen = top.listen("listen")
    tls = None
    if top.has("tls"):
        files = top.table("tls")
        tls = TLSFiles(certificate=files.path("certificate"), key=files.path("key"))
        files.finish()
    _check_listen(top, listen, tls, environment)
    evidence = top.unix_path("evidence")
    release = top.path("release")
    anchors = tuple(
        _read_anchor(table, environment) for table in top.tables("trust_anchors")
    )
    # One label of the binding says what is emulated, so kinds cannot be mixed.
    if len({anchor.kind == "emulated" for anchor in anchors}) > 1:
        top.problem("trust_anchors", "must all be emulated, or none of them")
    # A device's evidence is signed by the machine's: by itself it binds no key of ours.
    if anchors and all(anchor.is_device for anchor in anchors):
        top.problem("trust_anchors", "none of them is a CPU's")
    log = _read_log(top.table("log"))
    model = _read_model(top.table("model"))
    limits = top.settings("limits", Limits())
    freshness = _read_freshness(top.table("freshness", optional=True))
    challenge = top.settings("challenge", ChallengeChoice())
    counters = None
    if top.has("counters"):
        counters = _read_counters(top.table("counters"), {listen.path, evidence})
    top.finish()
    # Last: values that replaced invalid ones must never be served with.
    if top.problems:
        raise ConfigError(*top.problems)
    return EnclaveConfig(
        environment=environment,
        listen=listen,
        evidence=evidence,
        release=release,
        anchors=anchors,
        log=log,
        model=model,
        limits=limits,
        freshness=freshness,
        challenge=challenge,
        tls=tls,
        counters=counters,
    )


def _read_counters(table: Table, taken: set[Path | None]) -> Path:
    path = table.unix_path("listen")
    # Each socket replaces what is at its path.
    if path in taken:
        table.problem("listen", "is another socket's path")
    table.finish()
    return path


def _check_listen(
    top: Table, listen: Listen, tls: TLSFiles | None, environment: Environment
) -> None:
    # Sealed content is protected without TLS; but an observer of the line would see
    # which gateway is used, and could impersonate it.
    if listen.path is not None:
        if tls is not None:
            top.problem("tls", 'is for a TCP address; "listen" is a UNIX socket')
    elif tls is None and environment is not Environment.DEVELOPMENT:
        top.problem("listen", 'TCP needs a [tls] table, or environment = "development"')
    elif tls is None and listen.host and not is_loopback(listen.host):
        top.problem("listen", "an address that is not loopback needs a [tls] table")


def _read_anchor(table: Table, environment: Environment) -> AnchorFile:
    kind = table.one_of("kind", tuple(_PRODUCTS))
    if kind in _UNISOLATED and environment is not Environment.DEVELOPMENT:
        table.problem("kind", f'"{kind}" needs environment = "development"')
    products = _PRODUCTS[kind]
    # A vendor's root may be pinned by its known fingerprint.
    named = kind in _UNISOLATED or table.has("certificate")
    anchor = AnchorFile(
        kind=kind,
        product=table.one_of("product", products) if products else "",
        certificate=table.path("certificate") if named else None,
    )
    table.finish()
    return anchor


def _read_log(table: Table) -> LogKeys:
    witnesses: list[Witness] = []
    for item in table.tables("witnesses"):
        witnesses.append(Witness(name=item.text("name"), key=item.key("key")))
        item.finish()
    # One witness under two names, or with two keys, would be a quorum of one.
    if len({witness.name for witness in witnesses}) != len(witnesses) or len(
        {witness.key for witness in witnesses}
    ) != len(witnesses):
        table.problem("witnesses", "names and keys must differ")
    log = LogKeys(
        origin=table.text("origin"),
        key=table.key("key"),
        witnesses=tuple(witnesses),
        quorum=table.integer("quorum", 1, max(1, len(witnesses)), default=1),
        max_checkpoint_age_s=table.integer(
            "max_checkpoint_age_s", 60, 30 * 86400, default=86400
        ),
    )
    table.finish()
    return log


def _read_model(table: Table) -> ModelChoice:
    engines = (LLAMA_CPP, OPENAI)
    if table.has("engine") and table.one_of("engine", engines) == OPENAI:
        return _read_peer(table)
    path = table.text("path")
    embedded = path == EMBEDDED
    if not embedded and not path.startswith("/"):
        table.problem("path", 'must be "embedded" or an absolute path')
    sha256 = table.text("sha256") if table.has("sha256") or not embedded else ""
    if sha256 and not (len(sha256) == 64 and set(sha256) <= set("0123456789abcdef")):  # noqa: PLR2004 - hex digits
        table.problem("sha256", "must be 64 lower-case hex digits")
    context_tokens = None
    if table.has("context_tokens"):
        context_tokens = table.integer("context_tokens", 256, 131072, default=4096)
    kv_type, flash = _read_cache(table)
    isolation, gpu_layers = _read_isolation(table)
    model = ModelChoice(
        path=None if embedded else Path(path),
        sha256=sha256,
        context_tokens=context_tokens,
        threads=table.integer("threads", 1, 64, default=64),
        sequences=table.integer("sequences", 1, 64, default=4),
        kv_type=kv_type,
        flash_attention=flash,
        gpu_layers=gpu_layers,
        isolation=isolation,
    )
    table.finish()
    return model


def _read_cache(table: Table) -> tuple[KVType, FlashAttention]:
    kv_type, flash = KV_TYPES[0], FLASH_ATTENTION[0]
    if table.has("kv_type"):
        kv_type = table.one_of("kv_type", KV_TYPES)
    if table.has("flash_attention"):
        flash = table.one_of("flash_attention", FLASH_ATTENTION)
    if kv_type != "f16" and flash == "off":
        table.problem("kv_type", "a quantised one needs flash attention")
    return kv_type, flash


def _read_isolation(table: Table) -> tuple[Isolation, int]:
    """Return what separates requests, and how many layers a GPU computes."""
    isolation = ISOLATIONS[0]
    if table.has("isolation"):
        isolation = table.one_of("isolation", ISOLATIONS)
    gpu_layers = table.integer("gpu_layers", 0, MAX_GPU_LAYERS, default=0)
    if isolation == "process" and gpu_layers:
        table.problem("isolation", '"process" computes no layer on a GPU')
    return isolation, gpu_layers


def _read_peer(table: Table) -> ModelChoice:
    address = table.listen("address")
    # Any other address leads out of what the evidence measures.
    if address.host and not is_loopback(address.host):
        table.problem("address", "must be a UNIX socket or a loopback address")
    peer = Peer(
        address=address,
        name=table.text("name"),
        parallel=table.integer("parallel", 1, 1024, default=64),
        stall_s=table.integer("stall_s", 1, 3600, default=300),
    )
    context_tokens = table.integer("context_tokens", 256, 1048576, default=4096)
    table.finish()
    return ModelChoice(
        path=None,
        sha256="",
        context_tokens=context_tokens,
        threads=1,
        sequences=1,
        peer=peer,
    )


def _read_freshness(table: Table) -> Freshness:
    usual = Freshness()
    # Never more than the usual lifetime: recorded traffic can be decrypted as long as
    # the private key exists. A client's policy may ask for less, and then refuses our
    # bundle.
    lifetime = table.integer(
        "key_lifetime_s", 60, usual.key_lifetime_s, default=usual.key_lifetime_s
    )
    age = table.integer("max_evidence_age_s", 60, 43200, default=43200)
    freshness = Freshness(
        key_lifetime_s=lifetime,
        max_evidence_age_s=age,
        refresh_s=table.integer("refresh_s", 1, age, default=age // 2),
        # Two keys are held; rotating faster would drop one that is still valid.
        rotate_s=table.integer(
            "rotate_s", (lifetime + 1) // 2, lifetime, default=(lifetime + 1) // 2
        ),
    )
    table.finish()
    return freshness
