"""The part of a conversation that may be sent if another turn had to be kept local.

Pure: text in, text out. The results are new queries; none is sent before it was
inspected and decided by itself.
"""
