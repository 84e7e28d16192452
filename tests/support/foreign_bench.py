"""The command ``attest import`` over documents of emulated machines."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from curtilage.attest.claims import Measurement
from curtilage.attest.expectations import TrustAnchor
from curtilage.cli.main import main
from curtilage_dev.emulated.foreign import as_json
from support.evidence_policies import SNP, SNP_MINIMUM, write_policy
from support.evidence_texts import pem
from support.memory_enclave import NOW

AT = f"{NOW:%Y-%m-%dT%H:%M:%SZ}"
DONE, REFUSED, WRONG = 0, 1, 2


class Bench:
    """A folder with a policy, and what the command says about documents in it."""

    def __init__(
        self,
        folder: Path,
        capsys: pytest.CaptureFixture[str],
        anchors: tuple[TrustAnchor, ...],
        tee: str,
        measurement: Measurement,
        **more: object,
    ) -> None:
        self._folder = folder
        self._capsys = capsys
        sections: dict[str, object] = {
            "environment": "development",
            "trust_anchors": [
                {
                    "kind": "emulated",
                    "product": each.product,
                    "certificate": pem(each.certificate_der).decode(),
                }
                for each in anchors
            ],
            "required_cpu_tees": [tee],
            "measurements": {tee: [dict(measurement)]},
        }
        if "snp" in tee:
            minimum = {**SNP_MINIMUM, "product": anchors[0].product}
            sections["snp"] = {**SNP, "min_tcb": [minimum]}
        else:
            sections["tdx"] = {"statuses": ["UpToDate"]}
        self._policy = write_policy(folder / "policy.yaml", **{**sections, **more})

    def run(
        self, source: str, document: object, *more: str, files: Mapping[str, bytes] = {}
    ) -> tuple[int, str]:
        """Run the command; return its exit status and what it printed."""
        data = document if isinstance(document, bytes) else as_json(document)
        options: list[str] = []
        for name, content in {"evidence": data, **files}.items():
            path = self._folder / name
            path.write_bytes(content)
            options += [f"--{name}", str(path)]
        try:
            options += ["--policy", self._policy, "--at", AT]
            status = main(["attest", "import", "--from", source, *options, *more])
        except SystemExit as left:
            status = cast("int", left.code)
        printed = self._capsys.readouterr()
        return status, printed.out + printed.err

    def verdict(
        self, source: str, document: object, *more: str, files: Mapping[str, bytes] = {}
    ) -> dict[str, Any]:
        """Return the JSON verdict."""
        status, printed = self.run(source, document, "--json", *more, files=files)
        verdict: dict[str, Any] = json.loads(printed)
        assert status == (DONE if verdict["accepted"] else REFUSED)
        return verdict

    def shown(
        self, source: str, document: object, *more: str, files: Mapping[str, bytes] = {}
    ) -> dict[str, Any]:
        """Return the JSON verdict on a document that is accepted."""
        verdict = self.verdict(source, document, *more, files=files)
        assert verdict["accepted"], (verdict["code"], verdict["detail"])
        return verdict

    def code(
        self, source: str, document: object, *more: str, files: Mapping[str, bytes] = {}
    ) -> str:
        """Return the refusal's code; the verdict makes no claim."""
        verdict = self.verdict(source, document, *more, files=files)
        assert not verdict["accepted"]
        statuses = {row["status"] for row in verdict["appraisal"].values()}
        assert statuses == {"unknown"}
        assert not verdict["tier"]["may"]
        return cast("str", verdict["code"])


def statuses(verdict: Mapping[str, Any]) -> dict[str, str]:
    """Return how far each claim is known."""
    return {name: row["status"] for name, row in verdict["appraisal"].items()}
