"""`python -m gevo`, the same as `gevo`."""

from gevo.cli import main

if __name__ == "__main__":
    main()
