"""The decision about what may leave: classes, findings, routes, conditions, rules.

Imports nothing else of ours, so that it can be read alone. Takes and returns values; no
file, no clock, no log.
"""
