"""What can stop a build; each message says what to do about it."""


class ImageError(Exception):
    """Root of this tool's errors."""


class MissingError(ImageError):
    """Something that the build needs is not on this machine."""


class MismatchError(ImageError):
    """An input is not the one that was pinned, or two builds differ."""


class FormatError(ImageError):
    """An input is not of the form that its name promises."""
