"""The models that find names and topics: the embedded one and the organisation's own.

The only door to ONNX Runtime, tokenizers and transformers. Runs in the detectors'
process and downloads nothing.
"""
