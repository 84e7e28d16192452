"""Names found without a model: by their capitals, and by the words that introduce them.

Pure functions of a text: no model, no policy, no way out. Runs in the detectors'
process alone.
"""
