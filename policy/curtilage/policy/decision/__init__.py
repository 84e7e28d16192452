"""What may leave: classes, findings, routes, conditions, rules, and the decision.

Imports nothing else of ours, so that it can be read alone. Values in, values out; no
file, no clock, no log.
"""
