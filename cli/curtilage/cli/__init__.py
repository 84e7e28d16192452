"""The program ``curtilage``: one module or folder a command; it reads flags and prints.

Calls the client, the evaluation and the transparency log, and decides nothing itself.
Nothing of ours imports it.
"""
