"""The program ``curtilage``: one module or folder per command; reads flags, prints.

Calls the client and the transparency log; makes no decisions. Only the laboratory
imports it.
"""
