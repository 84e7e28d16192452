"""What nobody could answer waits here, if the policy lets it: sealed, and for a while.

Knows a query and when it is asked again; must not know who answers, nor any way out:
what waited is decided anew.
"""
