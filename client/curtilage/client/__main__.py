"""``python -m curtilage.client`` is ``curtilage``."""

import sys

from curtilage.client.cli import main

if __name__ == "__main__":
    sys.exit(main())
