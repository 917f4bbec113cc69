"""Replicas under one workload: arrivals, routing, transfers, failures, scaling."""
