"""Flags and environment, read once; no other client code reads them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import (
    PackageNotFoundError,
    distribution,  # noqa: TID251 - a door
)
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from curtilage.client.errors import ConfigError
from curtilage.client.local.computing import MOST_ANSWER_S, MOST_THREADS, Computing
from curtilage.client.local.models_file import (
    LEAST_CONTEXT,
    MOST_CONTEXT,
    MOST_SEQUENCES,
    ModelsFile,
    read_models_file,
)
from curtilage.client.system.files import folder_digest, open_ordinary, read_text
from curtilage.inference.settings import FLASH_ATTENTION, KV_TYPES, MAX_GPU_LAYERS
from curtilage.policy.document.checks import Complaint, Tree, as_written
from curtilage.policy.document.exact_list import MAX_LIST_BYTES
from curtilage.policy.document.load import (
    PROFILES,
    load_policy,
    profile_text,
    read_tree,
)
from curtilage.policy.document.model import Policy
from curtilage.policy.document.recognizers import GROUP
from curtilage.policy.signing import (
    KEY_LIMIT_BYTES,
    SIGNATURE_LIMIT_BYTES,
    Currency,
    SigningError,
    parse_public_key,
)

MAX_POLICY_BYTES = 1024 * 1024

_Word = TypeVar("_Word", bound=str)

SHIPPED_PROFILE = "default"
SIGNATURE_SUFFIX = ".sig"
NO_FOLDER = "there is no such folder here"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessFiles:
    """Paths of the relay's access files; None if not set.

    Attributes:
        ca: certificates (PEM) of the only authorities to trust for the relay;
            None: the system's trust store.
        certificate: our certificate and its chain (PEM), if the relay wants one.
        certificate_key: its private key (PEM); None: in the same file.
        key: a file with the API key that the relay's operator gave us.
    """

    ca: Path | None = None
    certificate: Path | None = None
    certificate_key: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The external configuration.

    Attributes:
        policy: the policy in force.
        policy_source: its file, or the shipped profile's name.
        relay: the relay's address, or None: then every query is answered locally.
        relay_access: files with our credentials for the relay, and the authorities
            to trust for it.
        model: name or path of the local model; None is the embedded one.
        model_sha256: its digest, required for a path.
        context_tokens: tokens of question and answer together; None: what the model
            was trained for, as far as memory allows.
        sequences: how many queries the local model answers at a time; None: the
            default.
        computing: how the local model computes.
        models: the local models by name, and aliases; None: there are none.
        currency: the required signature of the policy; None: none is
            required.
        audit: directory of an existing audit log, or None: the
            user's own, created when first used.
        on_premises_key_files: files with the API keys of the policy's on-premises
            servers: ``TIER=FILE``, separated by commas, or one file; None: they
            need none.
    """

    policy: Policy
    policy_source: str
    relay: str | None = None
    relay_access: AccessFiles = field(default_factory=AccessFiles)
    model: str | None = None
    model_sha256: str | None = None
    context_tokens: int | None = None
    sequences: int | None = None
    computing: Computing = field(default_factory=Computing)
    models: ModelsFile | None = None
    currency: Currency | None = None
    audit: str | None = None
    on_premises_key_files: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The command line's flags; None if not given."""

    policy: str | None = None
    relay: str | None = None
    relay_ca: str | None = None
    relay_certificate: str | None = None
    relay_certificate_key: str | None = None
    relay_key_file: str | None = None
    model: str | None = None
    model_sha256: str | None = None
    context_tokens: int | None = None
    sequences: int | None = None
    threads: int | None = None
    kv_type: str | None = None
    flash_attention: str | None = None
    gpu_layers: int | None = None
    answer_seconds: int | None = None
    models: str | None = None
    policy_key: str | None = None
    audit: str | None = None
    on_premises_key_file: str | None = None


