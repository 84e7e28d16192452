"""Builds the container images of relay, enclave, client and emulator."""
