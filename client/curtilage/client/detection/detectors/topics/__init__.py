"""What a text is about: stems, phrases and first-person markers of regulated topics.

Pure functions of a text. Runs in the detectors' process.
"""
