"""Builds the enclave's measured virtual machine image, bit for bit."""
