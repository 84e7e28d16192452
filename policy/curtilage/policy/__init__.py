"""What an auditor reads and what follows from it: classes, rules, decision.

Knows findings and a file of rules, and never a text. May not touch the network, a model
or the parties; opens no file but policies and the cases beside them.
"""
