"""Rules for identifiers and secrets: a pattern, its check, and what confirms it.

Matching takes linear time only (RE2), since texts are hostile. The rules know no policy
and no model; they run only in the detectors' process.
"""
