"""The run of one answer: from an opened question to sealed frames at a steady pace.

Padded or plain, chunked or whole, streamed or not, model or nothing: each choice has
one place here. Keeps nothing when the answer ends.
"""
