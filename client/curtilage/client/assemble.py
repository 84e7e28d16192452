"""Creates the parts of a running client from a configuration.

A part that is missing can only restrict the client: without a local model, queries that
must be kept local are refused; without a relay, or without a writable audit trail,
everything is kept local.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from curtilage.client.audit.trail import DiskAuditTrail
from curtilage.client.audit.writer import AuditLog
from curtilage.client.config import ClientConfig
from curtilage.client.conversation.kept import KeptConversations
from curtilage.client.detection.checked import CheckedInspector
from curtilage.client.errors import (
    ConfigError,
    FailureReason,
    LocalUnavailableError,
    SealingError,
)
from curtilage.client.local.computing import AS_USUAL
from curtilage.client.local.model import (
    LocalModel,
    LocalModelMemoryError,
)
from curtilage.client.local.registry.catalogue import by_digest, known
from curtilage.client.local.registry.machine import is_metered, on_battery
from curtilage.client.local.registry.store import Registry
from curtilage.client.on_premises.server import OnPremisesServer
from curtilage.client.on_premises.settings import (
    OnPremisesSettings,
    on_premises_settings,
)
from curtilage.client.parts import (
    AnswersLocally,
    ClientParts,
    UnavailableLocal,
    demonstrates,
    known_model,
)
from curtilage.client.remote.access import read_access
from curtilage.client.remote.addresses import MirrorAddress, RelayAddress
from curtilage.client.remote.cover import CoverSettings
from curtilage.client.remote.enclave import Notify
from curtilage.client.remote.key_store import KeyStore
from curtilage.client.remote.log_history import LogHistory, LogHistoryFiles
from curtilage.client.remote.mirror import MirrorTransport
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.remote.separation import require_apart
from curtilage.client.remote.transport import RelayTransport
from curtilage.client.routing.estimate import Estimator, RouterModelError
from curtilage.client.routing.estimators import open_estimator, shipped_thresholds
from curtilage.client.routing.router import UNFIT, Device, Router
from curtilage.client.routing.thresholds import (
    Shipped,
    Thresholds,
    Unfit,
    read_thresholds,
)
from curtilage.client.routing.trace import TRACE_NAME, TraceFile
from curtilage.client.system.files import state_folder
from curtilage.policy.decision.tiers import TierKind
from curtilage.policy.document.model import Policy
from curtilage.policy.document.routing import Routing
from curtilage.policy.document.routing_settings import Budgets, Speculating
from curtilage.policy.expectations import expectations_from
from curtilage.wire.errors import SelfTestError
from curtilage.wire.hpke.self_test import self_test

if TYPE_CHECKING:  # optional parts, which are not imported unless a policy has them
    from curtilage.client.local.named import NamedModel, NamedModels
    from curtilage.client.local.rollout.model import RolledOutModel
    from curtilage.client.queue.deferred_store import DeferredStore

    Local = LocalModel | RolledOutModel | NamedModel | UnavailableLocal

PATIENT_S: Final = 5.0


async def assemble(
    config: ClientConfig,
    *,
    spare: bool = True,
    notify: Notify | None = None,
    sized: Notify | None = None,
    lasting: bool = True,
) -> ClientParts:
    """Start the detectors, the local model and the audit trail, concurrently.

    Args:
        config: the client's configuration.
        spare: keep a second worker of the detectors warm; not worth it for one
            question.
        notify: as ``ClientParts``; also gets reports on the local model's rollout.
        sized: takes one line with the local model's context and memory, before it is
            loaded; called from another thread.
        lasting: conversations continue after a restart, as ``KeptConversations``.

    Raises:
        ConfigError: an address is not acceptable under the policy, or a file for the
            relay's access is invalid.
        SealingError: there is a way out, and our HPKE fails its self-test.
    """
    ways = ways_out(config)
    # At the start and not at the first question, so that the operator sees it.
    # Without a way out nothing is sealed, and local answers need no HPKE.
    if ways.transport is not None:
        try:
            self_test()
        except SelfTestError as error:
            raise SealingError(str(error)) from None
    servers = on_premises_settings_of(config)
    readable = [
        _readable(each.readable_by_others)
        for each in servers.values()
        if each.readable_by_others is not None
    ]
    queue = await asyncio.to_thread(queue_of, config.policy)
    kept = await asyncio.to_thread(KeptConversations, state_folder(), lasting=lasting)
    audit = audit_trail(config)
    named = named_models(config, notify, sized)
    inspector, local, _ = await asyncio.gather(
        asyncio.to_thread(inspector_from, config, spare=spare),
        _model_of(config, named, notify, sized),
        audit.prepare(),
    )
    if named is not None:
        named.warm()
    router = router_for(config.policy, local)
    return ClientParts(
        policy=config.policy,
        inspector=inspector,
        local=local,
        transport=ways.transport,
        mirror=ways.mirror,
        keys=KeyStore(
            expectations=expectations_from(config.policy),
            logs=LogHistory(LogHistoryFiles(_audit_directory(config))),
        ),
        audit=audit,
        absent=ways.absent,
        cover=cover_settings(config.policy),
        on_premises={
            tier: partial(OnPremisesServer, each) for tier, each in servers.items()
        },
        router=router,
        trace=TraceFile(state_folder() / TRACE_NAME).append,
        advice="\n".join(
            filter(
                None,
                (
                    ways.advice,
                    *readable,
                    kept.advice,
                    inspector.advice,
                    undrafted(router),
                ),
            )
        )
        or None,
        named=named,
        parameters=lambda: parameters_of(local),
        queue=queue,
        kept=kept,
        detectors=lambda: inspector.condition,
        currency=config.currency,
        home_model=lambda: (
            "" if isinstance(local, LocalModel | UnavailableLocal) else local.tag
        ),
        notify=notify,
    )


def queue_of(policy: Policy) -> "DeferredStore | None":
    """Open the queue, if the policy permits one.

    Raises:
        ConfigError: its file or its key is invalid.
    """
    if policy.routing is None or policy.routing.queue.store == "none":
        return None
    from curtilage.client.queue.deferred_store import queue_store  # noqa: PLC0415

    directory = state_folder()
    return queue_store(policy.routing.queue, directory)


def parameters_of(local: "Local") -> int:
    """Return about how many parameters a model of the catalogue has; 0: unknown."""
    known = None if isinstance(local, UnavailableLocal) else by_digest(local.sha256)
    # Q4_K_M has about five bits for each parameter, with its scales.
    if known is None or known.shape.quantisation != "Q4_K_M":
        return 0
    return known.size_bytes * 8 // 5


def inspector_from(config: ClientConfig, *, spare: bool = False) -> CheckedInspector:
    """Start the detectors, which also verify the policy's signature."""
    return CheckedInspector.start(config.policy, config.currency, spare=spare)


