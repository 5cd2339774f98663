"""Schedules: typed, frozen choices of how one kernel runs; a module for each back end."""
