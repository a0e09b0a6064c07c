"""`python -m sglspec`."""

import sys

from sglspec.cli import main

if __name__ == "__main__":
    sys.exit(main())
