"""A query in, findings out: what is looked at, by whom, and what was not.

Holds our end of the pipe to the detectors' process, and none of their code: only
``detectors`` imports it, and ``client.config`` to try what a policy brings. May not
know ``remote``, ``local``, ``audit``.
"""