def audit_trail(config: ClientConfig) -> DiskAuditTrail:
    """Return the audit trail; it opens no file yet."""
    # A directory that is named is not created: an unmounted volume is not a log.
    return DiskAuditTrail(AuditLog(_audit_directory(config), make=config.audit is None))


def _audit_directory(config: ClientConfig) -> Path:
    if config.audit is not None:
        return Path(config.audit)
    return state_folder() / "audit"


async def local_model(
    config: ClientConfig,
    sized: Notify | None = None,
    notify: Notify | None = None,
) -> LocalModel | UnavailableLocal:
    """Start the local model, or record why there is none.

    If other tiers may answer as well, it is loaded in the background: ready when it is
    needed, and nothing waits for it before.
    """
    try:
        model = _named_model(config, sized)
        # A requested context that is not possible is reported at once.
        if config.policy.routing is not None and config.context_tokens is None:
            model.warm(notify or (lambda _: None))
            return model
        # Memory that is short now may be free later: the model tries again.
        with suppress(LocalModelMemoryError):
            await model.start()
    except LocalUnavailableError as error:
        return UnavailableLocal(str(error))
    return model


def unloaded_model(config: ClientConfig) -> AnswersLocally:
    """Return the local model that would answer, without reading its file.

    A model of the catalogue that is not here yet counts as it would if it were.

    Raises:
        ConfigError: nothing here or in the catalogue has the name.
    """
    named = named_models(config)
    if named is not None and named.usual:
        return named.get(named.usual)
    try:
        return _named_model(config)
    except (LocalUnavailableError, ConfigError) as error:
        if config.model is None:
            return UnavailableLocal(str(error))
        entry = known(config.model)
        if entry is None:
            raise ConfigError(str(error)) from None
        return UnavailableLocal(str(error), sha256=entry.sha256)


def _named_model(config: ClientConfig, sized: Notify | None = None) -> LocalModel:
    return LocalModel.open(
        config.model,
        sha256=config.model_sha256,
        registry=Registry(),
        context_tokens=config.context_tokens,
        sequences=config.sequences,
        computing=config.computing,
        sized=sized or (lambda _: None),
    )


