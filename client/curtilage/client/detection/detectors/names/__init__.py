"""Names found without a model: by their capitals, and by the words that introduce them.

Pure functions of a text. Runs in the detectors' process.
"""
