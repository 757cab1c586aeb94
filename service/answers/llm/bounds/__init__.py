"""Times, rates and intervals within what devices allow and in agreement with their parts."""
