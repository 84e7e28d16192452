"""The policy: data classes, rules, and the decision that follows from them.

Reads findings and a file of rules, never a text. Must not use the network, a model or
the parties; opens no files but policies and their test cases.
"""
