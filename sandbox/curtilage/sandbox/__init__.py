"""Kernel sandboxes (walls) for a process, which bind native code as well.

Knows system calls, Landlock and namespaces, and nothing of queries, evidence or
policies. A sandbox cannot be removed, not even by the process itself. Uses ``ctypes``.
"""
