"""Finds the engines' processes that this process has started."""

import psutil

from curtilage.inference.process.starting import MODULE


def engines() -> list[int]:
    """Return the ids of this process's engines that still run."""
    return [
        each.pid
        for each in psutil.Process().children()
        if each.status() != psutil.STATUS_ZOMBIE and MODULE in " ".join(each.cmdline())
    ]
