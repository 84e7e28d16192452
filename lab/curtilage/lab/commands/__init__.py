"""The laboratory's commands, which read graded questions or data sets and print.

They use the program's terminal, options and start-up code. ``curtilage.cli`` reaches
them only through ``table``, and only if the laboratory is installed.
"""
