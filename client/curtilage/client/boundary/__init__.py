"""What of a conversation may leave, where a turn of it had to stay.

Pure: text in, text out. What is made here is a new query; nothing leaves of it before
it was inspected and decided by itself.
"""
