"""Budgets and providers: how much may be spent per period, and services that are closed for a while."""
