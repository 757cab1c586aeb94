"""`python -m forerun.service.cli`."""

from forerun.service.cli import main

main()