def read_config(flags: Flags, environ: Mapping[str, str]) -> ClientConfig:
    """Combine flags and environment; a flag wins.

    Environment: ``CURTILAGE_POLICY`` (a file or a shipped profile's name),
    ``CURTILAGE_POLICY_KEY`` (who must have signed it: a public key in PEM),
    ``CURTILAGE_RELAY`` (an address), ``CURTILAGE_RELAY_CA``,
    ``CURTILAGE_RELAY_CERTIFICATE``, ``CURTILAGE_RELAY_CERTIFICATE_KEY`` and
    ``CURTILAGE_RELAY_KEY_FILE`` (files), ``CURTILAGE_MODEL`` (name or path),
    ``CURTILAGE_MODEL_SHA256``, ``CURTILAGE_CONTEXT_TOKENS``,
    ``CURTILAGE_SEQUENCES``, ``CURTILAGE_THREADS``, ``CURTILAGE_KV_TYPE``,
    ``CURTILAGE_FLASH_ATTENTION``, ``CURTILAGE_GPU_LAYERS``,
    ``CURTILAGE_ANSWER_SECONDS``, ``CURTILAGE_MODELS`` (a file), ``CURTILAGE_AUDIT`` (a
    directory), ``CURTILAGE_ON_PREMISES_KEY_FILE`` (a file).

    Raises:
        ConfigError: the policy or the key file cannot be read, the file of models is
            wrong, or a setting of the local model is not valid.
        PolicyError: the policy is wrong, or not usable on this machine; all
            problems, with lines.
    """
    path = flags.policy or environ.get("CURTILAGE_POLICY")
    policy, source = read_usable_policy(path)
    key = flags.policy_key or environ.get("CURTILAGE_POLICY_KEY")
    models = flags.models or environ.get("CURTILAGE_MODELS")

    def access_file(flag: str | None, name: str) -> Path | None:
        said = flag or environ.get(f"CURTILAGE_RELAY_{name}")
        return Path(said) if said else None

    return ClientConfig(
        policy=policy,
        policy_source=source,
        relay=flags.relay or environ.get("CURTILAGE_RELAY"),
        relay_access=AccessFiles(
            ca=access_file(flags.relay_ca, "CA"),
            certificate=access_file(flags.relay_certificate, "CERTIFICATE"),
            certificate_key=access_file(flags.relay_certificate_key, "CERTIFICATE_KEY"),
            key=access_file(flags.relay_key_file, "KEY_FILE"),
        ),
        model=flags.model or environ.get("CURTILAGE_MODEL"),
        model_sha256=flags.model_sha256 or environ.get("CURTILAGE_MODEL_SHA256"),
        context_tokens=_context_tokens(flags, environ),
        sequences=_number(flags.sequences, environ, "SEQUENCES", 1, MOST_SEQUENCES),
        computing=_computing(flags, environ),
        models=read_models_file(Path(models)) if models else None,
        currency=None if key is None else read_currency(policy, path, Path(key)),
        audit=flags.audit or environ.get("CURTILAGE_AUDIT"),
        on_premises_key_files=(
            flags.on_premises_key_file
            or environ.get("CURTILAGE_ON_PREMISES_KEY_FILE")
            or environ.get("CURTILAGE_HOUSE_KEY_FILE")  # its name in version 0.1
        ),
    )


def _context_tokens(flags: Flags, environ: Mapping[str, str]) -> int | None:
    said = flags.context_tokens
    if said is None:
        text = environ.get("CURTILAGE_CONTEXT_TOKENS")
        if not text:
            return None
        said = int(text) if text.isascii() and text.isdecimal() else -1
    if not LEAST_CONTEXT <= said <= MOST_CONTEXT:
        raise ConfigError(
            f"a context has {LEAST_CONTEXT} to {MOST_CONTEXT} tokens "
            "(--context-tokens, CURTILAGE_CONTEXT_TOKENS)"
        )
    return said


