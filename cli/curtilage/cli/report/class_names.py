"""Data classes and conditions in plain words."""

from collections.abc import Iterable
from typing import Final

from curtilage.policy.decision.conditions import AllOf, AnyOf, Condition, Term

_MANY: Final = 12  # a longer list of classes is described by their common parents

FAMILIES: Final = {
    "identifier.*": "any attribute of a person",
    "identifier.direct.*": "anything that identifies one person",
    "identifier.direct.gov_id.*": "a person's government-issued number",
    "identifier.quasi.*": "attributes that together can single a person out",
    "financial.*": "any payment or financial detail",
    "health.*": "any health detail",
    "special.*": "a special category of personal data",
    "secret.*": "a key, password or token",
    "legal.*": "a mark of legal privilege, or a court file",
    "export.*": "a mark of export control",
    "org.*": "anything that the organisation marked or listed",
    "org.dictionary.*": "a word from a list of the organisation",
    "org.edm.*": "an exact value from a list of the organisation",
    "topic.*": "talk of a sensitive topic",
    "uncertain.*": "anything that could not be read, recognised or checked in time",
}

_DIRECT: Final = {
    "person": "a person's name",
    "email": "an e-mail address",
    "phone": "a telephone number",
    "fax": "a fax number",
    "address": "a postal address",
    "passport": "a passport number",
    "licence": "a driving or professional licence",
    "username": "an account name",
    "ip": "an IP address",
    "mac": "a network card's address",
    "device": "a device identifier",
    "vehicle": "a vehicle's number",
    "biometric": "a biometric identifier",
    "photo": "a photograph of a person",
    "url_personal": "a personal web page",
}
_QUASI: Final = {
    "date": "a date",
    "dob": "a date of birth",
    "age": "an age",
    "age90": "an age over 89",
    "zip": "a postal code",
    "city": "a place",
    "nationality": "a nationality",
    "gender": "a gender",
    "employer": "an employer",
    "occupation": "an occupation",
    "url": "a web address",
}
_FINANCIAL: Final = {
    "pan": "a payment card number",
    "pan_masked": "a truncated card number",
    "cvv": "a card verification code",
    "expiry": "a card's expiry date",
    "track": "magnetic-stripe data",
    "iban": "an IBAN",
    "account": "a bank account number",
    "aba": "a bank routing number",
    "swift": "a SWIFT code",
    "crypto": "a wallet address",
    "tax_id": "a tax number",
    "income": "an income",
    "balance": "a balance",
    "credit_score": "a credit score",
}
_HEALTH: Final = {
    "condition": "a medical condition",
    "medication": "a medication",
    "procedure": "a medical procedure",
    "lab": "a laboratory value",
    "mrn": "a medical record number",
    "plan_id": "a health plan number",
    "npi": "a provider's NPI",
    "dea": "a prescriber's DEA number",
    "provider": "a health provider",
}
_SPECIAL: Final = {
    "ethnicity": "ethnic origin",
    "religion": "religion or belief",
    "politics": "political opinion",
    "union": "trade union membership",
    "sex_life": "sexual life",
    "orientation": "sexual orientation",
    "genetic": "genetic data",
    "biometric": "biometric data",
    "criminal": "a crime or conviction",
}
_SECRET: Final = {
    "api_key": "an API key",
    "private_key": "a private key",
    "password": "a password",
    "token": "an access token",
    "dsn": "a connection string with a password",
    "high_entropy": "a random-looking string",
}
_OTHER: Final = {
    "identifier.public.figure": "a person of history or of fiction",
    "legal.privilege": "a mark of legal privilege",
    "legal.docket": "a court file number",
    "export.itar": "an ITAR mark",
    "export.eccn": "an export control number",
    "export.cui": "controlled unclassified information",
    "export.noforn": "a NOFORN mark",
    "org.confidential": "a mark of confidentiality",
    "topic.health": "talk of health",
    "topic.special": "talk of a special category",
    "topic.finance": "talk of personal finance",
    "topic.legal": "talk of a legal matter",
    "topic.hr": "talk of a personnel matter",
    "marker.first_person": "a reference to a person: “my”, “our patient”, “bed 12”",
    "marker.addressee": "the word “you”",
    "marker.case": "an unnamed case, such as “a 55-year-old man”",
    "uncertain.number_run": "a long unexplained run of digits",
    "uncertain.opaque_blob": "text that cannot be decoded",
    "uncertain.language": "a language that is not covered",
    "uncertain.oversize": "more text than is inspected",
    "uncertain.timeout": "a detector that took too long",
    "uncertain.waited": "a machine too busy to inspect it in time",
    "uncertain.error": "a detector that failed",
    "uncertain.undecodable": "characters that cannot be read",
    "uncertain.attachment": "an image, a sound or a file",
    "uncertain.stale_policy": "a policy that is not signed, or no longer valid",
    "uncertain.obfuscation": "obfuscated text",
    "uncertain.name": "a possible name",
}


def _under(parent: str, words: dict[str, str]) -> dict[str, str]:
    return {f"{parent}.{leaf}": text for leaf, text in words.items()}


CLASSES_IN_WORDS: Final = {
    **_under("identifier.direct", _DIRECT),
    **_under("identifier.quasi", _QUASI),
    **_under("financial", _FINANCIAL),
    **_under("health", _HEALTH),
    **_under("special", _SPECIAL),
    **_under("secret", _SECRET),
    **_OTHER,
}


def class_in_words(name: str) -> str:
    """Return a short description of a class; unknown: its name."""
    if name in CLASSES_IN_WORDS:
        return CLASSES_IN_WORDS[name]
    head, _, last = name.rpartition(".")
    if head == "identifier.direct.gov_id":
        return f"a national number ({last.replace('_', ' ').upper()})"
    if head == "org.dictionary":
        return f"a word from the list {last!r}"
    if head == "org.edm":
        return f"an exact value from the list {last!r}"
    # Never an error: a class that is new, or the organisation's own, must not prevent
    # the report.
    return name


def in_words(condition: Condition) -> str:
    """Return a condition in words."""
    if isinstance(condition, AllOf):
        parts = [(part, in_words(part)) for part in condition.parts]
        return " together with ".join(
            # "a or b together with c" could be read in two ways.
            f"({words})" if isinstance(part, AnyOf) or " or " in words else words
            for part, words in parts
        )
    if isinstance(condition, AnyOf):
        return _either(in_words(part) for part in condition.parts)
    if not isinstance(condition, Term):
        return ""
    pattern, sure, least = condition.text.partition(">=")
    if pattern in FAMILIES:
        words = FAMILIES[pattern]
    elif len(condition.classes) <= _MANY:
        words = _either(class_in_words(name) for name in sorted(condition.classes))
    else:
        # A long list in braces: the description of each alternative.
        head = pattern.partition("{")[0]
        listed = pattern.removeprefix(head).strip("{}").split(",")
        names = [head + each.strip() for each in listed]
        words = _either(FAMILIES.get(each) or class_in_words(each) for each in names)
    return f"{words}, with a score of at least {least} of 100" if sure else words


def _either(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
