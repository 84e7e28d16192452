"""Take out refusals one by one; the tests named for each must then fail.

Works on a copy of the tree, so that nothing here is ever changed. The list
below is a sample of the refusals in every part, not all of them: those that the
promise of the product rests on most. ``make test-slow`` runs it.
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
        tests: must fail then; arguments of pytest, split on spaces.
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
RELAY = "relay/curtilage/relay"
ENCLAVE = "enclave_server/curtilage/enclave_server"
WIRE = "wire/curtilage/wire"
INFERENCE = "inference/curtilage/inference"
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
        "    verified.usable_at(now)\n",
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
        "own = len(hosts) == 1 and OWN_HOST.fullmatch(hosts[0]) is not None",
        "own = True",
        "tests/client/test_gateway.py",
    ),
    Mutant(
        f"{CLIENT}/gateway.py",
        "own = own and all(OWN_ORIGIN",
        "own = own or all(OWN_ORIGIN",
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
        " > limits.max_chars or len(leaves) > MAX_LEAVES:",
        " < 0:",
        "tests/client/test_inspection.py",
    ),
    Mutant(
        f"{RELAY}/forward.py",
        "if head.method != place.method:",
        "if False:",
        "tests/relay/test_forward.py tests/relay/test_exchange.py",
    ),
    Mutant(
        f"{RELAY}/forward.py",
        'if _values(fields, b"expect"):',
        "if False:",
        "tests/relay/test_forward.py tests/relay/test_exchange.py",
    ),
    Mutant(
        f"{RELAY}/forward.py",
        'b"content-encoding"):\n        raise RefusedError(Refusal.CONTENT',
        'b"x"):\n        raise RefusedError(Refusal.CONTENT',
        "tests/relay/test_forward.py tests/relay/test_exchange.py",
    ),
    Mutant(
        f"{RELAY}/forward.py",
        'fields = [("Content-Type", passage.content_type)',
        'fields = [("Via", "relay"), ("Content-Type", passage.content_type)',
        "tests/relay/test_forward.py",
    ),
    Mutant(
        f"{RELAY}/forward.py",
        "if len(values) == 1 and values[0].lower()",
        "if values and values[0].lower()",
        "tests/relay/test_exchange.py",
    ),
    Mutant(
        f"{RELAY}/body.py",
        "if self._seen > self._limits.max_request_bytes:",
        "if False:",
        "tests/relay/test_body.py",
    ),
    Mutant(
        f"{RELAY}/app.py",
        "if self._in_flight >= self._limits.max_upstream:",
        "if False:",
        "tests/relay/test_limits.py -k upstream_cap",
    ),
    Mutant(
        f"{ENCLAVE}/gateway.py",
        'raise ChatError(404, "not_found")',
        "methods = next(iter(_UNPADDED_TARGETS.values()))",
        "tests/enclave_server/test_gateway.py -k exact_table",
    ),
    Mutant(
        f"{ENCLAVE}/gateway.py",
        "except WireError:\n        raise OuterError(UNDECAPSULATED)",
        "except WireError:\n        raise OuterError(BAD_REQUEST)",
        "tests/enclave_server/test_gateway.py -k undecapsulated",
    ),
    Mutant(
        f"{ENCLAVE}/gateway.py",
        "if not key.replay.admit(",
        "if False and not key.replay.admit(",
        "tests/enclave_server/test_gateway.py -k twice",
    ),
    Mutant(
        f"{ENCLAVE}/gateway.py",
        "(value,) = content_types",
        "value, *_ = content_types",
        "tests/enclave_server/test_gateway.py -k content_types",
    ),
    Mutant(
        f"{ENCLAVE}/keys.py",
        "self._keys = [key for key in self._keys if _is_live(key, now)]",
        "self._keys = list(self._keys)",
        "tests/enclave_server/test_keys.py",
    ),
    Mutant(
        f"{ENCLAVE}/keys.py",
        "for key in ended:\n            key.overwrite()",
        "ended.clear()",
        "tests/enclave_server/test_keys.py -k overwritten",
    ),
    Mutant(
        f"{ENCLAVE}/gateway.py",
        "if len(values) != 1 or not is_in_window(values[0], now):",
        "if False:",
        "tests/enclave_server/test_replay.py -k wrong_date",
    ),
    Mutant(
        f"{ENCLAVE}/gateway.py",
        "message = _that_fails_late(gateway_keys, message)",
        "pass",
        "tests/enclave_server/test_failures.py -k time_does_not_tell",
    ),
    Mutant(
        f"{ENCLAVE}/padded.py",
        "if self._room() < frame_bytes:",
        "if False:",
        "tests/enclave_server/test_padded.py -k out_of_time",
    ),
    Mutant(
        f"{ENCLAVE}/answering.py",
        "if self._timer.clock() >= self._deadline:",
        "if False:",
        "tests/enclave_server/test_padded.py -k deadline",
    ),
    Mutant(
        f"{WIRE}/fields.py",
        "elif not pseudo_may_follow:",
        "elif False:",
        "tests/wire/test_bhttp.py -k pseudo",
    ),
    Mutant(
        f"{WIRE}/bhttp_decoder.py",
        "if piece.count(0) != len(piece):",
        "if False:",
        "tests/wire/test_bhttp.py -k padding",
    ),
    Mutant(
        f"{WIRE}/bhttp_decoder.py",
        "if self._content_bytes > self._limits.max_content_bytes:",
        "if False:",
        "tests/wire/test_bhttp.py -k bounded",
    ),
    Mutant(
        f"{WIRE}/chunked.py",
        '_FINAL: Final = b"final"',
        '_FINAL: Final = b""',
        "tests/wire/test_chunked.py tests/conformance/wire",
    ),
    Mutant(
        f"{WIRE}/keyconfig.py",
        "if key_id in seen:",
        "if False:",
        "tests/wire/test_keyconfig.py",
    ),
    Mutant(
        f"{POLICY}/load.py",
        "if frame.repeated:\n            first",
        "if False:\n            first",
        "tests/policy/test_load.py",
    ),
    Mutant(
        f"{POLICY}/model.py",
        'extra="forbid"',
        'extra="ignore"',
        "tests/policy/test_load.py",
    ),
    Mutant(
        f"{POLICY}/checks.py",
        'if rule.get("then") not in ("local", "block"):',
        "if False:",
        "tests/policy/test_load.py -k any_uncertain",
    ),
    Mutant(
        f"{POLICY}/checks.py",
        'if _mapping(anchor).get("kind") == _EMULATED:',
        "if False:",
        "tests/policy/test_attestation.py",
    ),
    Mutant(
        f"{ATTEST}/snp.py",
        "if report.policy & POLICY_DEBUG:",
        "if False:",
        "tests/attest/test_snp.py -k validly_signed",
    ),
    Mutant(
        f"{ATTEST}/snp.py",
        "if report.vmpl not in expectations.vmpl:",
        "if False:",
        "tests/attest/test_snp.py -k validly_signed",
    ),
    Mutant(
        f"{ATTEST}/snp.py",
        "if low:",
        "if False:",
        "tests/attest/test_snp.py -k minimum_tcb",
    ),
    Mutant(
        f"{ATTEST}/snp.py",
        "if {chain.ark.serial, chain.ask.serial} & crl.revoked:",
        "if False:",
        "tests/attest/test_snp.py -k revoked",
    ),
    Mutant(
        f"{ATTEST}/snp.py",
        "if not verify_rsa_pss(issuer.public_key, child",
        "if False and not verify_rsa_pss(issuer.public_key, child",
        "tests/attest/test_snp.py -k chain_of_other_keys",
    ),
    Mutant(
        f"{ATTEST}/certificates.py",
        "or issuer.key_size != RSA_BITS:",
        ":",
        "tests/attest/test_snp.py -k weak_intermediate",
    ),
    Mutant(
        f"{ATTEST}/tcb.py",
        "if any(reserved):",
        "if False:",
        "tests/attest/test_tcb.py",
    ),
    Mutant(
        f"{ATTEST}/tlog.py",
        "if quorum < 1 or len(times)",
        "if len(times)",
        "tests/attest/test_tlog.py -k quorum",
    ),
    Mutant(
        f"{ATTEST}/tlog.py",
        "if root != checkpoint.root:",
        "if False:",
        "tests/attest/test_tlog.py -k edited_leaf",
    ),
    Mutant(
        f"{INFERENCE}/modelfile.py",
        "if digest.hexdigest() != self.sha256:",
        "if False:",
        "tests/inference/test_modelfile.py",
    ),
    Mutant(
        f"{INFERENCE}/decoding.py",
        "if prompt_tokens + max_tokens > context.size:",
        "if False:",
        "tests/inference/test_engine.py -k context",
    ),
    Mutant(
        f"{INFERENCE}/templates.py",
        "Part(text=words[piece], special=False)",
        "Part(text=words[piece], special=True)",
        "tests/inference/test_templates.py",
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
            [*command, *mutant.tests.split()],
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
