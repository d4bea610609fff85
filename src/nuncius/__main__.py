"""`python -m nuncius` is the command line."""

from nuncius.cli import main

if __name__ == "__main__":
    main()
