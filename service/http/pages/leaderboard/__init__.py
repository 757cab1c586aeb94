"""The leaderboard as pages of the service and as one file."""
