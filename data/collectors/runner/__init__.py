"""The machinery of all collectors: trials, budget, journal, stopwatch, worker processes."""
