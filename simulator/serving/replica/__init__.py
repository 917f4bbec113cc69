"""One replica: schedulers, KV blocks, step loops, statistics of steps."""
