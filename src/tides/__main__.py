"""`python -m tides`: the command line, also where a launcher wants a module."""

from tides.cli.main import main

if __name__ == "__main__":
    main()
