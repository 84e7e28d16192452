"""Programs in a world of the test's own, watched from outside.

``world`` is what they see of the files, ``network`` of the network; ``run`` starts
them all and says what they did; ``programs`` are the ones that only a test needs.
"""
