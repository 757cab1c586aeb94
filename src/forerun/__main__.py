"""`python -m forerun`."""

from forerun.service.cli import main

main()
