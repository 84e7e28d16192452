"""From a query to findings: the detectors' process, and what it could not inspect.

This package has our end of the pipe to the detectors' process, and none of their code.
``detectors`` runs in that process only; in this one, only ``client.config`` imports it,
to validate a policy's own detectors. Must not import ``remote``, ``local``, ``audit``.
"""
