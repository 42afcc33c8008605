"""`python -m moonferry` and the `moonferry` command of a wheel: both become the program in the package.

Must not know what the program does; it gets the words as they are.
"""

import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "moonferry")
    try:
        os.execv(program, ["moonferry", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"moonferry: this installation has no program ({program}: {error.strerror})")


if __name__ == "__main__":
    main()
