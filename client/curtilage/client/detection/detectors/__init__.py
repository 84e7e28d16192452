"""The detectors: another process, which has neither network nor files to write.

Everything that reads a text for personal data stands here. Knows no route, no policy
decision and no way out; its only answer is a frame of findings.
"""
