"""The laboratory's commands: they read graded questions or data sets, and print.

They use the program's terminal, options and start. ``curtilage.cli`` finds them through
``table`` alone, and only where the laboratory is installed.
"""
