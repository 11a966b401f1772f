"""`python -m lowtide`: the command line, as experiments start it for their cases."""

from lowtide.cli import main

main()
