"""What a text is about: stems, phrases and first-person markers of regulated topics.

Pure functions of a text: no model, no policy, no way out. Runs in the detectors'
process alone.
"""
