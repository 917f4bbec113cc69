"""Serving: requests on replicas, from arrival to last token.

``workload`` says which requests come, ``deployment`` which replicas answer them under which policies,
``costs`` what a step of a replica takes and how much KV it holds. ``run`` puts them on one clock.
"""