def _computing(flags: Flags, environ: Mapping[str, str]) -> Computing:
    kv_type = _choice(flags.kv_type, environ, "KV_TYPE", KV_TYPES)
    flash = _choice(flags.flash_attention, environ, "FLASH_ATTENTION", FLASH_ATTENTION)
    if kv_type not in {None, "f16"} and flash == "off":
        raise ConfigError(
            f"{kv_type} (--kv-type, CURTILAGE_KV_TYPE) needs flash attention: "
            "--flash-attention auto, or on"
        )
    usual = Computing()
    return Computing(
        threads=_number(flags.threads, environ, "THREADS", 1, MOST_THREADS),
        kv_type=kv_type or usual.kv_type,
        flash_attention=flash or usual.flash_attention,
        gpu_layers=_number(flags.gpu_layers, environ, "GPU_LAYERS", 0, MAX_GPU_LAYERS)
        or 0,
        answer_s=_number(
            flags.answer_seconds, environ, "ANSWER_SECONDS", 1, MOST_ANSWER_S
        )
        or usual.answer_s,
    )


def _number(
    said: int | None, environ: Mapping[str, str], name: str, least: int, most: int
) -> int | None:
    where = _where(name, given=said is not None)
    if said is None:
        text = environ.get(f"CURTILAGE_{name}")
        if not text:
            return None
        said = int(text) if text.isascii() and text.isdecimal() else -1
    if not least <= said <= most:
        raise ConfigError(f"{where} is not {least} to {most}")
    return said


def _choice(
    said: str | None, environ: Mapping[str, str], name: str, choices: Sequence[_Word]
) -> _Word | None:
    where = _where(name, given=bool(said))
    said = said or environ.get(f"CURTILAGE_{name}") or None
    for each in choices:
        if each == said:
            return each
    if said is not None:
        raise ConfigError(f"{where} is not one of {', '.join(choices)}")
    return None


def _where(name: str, *, given: bool) -> str:
    return f"--{name.lower().replace('_', '-')}" if given else f"CURTILAGE_{name}"


def read_policy(path: str | None) -> tuple[Policy, str]:
    """Load a policy file, or a shipped profile.

    Args:
        path: a file; if there is none of this name, a shipped profile's
            name; None is the default profile. Lists that the policy
            names are read from the file's directory, or below it.

    Raises:
        ConfigError: the file cannot be read or is not UTF-8.
        PolicyError: the policy is wrong.
    """
    name = SHIPPED_PROFILE if path is None else path
    if path is None or is_shipped(path):
        source = f"profile {name!r}"
        return load_policy(profile_text(name), source=source), source
    text = read_text(Path(path), MAX_POLICY_BYTES)

    def listed_file(name: str) -> bytes:
        return read_listed(Path(path), name)

    return load_policy(text, source=path, files=listed_file), path


def read_usable_policy(path: str | None) -> tuple[Policy, str]:
    """Load a policy and verify that its detectors can run on this machine.

    For commands that decide by it or put it into force. If one of its patterns or its
    names model cannot be used, every query is kept local, without a visible reason; so
    this is reported at the start.

    Args:
        path: as for ``read_policy``.

    Raises:
        ConfigError: as ``read_policy``.
        PolicyError: as ``read_policy``; or a problem that only appears when patterns
            are compiled, lists read, and the names model looked up.
    """
    policy, source = read_policy(path)
    found = [*_broken_detectors(policy), *_broken_model(policy)]
    found += _broken_recognizers(policy)
    if found:
        # Parsed once more: the tree has line numbers, the policy has none.
        def complain(tree: Tree) -> list[Complaint]:
            return list(as_written(found, tree))

        name = SHIPPED_PROFILE if path is None else path
        shipped = path is None or is_shipped(path)
        text = (
            profile_text(name) if shipped else read_text(Path(name), MAX_POLICY_BYTES)
        )
        read_tree(text, complain, source=policy.source)
    return policy, source


def _broken_detectors(policy: Policy) -> Iterator[Complaint]:
    if not policy.detectors:
        return
    # The only detector code that runs in this process, which has network access, and
    # only with a policy that defines detectors: it builds them, and sees no text.
    from curtilage.client.detection.detectors.policy_detectors import problem_with  # noqa: PLC0415

    indices = {each.id: at for at, each in enumerate(policy.document.detectors.own)}
    for each in policy.detectors:
        key, problem = problem_with(each)
        if problem:
            place = ("detectors", "own", indices[each.id])
            yield (*place, key) if key else place, problem


