"""Collectors: measurements on this machine, for rows that no public dataset has.

Measuring processes (`python -m` of a module in this package) import the package too, and start
faster the less it imports.
"""
