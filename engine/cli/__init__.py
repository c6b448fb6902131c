"""The command line: ``framepool``. Verbs in groups, each on the Python client; nothing here talks to the engine itself.

Exit codes: 0 done, 1 refused (the reason is on stderr), 2 wrong usage, 3 no engine reached, 130 interrupted.
"""


def main() -> None:
    """Entry point of the ``framepool`` command."""
    from framepool.engine.cli.app import app

    app(prog_name="framepool")
