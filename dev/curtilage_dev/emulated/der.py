"""Contents of certificates: DER elements for vendors' extensions, and key usage."""

from cryptography import x509


def element(tag: int, content: bytes) -> bytes:
    """Encode one element."""
    size = len(content)
    if size < 0x80:  # noqa: PLR2004 - the long form begins here
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def key_usage(
    *,
    signs_certificates: bool,
    signs_data: bool,
    commits: bool = False,
    signs_lists: bool | None = None,
) -> x509.KeyUsage:
    """Return a key's usage: authorities sign lists as well, and no key encrypts."""
    return x509.KeyUsage(
        digital_signature=signs_data,
        content_commitment=commits,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates if signs_lists is None else signs_lists,
        encipher_only=False,
        decipher_only=False,
    )
