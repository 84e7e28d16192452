"""AMD SEV-SNP: report layout, certificate chain, verification.

Knows AMD's formats and the roots that a policy names. Fetches no certificate and no
revocation list: they come with the evidence.
"""
