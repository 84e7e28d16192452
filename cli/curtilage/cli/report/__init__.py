"""Reports for people: figures, charts and HTML of a policy and its evaluation.

Values in, text out; reads no file but templates of its own and knows no query.
"""
