"""Names found without a model: by their capitals, and by the words that introduce them.

Pure functions of a text, with no model, no policy and no way out. Runs only in the
detectors' process.
"""
