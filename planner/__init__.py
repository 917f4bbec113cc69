"""Planning, a folder or module for each question: search spaces, rules, search, and figures of merit.

`training` and `serving` are the large ones; `mixed` lays training on groups of different nodes; `diffusion`
lays out images and videos; `rl` divides devices between trainer and rollouts; `runs` and `run_search` rank
plans by their run of weeks. All may use `execution` (cores, Ray), `store` (results in SQLite) and `pareto`.
"""
