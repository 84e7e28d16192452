"""Intel TDX: quote layout, collateral, verification, and Intel's own library.

Both must accept. Knows Intel's formats; collateral comes with the evidence and is never
fetched here.
"""
