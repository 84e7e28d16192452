"""The subject of a text: stems, phrases and first-person markers of regulated topics.

Pure functions of a text, with no model, no policy and no way out. Runs only in the
detectors' process.
"""
