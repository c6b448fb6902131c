"""``python -m framepool.engine.cli``: the command line where no script is on the path."""

from framepool.engine.cli import main

main()
