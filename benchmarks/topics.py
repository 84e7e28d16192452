"""Subjects to ask about."""

TOPICS = (
    "compound interest",
    "the water cycle",
    "photosynthesis",
    "supply and demand",
    "plate tectonics",
    "the immune system",
    "inflation",
    "binary search",
    "public key cryptography",
    "the greenhouse effect",
    "double-entry bookkeeping",
    "how vaccines work",
    "natural selection",
    "a mortgage",
    "object-oriented programming",
    "how a bill becomes a law",
    "machine translation",
    "the circulatory system",
    "index funds",
    "antibiotic resistance",
)
