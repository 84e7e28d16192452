"""Azure confidential VMs: the HCL report that binds a vTPM to the processor's own.

Knows bytes and the verifiers of ``sev_snp``, ``tdx`` and ``tpm``, which do the judging.
Opens no file, no connection, and asks no clock.
"""
