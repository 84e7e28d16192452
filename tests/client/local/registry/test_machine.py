from pathlib import Path

import pytest

from curtilage.client.local.registry.machine import (
    Machine,
    free_room,
    on_battery,
)
from curtilage.inference.memory import available_memory

KIB, MIB = 1024, 1024 * 1024


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
    return tmp_path


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def test_memory_is_what_the_kernel_says_is_available(root: Path) -> None:
    assert available_memory(root) == 2 * MIB


def test_a_containers_limit_counts_where_it_is_less(root: Path) -> None:
    write(root / "proc/self/cgroup", "1:cpu:/x\n0::/some/job\n")
    group = root / "sys/fs/cgroup/some/job"
    write(group / "memory.max", f"{MIB}\n")
    write(group / "memory.current", f"{900 * KIB}\n")
    write(group / "memory.stat", f"anon 1\ninactive_file {100 * KIB}\n")
    assert available_memory(root) == (1024 - 900 + 100) * KIB
    write(group / "memory.current", f"{5 * MIB}\n")
    assert available_memory(root) == 0
    write(group / "memory.max", "max\n")
    assert available_memory(root) == 2 * MIB


@pytest.mark.parametrize(
    ("groups", "place"),
    [
        ("4:cpu:/x\n3:memory:/some/job\n0::/y\n", "some/job"),
        ("5:cpu,memory:/some/job\n", "some/job"),
        # In a container, the path on the host is not mounted.
        ("3:memory:/docker/4f\n1:name=systemd:/docker/4f\n", ""),
    ],
    ids=["below", "two controllers", "container"],
)
def test_a_limit_of_version_1_counts_where_it_is_less(
    root: Path, groups: str, place: str
) -> None:
    write(root / "proc/self/cgroup", groups)
    group = root / "sys/fs/cgroup/memory" / place
    write(group / "memory.usage_in_bytes", f"{900 * KIB}\n")
    stat = f"cache 1\nhierarchical_memory_limit {{}}\ntotal_inactive_file {100 * KIB}\n"
    write(group / "memory.stat", stat.format(MIB))
    assert available_memory(root) == (1024 - 900 + 100) * KIB
    write(group / "memory.usage_in_bytes", f"{5 * MIB}\n")
    assert available_memory(root) == 0
    write(group / "memory.stat", stat.format(2**63 - 4096))
    assert available_memory(root) == 2 * MIB


@pytest.mark.parametrize("meminfo", ["", "MemAvailable: much\n", "MemFree: 7 kB\n"])
def test_memory_that_is_not_reported_is_unknown(tmp_path: Path, meminfo: str) -> None:
    write(tmp_path / "proc/meminfo", meminfo)
    assert available_memory(tmp_path) is None


def test_room_is_that_of_the_disk_where_the_folder_will_be(tmp_path: Path) -> None:
    room = free_room(tmp_path / "not" / "yet")
    assert room is not None
    assert room > 0


@pytest.mark.parametrize(
    ("uevent", "metered"),
    [("DEVTYPE=wwan\nINTERFACE=net0\n", True), ("DEVTYPE=wlan\n", None), ("", None)],
    ids=["mobile", "wireless", "wired"],
)
def test_a_mobile_network_is_metered_and_any_other_unknown(
    root: Path, uevent: str, metered: bool | None
) -> None:
    route = "Iface\tDestination\tGateway\nlan0\t0000A8C0\t0\nnet0\t00000000\t0\n"
    write(root / "proc/net/route", route)
    write(root / "sys/class/net/net0/uevent", uevent)
    assert Machine.read(root, root=root).metered is metered


def test_a_machine_that_reports_nothing_is_unknown(tmp_path: Path) -> None:
    machine = Machine.read(tmp_path, root=tmp_path)
    assert (machine.memory_bytes, machine.metered) == (None, None)
    assert machine.cpus >= 1


@pytest.mark.parametrize(
    ("online", "drains"), [("1", False), ("0", True)], ids=["plugged in", "not"]
)
def test_a_battery_is_emptied_unless_something_is_plugged_in(
    tmp_path: Path, online: str, drains: bool
) -> None:
    supplies = tmp_path / "sys/class/power_supply"
    write(supplies / "BAT0/type", "Battery\n")
    write(supplies / "AC/type", "Mains\n")
    write(supplies / "AC/online", f"{online}\n")
    assert on_battery(tmp_path) is drains


def test_without_a_battery_the_state_is_unknown(tmp_path: Path) -> None:
    assert on_battery(tmp_path) is None
    write(tmp_path / "sys/class/power_supply/AC/type", "Mains\n")
    assert on_battery(tmp_path) is None
