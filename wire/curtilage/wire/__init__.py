"""Bytes on the wire: BHTTP, HPKE and Oblivious HTTP; no socket, no clock.

Knows bytes and keys, and no part of ours. May not touch files, threads or logs, nor
know what a question, a policy or a piece of evidence is.
"""
