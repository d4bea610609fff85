"""The command line."""


def main() -> None:
    """Run a command. Report a user's mistake or an unreachable broker in one line, never as a traceback."""
    import sys

    from nuncius.cli.arguments import hide_passwords

    hide_passwords()
    from nuncius.cli import errors
    from nuncius.cli.app import build

    try:
        build(*sys.argv[1:2])(prog_name="nuncius")
    except KeyboardInterrupt:
        sys.exit(errors.INTERRUPTED)
    except Exception as error:
        sys.exit(errors.report(error))
