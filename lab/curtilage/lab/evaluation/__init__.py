"""What the detectors and a policy achieve, measured on folders of data.

Comes with the source tree and not with what is installed for the library. Runs the
client's detectors on data that the person names; nothing here sees a query.
"""