def named_models(
    config: ClientConfig, notify: Notify | None = None, sized: Notify | None = None
) -> "NamedModels | None":
    """Return the models of the configuration's file, not loaded yet; None: no file.

    Raises:
        ConfigError: one of them is not registered, or has another digest; or a setting
            for the usual model was given although its table has it.
    """
    if config.models is None:
        return None
    from curtilage.client.local.named import NamedModels, open_from  # noqa: PLC0415

    usual = config.model if config.model in config.models.models else None
    given = (config.model_sha256, config.context_tokens, config.sequences)
    if usual is not None and (any(given) or config.computing != AS_USUAL):
        raise ConfigError(
            f"the settings of {usual!r} are those of its table in {config.models.path}"
        )
    try:
        return NamedModels(
            config.models,
            open_from(Registry(), sized or (lambda _: None)),
            usual=usual or "",
            notify=notify or (lambda _: None),
        )
    except LocalUnavailableError as error:
        raise ConfigError(str(error)) from None


async def _named_usual(
    named: "NamedModels", name: str, *, wait: bool
) -> "NamedModel | UnavailableLocal":
    """Return a model of the file as the usual one; as ``local_model``."""
    try:
        if wait:
            with suppress(LocalModelMemoryError):
                await named.start(name)
        else:
            named.warm(name)
    except LocalUnavailableError as error:
        return UnavailableLocal(str(error))
    return named.get(name)


async def _model_of(
    config: ClientConfig,
    named: "NamedModels | None",
    notify: Notify | None,
    sized: Notify | None,
) -> "Local":
    """Start the model of the policy's rollout, unless the user names a model."""
    plan = config.policy.routing
    if named is not None and named.usual:
        return await _named_usual(named, named.usual, wait=plan is None)
    if plan is None or plan.rollout is None or config.model is not None:
        return await local_model(config, sized, notify)
    from curtilage.client.local.rollout.model import RolledOutModel  # noqa: PLC0415

    model = RolledOutModel.on_this_device(
        plan.rollout,
        context_tokens=config.context_tokens,
        sequences=config.sequences,
        computing=config.computing,
        sized=sized or (lambda _: None),
        notify=notify or (lambda _: None),
    )
    try:
        await model.start()
    except LocalUnavailableError as error:
        return UnavailableLocal(str(error))
    return model


def on_premises_settings_of(config: ClientConfig) -> dict[str, OnPremisesSettings]:
    """Return the settings of the policy's on-premises servers, by the id of their tier.

    Raises:
        ConfigError: an address, a pin or a key's file is invalid.
    """
    plan, attestation = config.policy.routing, config.policy.attestation
    development = attestation is not None and attestation.environment == "development"
    tiers = [
        tier
        for tier in (() if plan is None else plan.tiers)
        if tier.kind is TierKind.ON_PREMISES
    ]
    keys = on_premises_keys(config.on_premises_key_files, [tier.id for tier in tiers])
    budgets = Budgets() if plan is None else plan.budgets
    return {
        tier.id: on_premises_settings(
            address=tier.address or "",
            model=tier.model or "",
            ca=config.policy.routing_files[tier.ca] if tier.ca else b"",
            spki_sha256=tier.spki_sha256 or "",
            key_file=keys.get(tier.id),
            plain_loopback=development,
            total_s=budgets.total_ms / 1000,
        )
        for tier in tiers
    }


def _readable(file: Path) -> str:
    return f"{file}: others on this machine can read it; chmod 600"


def on_premises_keys(said: str | None, tiers: Sequence[str]) -> dict[str, Path]:
    """Parse ``FILE``, or ``TIER=FILE`` separated by commas: the key file of each."""
    if not said:
        return {}
    if "=" not in said and len(tiers) == 1:
        return {tiers[0]: Path(said)}
    keys: dict[str, Path] = {}
    for each in said.split(","):
        tier, _, file = each.partition("=")
        # Never one key for all: each server would learn the key to the others.
        if tier not in tiers or not file:
            raise ConfigError(
                "--on-premises-key-file: name the server of each key, TIER=FILE, with "
                "commas between several; "
                f"the policy's servers: {', '.join(tiers) or 'none'}"
            )
        keys[tier] = Path(file)
    return keys


