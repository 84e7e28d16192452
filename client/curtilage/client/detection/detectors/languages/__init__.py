"""The language of each part of a text, which must be proven.

Words of the shipped vocabularies decide if they suffice; otherwise the identifier
decides, which only this package imports. A part in a language that is provably not
covered keeps the query local. This package knows neither the policy nor topics, and
does not guess: anything else is undetermined.
"""
