"""Signed, staged rollouts of local models, for fleets of devices.

Nothing here is imported unless a policy has ``routing.rollout``. It connects to
nothing: manifests and models come as files.
"""
