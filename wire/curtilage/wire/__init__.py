"""Bytes on the wire: BHTTP, HPKE and Oblivious HTTP; no socket, no clock."""
