"""Take out refusals one by one; the tests named for each must then fail.

Works on a copy of the tree, so that nothing here is ever changed. The list
below holds the checks that the promise of the product rests on; whoever adds a
refusal adds a line. ``make test-slow`` runs it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("wire", "attest", "inference", "policy", "client", "relay", "enclave_server")
COPIED = (*PARTS, "dev", "tests", "docs", "requirements", "deploy", "benchmarks")
FILES = ("pyproject.toml", "README.md", "compose.yaml", "Makefile")


@dataclass(frozen=True)
class Mutant:
    """One check taken out.

    Attributes:
        file: where it stands.
        old: the check's text; must occur exactly once.
        new: what stands there instead.
        tests: must fail then.
    """

    file: str
    old: str
    new: str
    tests: str

    @property
    def name(self) -> str:
        """The check, in one line."""
        return f"{Path(self.file).stem}: {' '.join(self.old.split())[:60]}"


CLIENT = "client/curtilage/client"
ATTEST = "attest/curtilage/attest"
POLICY = "policy/curtilage/policy"
MUTANTS = (
    Mutant(
        f"{POLICY}/decide.py",
        "if decisive.route is Route.ENCLAVE:\n        allowed",
        "if True:\n        allowed",
        "tests/policy/test_decide.py",
    ),
    Mutant(
        f"{POLICY}/decide.py",
        'if brand is not _BRAND:\n            raise TypeError("only decide()',
        'if False:\n            raise TypeError("only decide()',
        "tests/policy/test_allowed.py",
    ),
    Mutant(
        f"{CLIENT}/exchange.py",
        "permitted = require_allowed(allowed)",
        "permitted = allowed",
        "tests/client/test_exchange.py",
    ),
    Mutant(
        f"{CLIENT}/exchange.py",
        "if not hmac.compare_digest(",
        "if False and not hmac.compare_digest(",
        "tests/client/test_exchange.py",
    ),
    Mutant(
        f"{CLIENT}/exchange.py",
        "    key.usable_at(now)\n",
        "",
        "tests/client/test_exchange.py",
    ),
    Mutant(
        f"{CLIENT}/exchange.py",
        "if brand is not _BRAND:",
        "if False:",
        "tests/client/test_exchange.py",
    ),
    Mutant(
        f"{CLIENT}/exchange.py",
        "body, self._body = self._body, None",
        "body = self._body",
        "tests/client/test_exchange.py",
    ),
    Mutant(
        f"{CLIENT}/exchange.py",
        "if self._buffer.strip() or not self._done or self._finished is None:",
        "if self._finished is None:",
        "tests/client/test_exchange.py",
    ),
    Mutant(
        f"{CLIENT}/exchange.py",
        "if self._received > MAX_ANSWER_BYTES:",
        "if False:",
        "tests/client/test_exchange.py",
    ),
    Mutant(
        f"{CLIENT}/transport.py",
        "if not isinstance(exchange, SealedExchange):",
        "if False:",
        "tests/client/test_transport.py",
    ),
    Mutant(
        f"{CLIENT}/transport.py",
        'if url.scheme == "http" and not (',
        "if False and not (",
        "tests/client/test_transport.py",
    ),
    Mutant(
        f"{CLIENT}/transport.py",
        "if response.content_type != media_type:",
        "if False:",
        "tests/client/test_transport.py",
    ),
    Mutant(
        f"{CLIENT}/transport.py",
        "if len(data) > MAX_BUNDLE_BYTES:",
        "if False:",
        "tests/client/test_transport.py",
    ),
    Mutant(
        f"{CLIENT}/enclaves.py",
        "self._key.usable_at(now)",
        "pass",
        "tests/client/test_enclaves.py",
    ),
    Mutant(
        f"{CLIENT}/remote.py",
        "if fresh.key_configs == old.key_configs:",
        "if False:",
        "tests/client/test_session.py",
    ),
    Mutant(
        f"{CLIENT}/route.py",
        "return Refuse() if shown else AskLocal()",
        "return AskLocal()",
        "tests/client/test_session.py",
    ),
    Mutant(
        f"{CLIENT}/route.py",
        "if decision.route is Route.BLOCK:",
        "if False:",
        "tests/client/test_session.py",
    ),
    Mutant(
        f"{CLIENT}/gateway.py",
        "if not _is_loopback(host):",
        "if False:",
        "tests/client/test_gateway.py",
    ),
    Mutant(
        f"{CLIENT}/gateway.py",
        "own = host is not None and _is_loopback(host)",
        "own = True",
        "tests/client/test_gateway.py",
    ),
    Mutant(
        f"{CLIENT}/gateway.py",
        "if origin is not None:",
        "if False:",
        "tests/client/test_gateway.py",
    ),
    Mutant(
        f"{CLIENT}/completions.py",
        "if name not in HANDLED and name not in NEUTRAL and name not in DROPPED:",
        "if False:",
        "tests/client/test_completions.py",
    ),
    Mutant(
        f"{CLIENT}/completions.py",
        "if name in request and request[name] not in neutral:",
        "if False:",
        "tests/client/test_completions.py",
    ),
    Mutant(
        f"{ATTEST}/verify.py",
        "if claims.report_data != expected:",
        "if False:",
        "tests/attest/test_verify.py",
    ),
    Mutant(
        f"{ATTEST}/verify.py",
        "if tee.emulated and (production or not named):",
        "if False:",
        "tests/attest/test_verify.py",
    ),
    Mutant(
        f"{ATTEST}/verify.py",
        "if now.timestamp() >= bundle.not_after:",
        "if False:",
        "tests/attest/test_verify.py",
    ),
    Mutant(
        f"{ATTEST}/verify.py",
        "if age >= freshness.max_evidence_age_s:",
        "if False:",
        "tests/attest/test_verify.py",
    ),
    Mutant(
        f"{ATTEST}/verify.py",
        "if manifest.name not in expectations.release_names:",
        "if False:",
        "tests/attest/test_verify.py",
    ),
    Mutant(
        f"{ATTEST}/verify.py",
        "if now >= self.expires_at:",
        "if False:",
        "tests/attest/test_verify.py",
    ),
    Mutant(
        f"{CLIENT}/inspection.py",
        "if characters > limits.max_chars or len(leaves) > MAX_LEAVES:",
        "if False:",
        "tests/client/test_inspection.py",
    ),
)


def main() -> int:
    """Return 1 if a mutant survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutants whose name has a word")
    words = parser.parse_args().words
    chosen = [m for m in MUTANTS if not words or any(w in m.name for w in words)]
    survived: list[str] = []
    with tempfile.TemporaryDirectory(prefix="curtilage-mutants-") as scratch:
        tree = _copy(Path(scratch))
        for number, mutant in enumerate(chosen, start=1):
            started = time.monotonic()
            red = _is_red(tree, mutant)
            outcome = "red, as it must" if red else "SURVIVED"
            took = time.monotonic() - started
            _say(f"[{number}/{len(chosen)}] {outcome}, {took:.0f} s  {mutant.name}")
            survived += [] if red else [mutant.name]
    _say(f"{len(chosen) - len(survived)} passed, {len(survived)} failed")
    return 1 if survived else 0


def _copy(tree: Path) -> Path:
    ignore = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=ignore)
    for name in FILES:
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, tree / name)
    return tree


def _is_red(tree: Path, mutant: Mutant) -> bool:
    file = tree / mutant.file
    text = file.read_text("utf-8")
    if text.count(mutant.old) != 1:
        _say(f"the list is out of date: {mutant.name}")
        return False
    try:
        file.write_text(text.replace(mutant.old, mutant.new), "utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, mutant.tests],
            cwd=tree,
            env=_environment(tree),
            capture_output=True,
            check=False,
        )
    finally:
        file.write_text(text, "utf-8")
    return done.returncode == 1


def _environment(tree: Path) -> dict[str, str]:
    paths = os.pathsep.join(str(tree / part) for part in PARTS)
    shared = os.environ.get("CURTILAGE_SHARED", str(ROOT.parent / "shared"))
    return {
        **os.environ,
        "PYTHONPATH": paths,
        "PYTHONDONTWRITEBYTECODE": "1",
        "CURTILAGE_SHARED": shared,
    }


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
