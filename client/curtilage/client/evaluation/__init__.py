"""What the detectors and a policy achieve, measured on folders of data."""
