"""The enclave's HTTP: the server's only access to aiohttp, TLS and connections.

Receives and sends sealed bytes; ``ohttp`` opens them.
"""
