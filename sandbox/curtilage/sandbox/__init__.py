"""Walls that the kernel holds around a process, for native code as well.

Knows system calls, Landlock and namespaces, and nothing of queries, evidence or
policies. What it builds can be taken down by nobody, not even by the process
itself. A door to ``ctypes``.
"""
