"""The gateway's file: where it listens, its certificate, and whose keys it accepts.

TOML. A path is relative to the file's folder::

    listen = "0.0.0.0:8443"
    names = ["curtilage.ward.example"]
    keys = ["letters:SALT:DIGEST", "triage:SALT:DIGEST"]

    [tls]
    certificate = "/run/secrets/gateway.crt"
    key = "/run/secrets/gateway.key"

    [limits]
    in_progress = 32

``curtilage gateway make-key NAME`` makes a row of ``keys``.
"""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from curtilage.client.conversation.kept import MAX_CALLERS
from curtilage.client.endpoint.keys import A_NAME, KeyRecord, parse_record
from curtilage.client.errors import ConfigError
from curtilage.client.system.tls import is_loopback, is_numeric
from curtilage.client.system.toml_tables import Tables, read_tree

MAX_FILE_BYTES: Final = 1 << 20
MAX_APPLICATIONS: Final = MAX_CALLERS - 4
"""Each needs a memory of conversations of its own; the others are this process's."""
MAX_KEYS_OF_ONE: Final = 4
"""Each is compared when one is: a name must not make that take long."""
MAX_NAMES: Final = 64
MAX_PORT: Final = 65535
MOST_IN_PROGRESS: Final = 512
IN_PROGRESS: Final = 32
_LISTEN: Final = re.compile(
    r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([0-9.]{7,15})):([0-9]{1,5})"
)
_NAME: Final = re.compile(
    r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSFiles:
    """The gateway's certificate.

    Attributes:
        certificate: PEM, with its chain.
        key: PEM, its private key; a secret.
    """

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayFile:
    """What a gateway's file says.

    Attributes:
        path: of the file.
        host: a numeric address to listen on.
        port: 0 takes a free one.
        names: that ``Host`` may give, in lower case and without a port.
        records: of the keys.
        tls: None: HTTP, on loopback only, with a proxy in front.
        in_progress: requests of one application at the same time.
    """

    path: Path
    host: str
    port: int
    names: frozenset[str]
    records: tuple[KeyRecord, ...] = ()
    tls: TLSFiles | None = None
    in_progress: int = IN_PROGRESS


def read_gateway_file(path: Path) -> GatewayFile:
    """Read a gateway's file.

    Raises:
        ConfigError: it cannot be read, or is wrong; says everything that is.
    """
    tree = read_tree(path, MAX_FILE_BYTES)
    reader = _Reader(path.absolute().parent)
    host, port = reader.listen(tree)
    names = reader.names(tree)
    records = reader.records(tree)
    tls = reader.tls(tree)
    in_progress = reader.in_progress(tree)
    reader.nothing_else(tree)
    if tls is None and not is_loopback(host) and not reader.problems:
        reader.problems.append(
            f"without [tls] it may only listen on loopback, and {host} is not: anyone "
            "on the network could read the questions and the keys"
        )
    if reader.problems:
        raise ConfigError("\n".join(f"{path}: {each}" for each in reader.problems))
    return GatewayFile(
        path=path,
        host=host,
        port=port,
        names=names,
        records=records,
        tls=tls,
        in_progress=in_progress,
    )


class _Reader(Tables):
    """Takes the values of this file."""

    def listen(self, tree: dict[str, Any]) -> tuple[str, int]:
        value = tree.pop("listen", None)
        match = _LISTEN.fullmatch(value) if isinstance(value, str) else None
        if match is not None:
            host, port = match[1] or match[2], int(match[3])
            # Not a name, which could be looked up as another address at each start.
            if port <= MAX_PORT and is_numeric(host):
                return host, port
        self.problems.append(
            'listen is not a numeric address and a port, such as "0.0.0.0:8443"'
        )
        return "", 0

    def names(self, tree: dict[str, Any]) -> frozenset[str]:
        names = self._texts(tree, "names")
        if not 0 < len(names) <= MAX_NAMES:
            self.problems.append(
                f"names lists 1 to {MAX_NAMES} names by which applications call this "
                "gateway"
            )
        if wrong := [each for each in names if _NAME.fullmatch(each) is None]:
            self.problems.append(
                f"names: {wrong[0]!r} is not a host's name in lower case, without a "
                "port"
            )
        return frozenset(names)

    def records(self, tree: dict[str, Any]) -> tuple[KeyRecord, ...]:
        rows = self._texts(tree, "keys")
        found = [parse_record(each) for each in rows]
        records = tuple(each for each in found if each is not None)
        if len(records) < len(rows):
            # By its number: a key that was put here by mistake must not be shown.
            self.problems.append(
                f"keys: row {found.index(None) + 1} is not NAME:SALT:DIGEST as printed "
                f"by `curtilage gateway make-key NAME`, with a name of {A_NAME}"
            )
        counted = Counter(each.name for each in records)
        if len(counted) > MAX_APPLICATIONS:
            self.problems.append(f"keys: more than {MAX_APPLICATIONS} applications")
        for name, count in counted.items():
            if count > MAX_KEYS_OF_ONE:
                self.problems.append(f"keys: {name} has more than {MAX_KEYS_OF_ONE}")
        return records

    def tls(self, tree: dict[str, Any]) -> TLSFiles | None:
        if "tls" not in tree:
            return None
        table = self.table(tree, "tls")
        certificate = self._path(table, "tls.certificate")
        key = self._path(table, "tls.key")
        self.nothing_else(table, "tls.")
        return TLSFiles(certificate=certificate, key=key)

    def in_progress(self, tree: dict[str, Any]) -> int:
        table = self.table(tree, "limits")
        value = table.pop("in_progress", IN_PROGRESS)
        self.nothing_else(table, "limits.")
        # ``type``: in Python, True is an int.
        if type(value) is int and 0 < value <= MOST_IN_PROGRESS:
            return value
        self.problems.append(
            f"limits.in_progress is not a whole number from 1 to {MOST_IN_PROGRESS}"
        )
        return IN_PROGRESS

    def nothing_else(self, table: dict[str, Any], where: str = "") -> None:
        # An unknown one may be a limit or a name that is misspelt.
        self.problems += [f"{where}{name} is unknown" for name in sorted(table)]

    def _texts(self, tree: dict[str, Any], name: str) -> list[str]:
        value: object = tree.pop(name, [])
        texts = cast("list[object]", value) if isinstance(value, list) else [None]
        found = [each for each in texts if isinstance(each, str)]
        if len(found) == len(texts):
            return found
        self.problems.append(f"{name} is not a list of texts")
        return []

    def _path(self, table: dict[str, Any], where: str) -> Path:
        value = table.pop(where.partition(".")[2], None)
        if isinstance(value, str) and value and "\0" not in value:
            return self.folder / value
        self.problems.append(f"{where} is not a path")
        return self.folder
