"""``curtilage attest``: read evidence from files, verify it and show the result.

Handles file formats and messages; ``curtilage.attest`` verifies. Uses the network only
for the evidence of a live service.
"""
