"""Assembles the guest's root: Python, libraries, our code, three users.

Files are selected by an allow-list. There is no shell, no package manager, no password,
and no listener except those in ``guest.json``.
"""

import contextlib
import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.image.debs import add_package
from deploy.image.errors import ImageError
from deploy.image.kernel import Kernel
from deploy.image.options import (
    EMBEDDED,
    ENDORSEMENTS,
    NO_MODEL,
    PROVIDERS,
    ROOT,
    Options,
)
from deploy.image.tree import Tree
from deploy.image.wheels import SITE, add_wheel

from curtilage.attest.evidence import Tee
from curtilage.enclave_server.config import EnclaveConfig, parse_config
from curtilage.enclave_server.errors import ConfigError
from curtilage.sandbox.parent import FORGETTING

GUEST: Final = Path(__file__).resolve().parent / "guest"
PYTHON: Final = "/usr/bin/python3.11"
# -s, -B, -P: no user site, no bytecode, no working directory on the path.
PYTHON_OPTIONS: Final = ("-s", "-B", "-P")
CONFIG: Final = "/etc/curtilage/enclave.toml"
GUEST_FILE: Final = "/etc/curtilage/guest.json"
SERVER_SOCKET: Final = "/run/enclave/gateway.sock"
EVIDENCE_SOCKET: Final = "/run/evidence/evidence.sock"
IDENTIFY_SOCKET: Final = "/run/identify/identify.sock"
INTAKE: Final = "/run/curtilage"
MODULES: Final = "/usr/lib/curtilage/modules"
MODELS: Final = "/opt/models"
CAP_DAC_OVERRIDE: Final = 1
EMULATED_MEASUREMENT: Final = hashlib.sha384(b"emulated launch measurement").hexdigest()

USERS: Final = {"door": 64010, "evidence": 64011, "serve": 64012}
# The parts of Curtilage that run elsewhere: three parties, and the stapler.
OTHER_PARTIES: Final = (
    "curtilage/cli",
    "curtilage/client",
    "curtilage/lab",
    "curtilage/policy",
    "curtilage/relay",
    "curtilage/transparency",
    "curtilage/enclave_server/stapler",
)

# The engine's wheel contains its libraries twice, and headers; Python loads the others.
ENGINE_TWICE: Final = ("lib/", "include/", "bin/")

# In the order of loading; the kernel's metadata gives their dependencies.
TEE_MODULES: Final = ("configfs", "tsm", "sev-guest", "tdx-guest")
NETWORK_MODULES: Final = ("virtio_net",)
VSOCK_MODULES: Final = ("vmw_vsock_virtio_transport",)

# The complete environment of the services. Freed memory is overwritten, in Python and
# in C; that costs some bandwidth, and leaves no text of earlier requests behind.
ENVIRONMENT: Final = {
    "PATH": "/nonexistent",
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    **FORGETTING,
    "GOMP_SPINCOUNT": "0",
    "OMP_WAIT_POLICY": "passive",
    "GGML_NO_BACKTRACE": "1",
}

