"""A log, a release and a configuration for an image with emulated evidence.

Development only: the log's private keys are stored next to what they sign.
"""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from deploy.image.rootfs import (
    EMULATED_MEASUREMENT,
    EVIDENCE_SOCKET,
    INTAKE,
    SERVER_SOCKET,
    development_code,
)

from curtilage.attest.evidence import Tee
from curtilage.inference.default_model import DEFAULT_SHA256

CONFIG: Final = "enclave.toml"
# Among the kinds of emulated evidence, only SEV-SNP has several products.
PRODUCTS: Final = {
    "emulated-sev-snp": "Genoa",
    "emulated-tdx": "tdx",
    "emulated-nitro": "nitro",
}
_HEAD: Final = """\
# DEVELOPMENT ONLY: the evidence of an image with this file is emulated.
environment = "development"
listen = "unix:{server}"
evidence = "unix:{evidence}"
release = "{intake}/release"

[[trust_anchors]]
kind = "emulated"
product = "{product}"
certificate = "/run/evidence/root.pem"

[model]
path = "embedded"
sha256 = "{model}"

"""


def make_deployment(out: Path, tee: str) -> Path:
    """Make everything that an image with emulated evidence and its client need.

    Args:
        out: receives ``enclave.toml``, ``release/`` for the guest, and ``log/``.
        tee: a kind of emulated evidence.

    Returns:
        the configuration's path.
    """
    with development_code():
        from curtilage_dev import devlog  # noqa: PLC0415 - in the tree alone
    release = devlog.ReleaseArguments(
        version="0.1.0",
        source="development",
        measurements=(EMULATED_MEASUREMENT,),
        models=(DEFAULT_SHA256,),
        tee=Tee(tee),
    )
    log = out / "log"
    log.mkdir(parents=True, exist_ok=True)
    devlog.create(log, release, now=datetime.now(UTC))
    (out / "release").mkdir(exist_ok=True)
    for name in devlog.PUBLIC_FILES:
        shutil.copyfile(log / name, out / "release" / name)
    head = _HEAD.format(
        server=SERVER_SOCKET,
        evidence=EVIDENCE_SOCKET,
        intake=INTAKE,
        product=PRODUCTS[tee],
        model=DEFAULT_SHA256,
    )
    (out / CONFIG).write_text(head + devlog.log_table(log), "utf-8")
    return out / CONFIG