def _broken_recognizers(policy: Policy) -> Iterator[Complaint]:
    # Only whether they exist: their code runs in the sandbox only.
    for at, (name, package, version) in enumerate(policy.presidio.entry_points):
        place = ("detectors", "presidio", "entry_points", at)
        try:
            installed = distribution(package)
        except PackageNotFoundError:
            yield (*place, "distribution"), f"{package!r} is not installed here"
            continue
        if installed.version != version:
            yield (*place, "version"), f"{installed.version!r} is installed here"
        if len(installed.entry_points.select(group=GROUP, name=name)) != 1:
            yield (*place, "name"), f"{package!r} has none of this name in {GROUP!r}"
    if policy.presidio.recognizers:
        from curtilage.client.detection.detectors.policy_detectors import (  # noqa: PLC0415
            pattern_problem,
        )

        for each in policy.presidio.recognizers:
            if problem := pattern_problem(each):
                yield ("detectors", "presidio", "file"), problem


def patterns_under_deadline(recognizer: str) -> tuple[str, ...]:
    """Return the patterns of a policy's recognizer that RE2 does not support.

    Args:
        recognizer: one of ``policy.presidio.recognizers``.
    """
    from curtilage.client.detection.detectors.policy_detectors import slow_patterns  # noqa: PLC0415

    return slow_patterns(recognizer)


def _broken_model(policy: Policy) -> Iterator[Complaint]:
    ner = policy.document.ner
    if not ner.path:
        return
    if find_spec(ner.engine) is None:
        yield ("ner", "engine"), f"the library {ner.engine!r} is not installed here"
    folder = Path(ner.path)
    if not folder.is_dir():
        yield ("ner", "path"), NO_FOLDER
        return
    try:
        digest = folder_digest(folder)
    except (ConfigError, OSError) as error:
        readable = isinstance(error, ConfigError)
        yield ("ner", "path"), f"the model folder {error}" if readable else "unreadable"
        return
    if digest != ner.sha256:
        yield ("ner", "sha256"), f"the folder's digest is another: {digest}"


def is_shipped(path: str) -> bool:
    """Return whether a policy's path is not a file but a shipped profile's name."""
    return path in PROFILES and not Path(path).exists()


def read_listed(policy: Path, name: str) -> bytes:
    """Read a list that a policy names, from the policy's directory or below.

    Raises:
        OSError: it cannot be read, is too large, or is elsewhere, links
            followed.
    """
    # Links are resolved first: a file elsewhere is not part of the policy, even if a
    # link in its directory points there.
    folder = policy.resolve().parent
    path = (folder / name).resolve()
    if not path.is_relative_to(folder):
        raise PermissionError("outside of the policy's directory")
    with open_ordinary(path) as file:
        data = file.read(MAX_LIST_BYTES + 1)
    if len(data) > MAX_LIST_BYTES:
        raise OSError("too large")
    return data


def read_currency(policy: Policy, path: str | None, key: Path) -> Currency:
    """Read the key that must have signed a policy, and the signature, ``{path}.sig``.

    A signature that is missing or broken is not an error here: as long as it is,
    every query is kept local.

    Raises:
        ConfigError: the key cannot be read.
    """
    try:
        public_key = parse_public_key(read_text(key, KEY_LIMIT_BYTES).encode())
    except SigningError as error:
        raise ConfigError(f"{key}: {error}") from None
    signature: bytes | None = None
    if path is not None and not is_shipped(path):
        signed = Path(f"{path}{SIGNATURE_SUFFIX}")
        with suppress(OSError), open_ordinary(signed) as file:
            signature = file.read(SIGNATURE_LIMIT_BYTES + 1)
    return Currency(
        policy_digest=policy.digest, signature=signature, public_key=public_key
    )
