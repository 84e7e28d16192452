"""The models that find names and topics: the embedded one and an organisation's own.

The only package that imports ONNX Runtime, tokenizers and transformers. It runs in the
detectors' process and downloads nothing.
"""
