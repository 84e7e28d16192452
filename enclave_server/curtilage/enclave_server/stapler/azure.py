"""Azure's endorsement of a TDX machine: a quote over the report of its start.

The paravisor keeps a TDREPORT that it requested at start. The machine's instance
metadata service has a quoting enclave turn that into a quote. The report data are
fixed, so one quote serves for all bindings. Only this machine can ask, so the stapler
runs on it. Verifies nothing; a response of another kind than requested is not stored.
"""

import json
from collections.abc import Mapping
from typing import Final

from curtilage.attest.azure.hcl import parse_td_report
from curtilage.attest.encoding.strict_json import (
    decode_base64url,
    encode_base64url,
    parse_object,
)
from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import MAX_QUOTE_BYTES
from curtilage.attest.tdx.quote import parse_quote
from curtilage.enclave_server.acquire.endorsements import QUOTE_FILE
from curtilage.enclave_server.stapler.addresses import Addresses, td_quote_url
from curtilage.enclave_server.stapler.errors import FetchError
from curtilage.enclave_server.stapler.fetch import Fetches
from curtilage.enclave_server.stapler.identity import TdReportIdentity, tdx_identity
from curtilage.enclave_server.stapler.intel import fetch_intel

MAX_ANSWER_BYTES: Final = 2 * MAX_QUOTE_BYTES
"""A quote in base64url, in a JSON object."""
JSON: Final = "application/json"


async def fetch_azure(
    fetcher: Fetches, addresses: Addresses, identity: TdReportIdentity
) -> Mapping[str, bytes]:
    """Fetch a machine's quote, and Intel's collateral for it, by file name.

    Raises:
        FetchError: something was not available, or not what was requested.
    """
    asked = json.dumps({"report": encode_base64url(identity.report)}).encode()
    answer = await fetcher.post(
        td_quote_url(addresses.azure_imds),
        asked,
        content_type=JSON,
        limit=MAX_ANSWER_BYTES,
    )
    quote = _quote(answer.body, identity.report)
    collateral = await fetch_intel(fetcher, addresses, tdx_identity(quote))
    return {QUOTE_FILE: quote, **collateral}


def _quote(body: bytes, report: bytes) -> bytes:
    try:
        fields = parse_object(body, where="answer", limit_bytes=MAX_ANSWER_BYTES)
        text = fields.text("quote", limit=MAX_ANSWER_BYTES).rstrip("=")
        quote = decode_base64url(text, "quote")
        quoted = parse_quote(quote).report.report_data
        asked = parse_td_report(report).report_data
    except RefusedError as error:
        raise FetchError(f"Azure: {error}") from None
    if quoted != asked:
        raise FetchError("Azure: a quote over another report")
    return quote
