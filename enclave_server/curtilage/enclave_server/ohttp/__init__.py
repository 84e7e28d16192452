"""Oblivious HTTP at the gateway: open, dispatch, keys, replay, receipts, sealing.

Pure: bytes and a time in, bytes out. Does no I/O, reads no clock, writes no log.
"""
