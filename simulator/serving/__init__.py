"""Serving: requests on replicas, from arrival to last token.

``workload`` defines the requests, ``deployment`` the replicas and their policies, ``costs`` the step times
and KV capacity of a replica. ``run`` simulates them on one clock.
"""
