"""Flags and environment, read once; the rest of the client never reads them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from curtilage.client.errors import ConfigError
from curtilage.policy.load import load_policy, profile_text
from curtilage.policy.model import Policy

MAX_POLICY_BYTES = 1024 * 1024
SHIPPED_PROFILE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """What a client is told from outside.

    Attributes:
        policy: the policy in force.
        policy_source: its file, or the shipped profile's name.
        relay: the relay's address, or None: then everything stays here.
        model: name or path of the local model; None is the embedded one.
        model_sha256: its digest, required for a path.
    """

    policy: Policy
    policy_source: str
    relay: str | None = None
    model: str | None = None
    model_sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What the command line said; None where it said nothing."""

    policy: str | None = None
    relay: str | None = None
    model: str | None = None
    model_sha256: str | None = None


def read_config(flags: Flags, environ: Mapping[str, str]) -> ClientConfig:
    """Join flags and environment; a flag wins.

    Environment: ``CURTILAGE_POLICY`` (a file), ``CURTILAGE_RELAY`` (an
    address), ``CURTILAGE_MODEL`` (name or path), ``CURTILAGE_MODEL_SHA256``.

    Raises:
        ConfigError: the policy file cannot be read.
        PolicyError: the policy is wrong; all problems, with lines.
    """
    path = flags.policy or environ.get("CURTILAGE_POLICY")
    policy, source = read_policy(path)
    return ClientConfig(
        policy=policy,
        policy_source=source,
        relay=flags.relay or environ.get("CURTILAGE_RELAY"),
        model=flags.model or environ.get("CURTILAGE_MODEL"),
        model_sha256=flags.model_sha256 or environ.get("CURTILAGE_MODEL_SHA256"),
    )


def read_policy(path: str | None) -> tuple[Policy, str]:
    """Load a policy file, or the shipped default profile for None.

    Raises:
        ConfigError: the file cannot be read or is not UTF-8.
        PolicyError: the policy is wrong.
    """
    if path is None:
        text, source = profile_text(SHIPPED_PROFILE), f"profile {SHIPPED_PROFILE!r}"
    else:
        text, source = read_text(Path(path), MAX_POLICY_BYTES), path
    return load_policy(text, source=source), source


def read_text(path: Path, limit_bytes: int) -> str:
    """Read a small text file.

    Raises:
        ConfigError: says which file and why.
    """
    try:
        with path.open("rb") as file:
            data = file.read(limit_bytes + 1)
    except OSError as failure:
        raise ConfigError(f"{path}: {failure.strerror}") from None
    if len(data) > limit_bytes:
        raise ConfigError(f"{path}: larger than {limit_bytes} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None
