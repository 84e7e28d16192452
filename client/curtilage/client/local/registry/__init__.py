"""The models of this user: which are known, which fit this machine, which are here.

Only ``download`` connects to anything, for a command of its own and never for a query.
Nothing here imports the model that answers.
"""
