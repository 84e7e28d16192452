"""Entry point of ``python -m curtilage.cli``, the same as ``curtilage``."""

import sys

from curtilage.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
