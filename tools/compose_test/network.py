"""What a container engine changes in this machine's network, saved and put back."""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BRIDGE: Final = "docker0"
DEVICES: Final = Path("/sys/class/net")
FORWARDING: Final = Path("/proc/sys/net/ipv4/ip_forward")
_TABLE: Final = re.compile(r"^\*(\w+)\n(.*?)^COMMIT\n", re.MULTILINE | re.DOTALL)
_CHAIN: Final = re.compile(r"^:(\S+) (\S+)", re.MULTILINE)
_NO_POLICY: Final = "-"  # of a chain that is not built in


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings that an engine changes.

    Attributes:
        rules: as ``iptables-save`` writes them.
        forwarding: of packets, ``0`` or ``1``.
        bridges: names of the virtual switches; an engine leaves its own behind.
    """

    rules: str
    forwarding: str
    bridges: frozenset[str] = frozenset()

    @property
    def effective(self) -> tuple[Mapping[str, frozenset[str]], str, frozenset[str]]:
        """Everything, without counters and tables that do nothing."""
        return effective_rules(self.rules), self.forwarding, self.bridges


def read_settings() -> Settings:
    """Read the present settings.

    Raises:
        OSError: iptables is missing.
    """
    shown = subprocess.run(
        ["iptables-save"],  # noqa: S607 - wherever the distribution put it
        capture_output=True,
        text=True,
        check=True,
    )
    return Settings(
        rules=shown.stdout,
        forwarding=FORWARDING.read_text().strip(),
        bridges=bridges(),
    )


def bridges() -> frozenset[str]:
    """Return the names of this machine's bridges."""
    return frozenset(path.parent.name for path in DEVICES.glob("*/bridge"))


def restore(before: Settings) -> None:
    """Put settings back, and remove the engine's bridges."""
    after = read_settings()
    rules = restoring_rules(before.rules, after.rules)
    subprocess.run(["iptables-restore"], input=rules, text=True, check=True)  # noqa: S607
    for name in sorted(after.bridges - before.bridges):
        subprocess.run(["ip", "link", "del", name], check=True)  # noqa: S607
    FORWARDING.write_text(before.forwarding)


def restoring_rules(before: str, after: str) -> str:
    """Return the input for ``iptables-restore`` that undoes what was added.

    It empties each table that it reads and leaves the others alone, so a table that did
    not exist before must be named too.
    """
    known = dict(_TABLE.findall(before))
    added = [
        f"*{table}\n{_accepting(text)}COMMIT\n"
        for table, text in _TABLE.findall(after)
        if table not in known
    ]
    return before + "".join(added)


def effective_rules(rules: str) -> Mapping[str, frozenset[str]]:
    """Return the rules and policies of each table; those that only accept count not."""
    found: dict[str, frozenset[str]] = {}
    for table, text in _TABLE.findall(rules):
        chains = {
            f":{name} {policy}"
            for name, policy in _CHAIN.findall(text)
            if policy != "ACCEPT"
        }
        lines = {line for line in text.splitlines() if line.startswith("-A")}
        if chains | lines:
            found[table] = frozenset(chains | lines)
    return found


def _accepting(text: str) -> str:
    return "".join(
        f":{name} ACCEPT [0:0]\n"
        for name, policy in _CHAIN.findall(text)
        if policy != _NO_POLICY
    )
