"""Targets do the work of a run: functions, HTTP requests, commands, messages, workflows, notes.

A target turns a launch into exactly one outcome and never raises.
"""
