"""Strict readers of the encodings that evidence comes in.

JSON, DER, CBOR, COSE and fixed layouts, each refusing what is ambiguous. Knows no
vendor and no claim; nothing else of this part is imported here.
"""
