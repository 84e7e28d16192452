"""HPKE in base mode (RFC 9180): KEMs, the key schedule, contexts, their self-test.

Knows keys and bytes. May not touch messages, files, clocks or the network: who
seals what to whom is said one floor up, in ``curtilage.wire.encapsulation``.
"""
