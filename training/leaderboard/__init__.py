"""The leaderboard: entries, stored evaluation runs, learning curves."""
