"""`python -m taxbench`."""

import sys

from taxbench.cli import main

if __name__ == "__main__":
    sys.exit(main())