_LIBRARY: Final = re.compile(r"(usr/)?lib/x86_64-linux-gnu/[^/]+\.so(\.[0-9.]+)?")
_LEFT_OUT: Final = re.compile(
    r"usr/lib/python3\.11/(test|idlelib|tkinter|turtledemo|ensurepip|lib2to3"
    r"|pydoc_data|distutils|sitecustomize\.py|__pycache__|.*/__pycache__)(/|$)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """All inputs of an image, as verified files.

    Attributes:
        packages: Debian packages for the root.
        kernel: the kernel, read.
        wheels: Python packages from the index.
        own: our own wheel.
        build_id: the commit, and whether the tree differed from it.
    """

    packages: Sequence[Path]
    kernel: Kernel
    wheels: Sequence[Path]
    own: Path
    build_id: str


def make_root(options: Options, inputs: Inputs) -> Tree:
    """Return the guest's root.

    Raises:
        ImageError: the configuration does not fit the image.
    """
    tree = Tree()
    for package in inputs.packages:
        add_package(tree, package, is_wanted)
    for wheel in inputs.wheels:
        add_wheel(tree, wheel)
    add_wheel(tree, options.engine, skip=ENGINE_TWICE)
    add_wheel(tree, inputs.own, skip=OTHER_PARTIES)
    for name in ("proc", "sys", "dev", "run", "etc", "opt", "usr/bin"):
        tree.add_directory(name)
    _add_names(tree, options, inputs.build_id)
    _add_guest(tree, options, inputs.kernel)
    if options.development:
        folder = ROOT / "dev" / "curtilage_dev"
        for path in sorted(folder.rglob("*.py")):
            inside = path.relative_to(folder.parent).as_posix()
            tree.add_file(f"{SITE}/{inside}", path.read_bytes())
    for place, source in options.files:
        tree.add_file(place, source.read_bytes())
    if options.model not in {EMBEDDED, NO_MODEL}:
        path = Path(options.model)
        tree.add_file(f"{MODELS}/{path.name}", path.read_bytes())
    # Last: the files that it names must be among all that was added.
    _add_config(tree, options)
    return tree


def is_wanted(path: str) -> bool:
    """Return whether a file of a Debian package belongs into the image."""
    if path.startswith("usr/lib/python3.11/"):
        return _LEFT_OUT.match(path) is None
    fixed = {"usr/bin/python3.11", "lib64/ld-linux-x86-64.so.2"}
    return path in fixed or _LIBRARY.fullmatch(path) is not None


def os_release(options: Options, build_id: str) -> str:
    """Return the image's os-release(5), which PCR 11 covers too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    variant = "development" if options.development else "production"
    return (
        "ID=curtilage-enclave\n"
        'PRETTY_NAME="Curtilage enclave"\n'
        f"VERSION_ID={project['version']}\n"
        f"BUILD_ID={build_id}\n"
        f"VARIANT_ID={variant}\n"
    )


def _add_names(tree: Tree, options: Options, build_id: str) -> None:
    users = [("root", 0), *USERS.items()]
    nowhere = "/nonexistent:/nonexistent"
    lines = [f"{name}:x:{number}:{number}::{nowhere}\n" for name, number in users]
    tree.add_file("etc/passwd", "".join(lines).encode())
    groups = [f"{name}:x:{number}:\n" for name, number in users]
    tree.add_file("etc/group", "".join(groups).encode())
    tree.add_file("etc/hosts", b"127.0.0.1 localhost\n")
    tree.add_file("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files\n")
    tree.add_file("etc/os-release", os_release(options, build_id).encode())


def _add_guest(tree: Tree, options: Options, kernel: Kernel) -> None:
    # Isolated from everything but the standard library; no site packages.
    first_line = f"#!{PYTHON} -IBS\n".encode()
    init = (GUEST / "init.py").read_bytes()
    tree.add_file("init", first_line + init, program=True)
    tree.add_file("usr/lib/curtilage/door.py", (GUEST / "door.py").read_bytes())
    # The emulator refuses to start where a real TEE's interface exists.
    names = [] if options.development else [*TEE_MODULES]
    names += NETWORK_MODULES if options.address else ()
    names += VSOCK_MODULES if options.vsock else ()
    modules = kernel.modules(names)
    paths = [f"{MODULES}/{name}.ko" for name, _ in modules]
    for path, (_, content) in zip(paths, modules, strict=True):
        tree.add_file(path, content)
    guest = json.dumps(describe_guest(options, paths), indent=1, sort_keys=True)
    tree.add_file(GUEST_FILE, f"{guest}\n".encode())


def describe_guest(options: Options, modules: Sequence[str]) -> Mapping[str, object]:
    """Return the content of ``guest.json``, which ``guest/init.py`` reads."""
    endorsements = ENDORSEMENTS[options.tee]
    release = ("manifest.json", "proof.txt", "checkpoint.txt")
    return {
        "development": options.development,
        "modules": list(modules),
        "address": options.address,
        "gateway": options.gateway,
        "environment": ENVIRONMENT,
        "needed": [f"release/{name}" for name in release]
        + [f"endorsements/{name}" for name in endorsements],
        "services": [
            _service("door", _door(options)),
            _service("evidence", _evidence(options)),
            _service("serve", ["-m", "curtilage.enclave_server", "--config", CONFIG]),
        ],
    }


def _service(name: str, command: Sequence[str]) -> Mapping[str, object]:
    # Files of a new configfs entry belong to root, not to its creator.
    needs_configfs = name == "evidence" and "tsm" in command
    return {
        "name": name,
        "user": USERS[name],
        "command": [PYTHON, *PYTHON_OPTIONS, *command],
        "capability": CAP_DAC_OVERRIDE if needs_configfs else None,
    }


def _door(options: Options) -> list[str]:
    command = ["/usr/lib/curtilage/door.py", "--server", SERVER_SOCKET]
    command += ["--folder", INTAKE]
    command += ["--vsock"] if options.vsock else []
    if options.address:
        command += ["--tcp", options.address.partition("/")[0]]
    command += [] if options.development else ["--identify", IDENTIFY_SOCKET]
    return command


def _evidence(options: Options) -> list[str]:
    if options.development:
        command = ["-m", "curtilage_dev.emulator", "--state", "/run/evidence"]
        command += ["--tee", options.tee, "--measurement", EMULATED_MEASUREMENT]
        return [*command, "--listen", f"unix:{EVIDENCE_SOCKET}"]
    command = ["-m", "curtilage.enclave_server", "evidence"]
    command += ["--provider", PROVIDERS[options.tee]]
    command += ["--endorsements", f"{INTAKE}/endorsements"]
    command += ["--identify", f"unix:{IDENTIFY_SOCKET}"]
    return [*command, "--listen", f"unix:{EVIDENCE_SOCKET}"]


def emulated_registers(tee: str) -> Mapping[str, str]:
    """Return the registers that the image's emulator will claim."""
    with development_code():
        from curtilage_dev.emulated.machines import registers_of  # noqa: PLC0415
    return registers_of(Tee(tee), bytes.fromhex(EMULATED_MEASUREMENT))


@contextlib.contextmanager
def development_code() -> Generator[None]:
    """Make development modules importable; they exist only in the source tree."""
    folder = str(ROOT / "dev")
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _add_config(tree: Tree, options: Options) -> None:
    text = options.config.read_text("utf-8")
    try:
        config = parse_config(text)
    except ConfigError as error:
        raise ImageError("; ".join(error.problems)) from None
    if problems := list(_misfits(config, tree, options)):
        raise ImageError(f"{options.config.name}: " + "; ".join(problems))
    tree.add_file(CONFIG, text.encode())


def _misfits(config: EnclaveConfig, tree: Tree, options: Options) -> list[str]:
    """Return the settings that could not work inside this image."""
    places: list[tuple[str, object, str]] = [
        ("listen", config.listen.path, SERVER_SOCKET),
        ("evidence", config.evidence, EVIDENCE_SOCKET),
        ("release", config.release, f"{INTAKE}/release"),
    ]
    problems = [
        f'"{key}" must lead to {wanted}'
        for key, found, wanted in places
        if str(found) != wanted
    ]
    expected = "development" if options.development else "production"
    if config.environment.value != expected:
        problems.append(f'"environment" must be "{expected}" for {options.tee}')
    if config.counters is not None:
        problems.append("[counters] names a socket that nobody outside can reach")
    problems += _missing_files(config, tree, options)
    return problems


def _missing_files(config: EnclaveConfig, tree: Tree, options: Options) -> list[str]:
    named = [str(anchor.certificate) for anchor in config.anchors if anchor.certificate]
    wanted = [path for path in named if not path.startswith("/run/")]
    problems = [f"no {path} in the image" for path in wanted if not tree.has(path)]
    if config.model.peer is not None:
        return [*problems, '"model.engine" is "openai", but the image holds no server']
    model = config.model.path
    if options.model == EMBEDDED and model is not None:
        problems.append('"model.path" is not "embedded", but the image holds that one')
    if options.model != EMBEDDED and model is None:
        problems.append('"model.path" is "embedded", but the image holds another')
    if options.model not in {EMBEDDED, NO_MODEL} and not tree.has(str(model)):
        problems.append(f'"model.path" must be {MODELS}/{Path(options.model).name}')
    return problems
