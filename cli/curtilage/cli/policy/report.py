"""``curtilage policy report``: a policy as one page for people."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from curtilage.cli.declared import Arguments
from curtilage.cli.options import file_errors
from curtilage.cli.policy.test_cases import policy_name
from curtilage.cli.report.evaluation_json import (
    MAX_BYTES,
    Measured,
    MeasuredError,
    parse_measured,
)
from curtilage.cli.report.policy_report import Report, render
from curtilage.cli.start import config_from
from curtilage.cli.terminal import DONE, out
from curtilage.client.config import ClientConfig
from curtilage.client.errors import ConfigError
from curtilage.policy.signing import key_id, parse_signature

_TITLES: Final = {
    "default": "The default policy",
    "clinic": "A clinic",
    "bank": "A bank",
    "law-firm": "A law firm",
    "public-office": "A public office",
}


def run(arguments: Arguments) -> int:
    """Write the page."""
    config = config_from(arguments)
    name, now = policy_name(arguments.policy), datetime.now(UTC)
    measured: Measured | None = None
    if arguments.evaluation is not None:
        figures: str = arguments.evaluation
        try:
            with file_errors(figures), Path(figures).open("rb") as file:
                # One byte more than the limit, so that a longer file is refused, and
                # not read as a shorter one.
                measured = parse_measured(file.read(MAX_BYTES + 1))
        except MeasuredError as error:
            raise ConfigError(f"{figures}: {error}") from None
    signature, approved, until = _signature(config, now)
    # Complete before the file is opened: an error must not leave half of a page.
    page = render(
        Report(
            policy=config.policy,
            name=_TITLES.get(name, name),
            made=now,
            measured=measured,
            signature=signature,
            approved=approved,
            until=until,
        )
    )
    path = Path(arguments.out)
    with file_errors(path):
        path.write_text(page, "utf-8")
    out(f"{path}: {len(page.encode()):,} bytes")
    return DONE


def _signature(config: ClientConfig, now: datetime) -> tuple[str, str, str]:
    """Return statements on the signature, the approver and the expiry."""
    currency = config.currency
    if currency is None:
        sentence = "Not checked: no key was given (--policy-key)"
        return sentence, "not checked: no key was given", "not known"
    problem, signer = currency.problem(now), key_id(currency.public_key)
    # A page that says "valid" is shown to people who cannot check it.
    if problem is not None or currency.signature is None:
        sentence = (
            f"Not current, so nothing may be sent: {problem} (required: key {signer})"
        )
        return sentence, "no one", "not in force"
    # The signature was just verified, so its expiry is authentic.
    end = datetime.fromtimestamp(parse_signature(currency.signature).not_after, UTC)
    return (
        f"Valid, by key {signer}",
        f"key {signer}",
        end.strftime("%Y-%m-%d %H:%M UTC"),
    )
