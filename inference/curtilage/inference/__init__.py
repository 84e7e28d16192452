"""The engine: the only part that knows llama.cpp.

Knows prompts, tokens and one verified file. May not touch the network or logs, nor know
the wire, evidence, policies or who asks.
"""
