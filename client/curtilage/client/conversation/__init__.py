"""Conversations: which turns are kept local, and what of the others may be sent.

It knows turns and common words; it must not know any network connection.
"""
