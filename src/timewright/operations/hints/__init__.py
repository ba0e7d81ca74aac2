"""Hints to adaptive schedules, and the analyses of the planner behind them."""
