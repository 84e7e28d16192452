"""The engine: the only part that uses llama.cpp, in a process of its own.

Knows prompts, tokens and one verified file. Must not use the network or logs, and does
not know the wire, evidence, policies or users.
"""
