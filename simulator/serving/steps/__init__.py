"""Costs of one step: price, iteration table, memory, power, speculation."""
