"""A model's memory needs, read from its file's header: no library, no weights."""

from pathlib import Path

from curtilage.client.system.files import read_start
from curtilage.inference.shape import MAX_HEAD_BYTES, ModelShape, parse_shape


def read_shape(path: Path) -> ModelShape | None:
    """Return the shape from the header of a model file, or None if it has none.

    A file of another format, or with unusual values, is not an error: it is detected
    when it is loaded. Until then, the values are just not shown.

    Raises:
        ConfigError: the file cannot be read.
    """
    return parse_shape(read_start(path, MAX_HEAD_BYTES))
