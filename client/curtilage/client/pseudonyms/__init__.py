"""Replaces names in a query with pseudonyms, and restores them in the answer.

Pure: texts and findings in, texts out. The table of names never leaves the process and
is discarded with the query.
"""
