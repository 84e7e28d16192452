"""Emulated evidence, byte for byte in the vendors' layouts: reports, quotes, chains.

What each vendor's machine would sign, and ``machines``, which gives all of them one
interface. No hardware is involved, so it proves no isolation.
"""
