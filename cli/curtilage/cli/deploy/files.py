"""The files that ``curtilage deploy init`` writes, and which of them it leaves alone.

A private key that exists is never replaced, and neither is what an operator may have
edited, unless they ask. What follows from other files is written again.
"""

import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from importlib import resources
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from curtilage.client.errors import ConfigError
from curtilage.transparency.files import (
    MAX_KEY_BYTES,
    PRIVATE_FILE,
    PUBLIC_FILE,
    create_file,
    make_folder,
    read_bounded,
    replace_file,
)

_LONGEST_COMMON_NAME: Final = 64  # RFC 5280, ub-common-name
_FOR_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_CHECKOUT: Final = Path(__file__).resolve().parents[4]


class Kept(Enum):
    """What becomes of a file that exists.

    Attributes:
        ALWAYS: it stays, whatever the caller asks for: it is, or holds, a key.
        UNLESS_ASKED: it stays, unless ``--replace`` is given.
        NEVER: it is written each time, since it follows from other files.
    """

    ALWAYS = 1
    UNLESS_ASKED = 2
    NEVER = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of a deployment.

    Attributes:
        path: where.
        what: what it is, in a few words.
        content: makes it; called only if it is written.
        kept: see there.
        mode: of a new file.
    """

    path: Path
    what: str
    content: Callable[[], bytes]
    kept: Kept = Kept.UNLESS_ASKED
    mode: int = PUBLIC_FILE


def text_file(path: Path, what: str, text: str, kept: Kept = Kept.UNLESS_ASKED) -> File:
    """Return a file with this text."""
    return File(path=path, what=what, content=text.encode, kept=kept)


def write_files(
    files: Iterable[File], *, replace: bool, dry_run: bool
) -> Iterator[str]:
    """Write the files in their order, and yield a line for each.

    Args:
        files: see there.
        replace: write again what an operator may have edited.
        dry_run: write nothing.

    Raises:
        FileError: one cannot be written.
        ConfigError: a private one that exists is open to others.
    """
    for file in files:
        exists = file.path.exists() or file.path.is_symlink()
        kept = exists and (
            file.kept is Kept.ALWAYS or (file.kept is Kept.UNLESS_ASKED and not replace)
        )
        if kept:
            if file.mode == PRIVATE_FILE:
                _require_private(file.path)
            hint = "" if file.kept is Kept.ALWAYS else " (--replace writes it again)"
            yield f"{file.path}: kept{hint}"
            continue
        if not dry_run:
            _write(file)
        would = "would be written: " if dry_run else ""
        private = ", mode 0600" if file.mode == PRIVATE_FILE else ""
        yield f"{file.path}: {would}{file.what}{private}"


def shipped(name: str) -> bytes:
    """Return a compose file, or the filter of system calls that it names.

    Raises:
        ConfigError: this installation lacks it.
    """
    # In the wheel they are next to this module, in a checkout below deploy/.
    packaged = resources.files("curtilage.cli.deploy") / "compose" / name
    if packaged.is_file():
        return packaged.read_bytes()
    path = _CHECKOUT / "deploy" / "compose" / name
    if not path.is_file():
        raise ConfigError(f"{name}: neither the package nor a checkout has it")
    return path.read_bytes()


def private_key() -> bytes:
    """Return a new private key for TLS: ECDSA, P-256, PEM without a password."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )


def certificate_request(key: Path, host: str) -> bytes:
    """Return the request for a certificate of this host, for an authority to sign.

    Args:
        key: the private key's file.
        host: a name.

    Raises:
        FileError: the file cannot be read.
        ConfigError: it holds no such key.
    """
    try:
        private = load_pem_private_key(read_bounded(key, MAX_KEY_BYTES), password=None)
    except (ValueError, TypeError):
        raise ConfigError(f"{key}: not a private key in PEM") from None
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise ConfigError(
            f"{key}: not a key that this command made; make the request with the "
            "program that made the key"
        )
    # Clients read the alternative name; some authorities insist on this one as well.
    subject: list[x509.NameAttribute[str]] = []
    if len(host) <= _LONGEST_COMMON_NAME:
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, host))
    made = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name(subject))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False
        )
        .sign(private, hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM)


def _write(file: File) -> None:
    make_folder(file.path.parent)
    if file.kept is Kept.ALWAYS:
        # It fails if another process made the file meanwhile.
        create_file(file.path, file.content(), file.mode)
    else:
        replace_file(file.path, file.content(), file.mode)


def _require_private(path: Path) -> None:
    """Refuse a key that other accounts can read: they may have it already."""
    try:
        mode = path.stat().st_mode
    except OSError as failure:
        raise ConfigError(f"{path}: {failure.strerror}") from None
    if mode & _FOR_OTHERS:
        raise ConfigError(
            f"{path}: other accounts can read this key (chmod 600 it, or replace it)"
        )
