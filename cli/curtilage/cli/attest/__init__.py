"""``curtilage attest``: evidence in any form read from files, judged, and shown.

Knows files and words; what evidence is worth, ``curtilage.attest`` says. Asks the
network only in ``verify`` of a live service.
"""
