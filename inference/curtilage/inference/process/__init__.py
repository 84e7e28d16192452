"""The engine in a process of its own, behind a wall.

``parent`` starts it and looks like an engine; ``__main__`` is the process; ``codec`` is
what the two say to each other. The parent loads neither llama.cpp nor numpy.
"""
