"""Runs and servers that users measured: logs of trainers, files of benchmark clients, a live server."""
