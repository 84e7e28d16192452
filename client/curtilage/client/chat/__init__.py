"""A query, its options and its answer, and OpenAI's schema for them.

Values only: nothing here does I/O or knows where a query is answered.
"""
