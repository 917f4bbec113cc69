"""The replay of open loops as kernels over columns: one source that runs as plain Python over lists, or
compiled by numba over arrays, with the same bytes.

A kernel takes columns and numbers only, calls kernels only, and keeps to what numba compiles: one type for
a name, no objects, real numbers summed in a stated order. The loops are those of
`simulator.serving.replica`, for replicas of one rank with paged blocks and chunked prompts; what they leave
out runs there.
"""
