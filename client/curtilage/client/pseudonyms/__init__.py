"""Rewrite a query without its names, and restore the answer.

Pure: texts and findings in, texts out. The table of names never leaves the process and
dies with the query.
"""
