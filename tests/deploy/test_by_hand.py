"""docs/by-hand.md: every command is run as the page shows it, in order."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from curtilage_dev.processes import Process

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "by-hand.md").read_text("utf-8")
BLOCK = re.compile(r"```(sh|text)(?: terminal (\w+))?\n(.*?)```\n", re.DOTALL)
PORTS = ("8080", "8642")
# They install what the test runs with, and lead to it.
BEFORE = ("make setup", 'export PATH="$PWD/.venv/bin:$PATH"')
COMMAND_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A block of commands.

    Attributes:
        commands: as they are written.
        terminal: of which they are the only command, and keep running; or empty.
        shown: what the page says that they print; … is anything.
    """

    commands: str
    terminal: str
    shown: Sequence[str] = ()


def steps() -> list[Step]:
    found: list[Step] = []
    for kind, terminal, text in BLOCK.findall(PAGE):
        if kind == "sh":
            found.append(Step(commands=text, terminal=terminal))
        else:
            last = found.pop()
            lines = text.splitlines()
            found.append(
                Step(commands=last.commands, terminal=last.terminal, shown=lines)
            )
    return found


@dataclass(slots=True, kw_only=True)
class Person:
    """Follows the page in a folder."""

    folder: Path
    ports: Mapping[str, str]
    running: dict[str, Process] = field(default_factory=dict[str, Process])

    @property
    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        home = str(self.folder / "home")
        own = {"HOME": home, "XDG_STATE_HOME": home, "XDG_DATA_HOME": home}
        return {**os.environ, "PATH": path, **own}

    def typed(self, commands: str) -> str:
        """Return the commands with ports of this test's own."""
        for written, port in self.ports.items():
            commands = commands.replace(written, port)
        return re.sub(
            r"(?m)^curtilage serve ",
            f"curtilage serve --port {self.ports['8642']} ",
            commands,
        )

    def start(self, name: str, commands: str) -> Process:
        line = f"cd {self.folder} && exec env {self.typed(commands)}"
        process = Process(
            name,
            ["/bin/bash", "-c", line],
            folder=self.folder,
            environment=self.environment,
        )
        self.running[name] = process
        process.wait_ready()
        return process

    def leave(self) -> None:
        for process in self.running.values():
            process.stop()

    def run(self, commands: str) -> str:
        done = subprocess.run(
            ["/bin/bash", "-euo", "pipefail", "-c", self.typed(commands)],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_S,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
        return done.stdout


def prints(shown: str, output: str) -> bool:
    pattern = ".*".join(map(re.escape, shown.split("…")))
    return re.search(f"^{pattern}\\r?$", output, re.MULTILINE) is not None


def free_ports() -> dict[str, str]:
    from tools.compose_test.layouts import free_port  # noqa: PLC0415

    return {written: str(free_port()) for written in PORTS}


def test_the_page_is_read_whole() -> None:
    read = steps()
    assert [each.terminal for each in read if each.terminal] == [
        *("emulator", "enclave", "relay", "client")
    ]
    assert len(read) == PAGE.count("```sh")
    assert sum(len(each.shown) for each in read) > 10
    first = read[0].commands.splitlines()
    assert tuple(first) == BEFORE


def test_a_line_that_is_not_printed_is_seen() -> None:
    assert prints("x-route: …", "a\nx-route: enclave\n")
    assert not prints("x-route: local", "a\nx-route: enclave\n")


def test_a_new_user_gets_there(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "dev").symlink_to(ROOT / "dev")
    person = Person(folder=tmp_path, ports=free_ports())
    with ExitStack() as ends:
        ends.callback(person.leave)
        asked = ""
        for step in steps()[1:]:
            if step.terminal:
                person.start(step.terminal, step.commands)
                continue
            output = person.run(step.commands)
            missing = [line for line in step.shown if not prints(line, output)]
            assert missing == [], f"{step.commands}\n{output}"
            if "deploy init" in step.commands:
                use_port(tmp_path / "curtilage-processes", person.ports["8080"])
            if "mile" in step.commands:
                asked = step.commands
        assert asked
        # The page's last paragraph.
        person.running["enclave"].send(signal.SIGINT)
        person.running["enclave"].wait(COMMAND_S)
        assert "x-curtilage-route: local" in person.run(asked)


def use_port(folder: Path, port: str) -> None:
    """Change the relay's port, as a user would whose port is taken."""
    path = folder / "relay.toml"
    path.write_text(path.read_text("utf-8").replace("8080", port), "utf-8")
