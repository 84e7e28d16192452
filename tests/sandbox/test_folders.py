"""The folders and devices that a confined process sees."""

from pathlib import Path

from curtilage.sandbox.folders import gpus


def test_the_devices_of_gpus_are_found_and_no_others(tmp_path: Path) -> None:
    wanted = ("nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm", "kfd", "dri/renderD128")
    others = ("null", "sda", "tty", "mem", "nvidia-modeset", "dri/card0")
    for name in (*wanted, *others):
        path = tmp_path / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    bus = tmp_path / "sys/devices/pci0000:00"
    bus.mkdir(parents=True)
    devices, read = gpus(tmp_path)
    assert {str(each.relative_to(tmp_path / "dev")) for each in devices} == {*wanted}
    assert bus in read


def test_a_machine_without_gpus_has_no_devices(tmp_path: Path) -> None:
    assert gpus(tmp_path)[0] == ()
