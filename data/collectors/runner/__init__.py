"""What every collector runs on: trials, a budget, a journal, a stopwatch, worker processes."""
