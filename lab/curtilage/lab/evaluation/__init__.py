"""Measures what the detectors and a policy achieve on folders of data.

It is part of the source tree and not of the installed library. It runs the client's
detectors on data that the user names; nothing here sees a query.
"""
