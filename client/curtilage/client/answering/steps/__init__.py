"""Optional steps of the pipeline; each is imported when a query needs it.

Drafts, hedging, consent, doubt and the queue. The boundary's step is
``conversation.narrowing``.
"""
