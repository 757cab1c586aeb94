"""The leaderboard: entries, stored runs, curves."""
