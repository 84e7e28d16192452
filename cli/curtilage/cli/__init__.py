"""The program ``curtilage``: one module or folder a command; it reads flags and prints.

Calls the client and the transparency log, and decides nothing itself. Only the
laboratory imports it.
"""
