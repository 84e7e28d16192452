"""Files and locks, TLS settings, a fair queue and a budget of retries.

Nothing here knows of queries; it may import nothing of the client but ``errors``.
"""
