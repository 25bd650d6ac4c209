"""`python -m softnic`, the same as the program `softnic`."""

import sys

from softnic.commands import main

if __name__ == "__main__":
    sys.exit(main())