def router_for(policy: Policy, local: AnswersLocally) -> Router | None:
    """Return the router, or None if the policy has no routing section."""
    plan = policy.routing
    if plan is None:
        return None
    return Router(
        plan,
        estimator_of(plan, policy.routing_files),
        clock=time.monotonic,
        home_tokens=lambda: local.context_tokens,
        home_quality=lambda: (
            None if (known := known_model(local)) is None else known.quality_permille
        ),
        demonstrates=lambda: demonstrates(local),
        device=lambda: Device(on_battery=on_battery(), metered=is_metered()),
        thresholds=thresholds_of(plan, policy.routing_files),
        shipped=shipped_of(plan),
        running=lambda: local.digests,
    )


def thresholds_of(plan: Routing, files: Mapping[str, bytes]) -> Thresholds | None:
    """Return the thresholds for drafts, or None if the policy names none.

    Raises:
        ConfigError: the file is invalid, or its counts do not support it.
    """
    file = plan.speculation.thresholds
    try:
        return read_thresholds(files[file]) if file else None
    except ConfigError as error:
        raise ConfigError(f"routing.speculation.{error}") from None


def shipped_of(plan: Routing) -> tuple[Shipped, ...]:
    """Return the thresholds for drafts if the policy names none."""
    wants = plan.speculation.mode is not Speculating.OFF
    return shipped_thresholds() if wants and not plan.speculation.thresholds else ()


def undrafted(router: Router | None) -> str | None:
    """Return why no drafts are written although the policy enables them."""
    why = None if router is None else router.unfit()
    if why is None or why is Unfit.LOADING:
        return None
    return f"no drafts are written: {UNFIT[why]}; see `curtilage route certify`"


def estimator_of(plan: Routing, files: Mapping[str, bytes]) -> Estimator:
    """Return the policy's estimator of how hard a query is.

    Raises:
        ConfigError: the file of weights is not the expected one, or is invalid.
    """
    named = plan.estimator
    try:
        return open_estimator(
            named.kind,
            threshold=plan.intents.threshold_permille / 1000,
            data=files[named.file] if named.file else None,
            sha256=named.sha256 or "",
        )
    except RouterModelError as error:
        raise ConfigError(f"routing.estimator: {error}") from None


def cover_settings(policy: Policy) -> CoverSettings | None:
    """Return when to send cover requests, or None if the policy has none."""
    cover = policy.transport.cover
    if cover is None:
        return None
    return CoverSettings(delay_s=cover.delay_s, share=cover.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaysOut:
    """The ways out of this machine, or why there are none.

    Attributes:
        transport: to the relay.
        mirror: to an independent copy of the key list.
        absent: why there is no ``transport``.
        advice: a sentence for the user.
    """

    transport: RelayTransport | None = None
    mirror: MirrorTransport | None = None
    absent: FailureReason = EnclaveFailure.NOT_CONFIGURED
    advice: str | None = None


def ways_out(config: ClientConfig) -> WaysOut:
    """Validate addresses and files, and return the ways out; nothing is contacted.

    Raises:
        ConfigError: an address is not acceptable under the policy, two parties
            are the same, or a file is invalid.
    """
    attestation, named = config.policy.attestation, config.policy.transport
    if config.relay is None:
        return WaysOut(absent=_absent(config.policy))
    development = attestation is not None and attestation.environment == "development"
    # Without TLS only on this machine and under a development policy: the relay
    # sees who asks, and without TLS anyone on the way to it would, too.
    relay = RelayAddress.parse(config.relay, plain_loopback=development)
    mirror = named.mirror and MirrorAddress.parse(
        named.mirror, plain_loopback=development
    )
    # The policy's own addresses were compared when it was read; now the relay's.
    require_apart(
        development=development,
        relay=config.relay,
        mirror=named.mirror,
        gateway=named.gateway,
    )
    files = config.relay_access
    access = read_access(
        ca=files.ca,
        certificate=files.certificate,
        certificate_key=files.certificate_key,
        key=files.key,
    )
    if attestation is None:
        # No evidence could be trusted, so no connection is made.
        return WaysOut(absent=_absent(config.policy))
    advice = None
    if access.readable_by_others is not None:
        advice = _readable(access.readable_by_others)
    # Short if another tier may answer.
    plan = config.policy.routing
    connect_s = PATIENT_S if plan is None else plan.budgets.first_signal_ms / 1000
    return WaysOut(
        transport=RelayTransport(relay, access=access, connect_s=connect_s),
        mirror=MirrorTransport(mirror) if mirror else None,
        advice=advice,
    )


def _absent(policy: Policy) -> FailureReason:
    if policy.attestation is None:
        return EnclaveFailure.NO_ENCLAVE_NAMED
    return EnclaveFailure.NOT_CONFIGURED
