"""The enclave's HTTP: the server's only door to aiohttp, TLS, and who may connect.

Takes and gives sealed bytes; what is inside, ``ohttp`` opens.
"""
