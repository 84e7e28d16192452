"""The detectors: a separate process, with no network and no files to write.

All code that searches a text for personal data is here. It knows no route and no policy
decision and has no way out; it can only reply with a frame of findings.
"""
