"""Retraining on measurements of users: a split that stays, and comparisons with the champion."""
