"""Reports: figures, charts and HTML of a policy and its evaluation.

Values in, text out; reads no files except its own templates, and no queries.
"""
