"""The application on a dstack machine: its definition, its event log and its quote.

Pure. What all forms of dstack's evidence have in common, and NEAR's with them.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Final

from curtilage.attest.claims import CpuClaims
from curtilage.cli.attest.evidence_files import EvidenceFiles
from curtilage.cli.attest.foreign.event_log import (
    COMPOSE_HASH,
    Log,
    compose_of,
    read_log,
    require_compose,
    require_log,
)
from curtilage.cli.attest.foreign.published import (
    RELEASE,
    Finding,
    Given,
    checked,
    stated,
    unknown,
)
from curtilage.cli.attest.foreign.reader import Members

_IMAGES: Final = "what the images in it hold is not read"
_UNMEASURED: Final = "nothing in the document names the application"


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """What a document says about the application.

    Attributes:
        compose: its definition (``app_compose``), or b"".
        log: the event log, or None.
    """

    compose: bytes = field(repr=False)
    log: Log | None

    def findings(self, claims: CpuClaims) -> dict[str, Finding]:
        """Compare with the machine's registers.

        Raises:
            RefusedError: ``binding_mismatch``: they contradict the document.
        """
        if self.log is not None:
            require_log(self.log, claims.registers)
        config = claims.registers["mrconfigid"]
        named = require_compose(self.compose, self.log, config)
        return {RELEASE: self._release(named=named)}

    def _release(self, *, named: bool) -> Finding:
        digest = hashlib.sha256(self.compose).hexdigest()
        if named:
            return checked(
                f"the definition with sha256 {digest} is measured; {_IMAGES}"
            )
        if self.compose:
            return stated(
                f"a definition with sha256 {digest} is given, which nothing measures"
            )
        if self.log is not None and COMPOSE_HASH in self.log.payloads:
            shown = self.log.payloads[COMPOSE_HASH].hex()
            return checked(
                f"the definition measured has sha256 {shown}; it is not given"
            )
        return unknown(_UNMEASURED)


def application_of(holder: Members) -> Application:
    """Read the definition and the event log of one machine.

    Raises:
        RefusedError: ``malformed``, ``too_large`` or ``binding_mismatch``.
    """
    log = read_log(holder.value("event_log")) if holder.has("event_log") else None
    return Application(compose=compose_of(holder), log=log)


def quote_files(quote: bytes, given: Given) -> EvidenceFiles:
    """Return a quote with the reader's collateral; such documents have none."""
    return EvidenceFiles(evidence=quote, collateral=given.files.collateral)
