"""The enclave server: sees what is asked, not who; keeps nothing.

Knows its own keys, a question while it answers, and that a relay sent it. May not know
a policy or a detector, and writes no question anywhere.
"""
