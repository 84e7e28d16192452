"""The enclave's HTTP: aiohttp's only door, TLS, and who may connect.

Takes and gives sealed bytes; what is inside, ``ohttp`` opens.
"""
