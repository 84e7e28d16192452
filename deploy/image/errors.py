"""Errors of the image builder; each message says what to do."""


class ImageError(Exception):
    """Base class of this tool's errors."""


class MissingError(ImageError):
    """Something that the build needs is not on this machine."""


class MismatchError(ImageError):
    """An input differs from the pinned one, or two builds differ."""


class FormatError(ImageError):
    """An input does not have the format that its name promises."""
