"""What earlier turns mean for a query: which ones are kept local or may be cut.

It knows turns and common words; it must not know any network connection.
"""
