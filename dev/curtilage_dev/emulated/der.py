"""Writes DER elements, for the extensions that vendors' certificates carry."""


def element(tag: int, content: bytes) -> bytes:
    """Encode one element."""
    size = len(content)
    if size < 0x80:  # noqa: PLR2004 - the long form begins here
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content
