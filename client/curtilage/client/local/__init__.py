"""The local model, which answers questions on this device, and shortens long texts.

It must not import any network code: nothing of ``remote``, nothing of the wire. The
model imports nothing of ``rollout``; ``registry`` finds its file.
"""
