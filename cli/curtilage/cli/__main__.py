"""``python -m curtilage.cli`` is ``curtilage``."""

import sys

from curtilage.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
