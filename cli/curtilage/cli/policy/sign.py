"""``curtilage policy keygen``, ``sign`` and ``verify``: signatures of policies."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from curtilage.cli.declared import Arguments
from curtilage.cli.options import file_errors
from curtilage.cli.terminal import DONE, REFUSED, err, out, out_json, time_text
from curtilage.client.config import (
    SIGNATURE_SUFFIX,
    read_currency,
    read_policy,
    read_usable_policy,
)
from curtilage.client.errors import ConfigError, UsageError
from curtilage.policy.signing import (
    KEY_LIMIT_BYTES,
    PrivateKey,
    SigningError,
    generate_key,
    key_id,
    parse_private_key,
    private_pem,
    public_bytes,
    public_pem,
    sign_policy,
)

PRIVATE_MODE: Final = 0o600
PUBLIC_MODE: Final = 0o644

MAX_DAYS: Final = 3660


def run_keygen(arguments: Arguments) -> int:
    """Make a key pair; exit 2 if a file already exists."""
    private = Path(arguments.file)
    public = private.with_suffix(".pub.pem")
    # Check both before writing either: half of a pair is useless.
    for path in (private, public):
        if path.exists():
            raise ConfigError(f"{path}: already exists")
    key = generate_key()
    _write_new(private, private_pem(key), PRIVATE_MODE)
    _write_new(public, public_pem(key), PUBLIC_MODE)
    out(f"{private}: private key; it can put policies in force")
    out(f"{public}: public key {key_id(public_bytes(key))}")
    return DONE


def run_sign(arguments: Arguments) -> int:
    """Sign a policy; exit 2 if the policy or the key is invalid."""
    # A signature cannot be taken back: its end is what bounds the use of a policy that
    # was replaced.
    if not 1 <= arguments.valid_days <= MAX_DAYS:
        raise UsageError(f"--valid-days must be 1 to {MAX_DAYS}")
    path = _existing(arguments.file)
    # A policy that a client cannot load must not be put in force.
    policy, _ = read_usable_policy(arguments.file)
    key = read_private_key(arguments.key)
    # Whole seconds, as in the signature, so that the printed times are the signed ones.
    now = datetime.now(UTC).replace(microsecond=0)
    until = now + timedelta(days=arguments.valid_days)
    signed = sign_policy(
        policy.digest,
        key,
        not_before=int(now.timestamp()),
        not_after=int(until.timestamp()),
    )
    replace_file(signature_path(path), signed.encode())
    out(f"{signature_path(path)}: signed by key {signed.key_id}")
    out(f"  policy  {policy.digest}")
    out(f"  valid   {_iso(now)} to {_iso(until)}")
    return DONE


def run_verify(arguments: Arguments) -> int:
    """Verify; exit 1 if the policy is not current."""
    path = _existing(arguments.file)
    policy, _ = read_policy(arguments.file)
    currency = read_currency(policy, arguments.file, Path(arguments.key))
    now = datetime.now(UTC)
    problem, span = currency.problem(now), currency.span()
    if arguments.json:
        out_json(
            {
                "current": problem is None,
                "problem": problem,
                "digest": policy.digest,
                "key": key_id(currency.public_key),
                "valid_from": None if span is None else time_text(span[0]),
                "valid_until": None if span is None else time_text(span[1]),
            }
        )
    else:
        out(f"{path}: {problem or 'signed and current'}")
        out(f"  policy  {policy.digest}")
        out(f"  key     {key_id(currency.public_key)}")
        if span is not None:
            # For an invalid signature these are only the file's claims.
            out(f"  valid   {_iso(span[0])} to {_iso(span[1])}")
        if problem is None and (warning := currency.warning(now)) is not None:
            err(f"warning: {warning}")
    return DONE if problem is None else REFUSED


def read_private_key(name: str) -> PrivateKey:
    """Read a private key's file.

    Raises:
        ConfigError: it cannot be read, or holds no such key.
    """
    path = Path(name)
    try:
        with file_errors(path), path.open("rb") as file:
            # One byte more than the limit, to detect a longer file.
            return parse_private_key(file.read(KEY_LIMIT_BYTES + 1))
    except SigningError as error:
        raise ConfigError(f"{name}: {error}") from None


def signature_path(policy_path: Path) -> Path:
    """Return the path of a policy file's signature."""
    return policy_path.with_name(policy_path.name + SIGNATURE_SUFFIX)


def _existing(name: str) -> Path:
    path = Path(name)
    if not path.is_file():
        raise ConfigError(f"{name}: no such file; only a policy file has a signature")
    return path


def _write_new(path: Path, data: bytes, mode: int) -> None:
    with file_errors(path):
        # Never overwrite: an existing file may be the key of policies in force.
        # The mode is set when the file is created: a later ``chmod`` would leave a
        # moment in which others can read the key.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(data)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file atomically: a server may be reading the old one."""
    new = path.with_name(path.name + ".new")
    with file_errors(path):
        # A new file next to it, since a rename is atomic only within one file system.
        new.write_bytes(data)
        new.replace(path)


def _iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")
