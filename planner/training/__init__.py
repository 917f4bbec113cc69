"""Search of training plans: which layouts and levers fit, ranked by time, cost or energy.

`search` is the way in. It takes candidates (`space`, `constraints`, `candidates`, `rules`), gives each
structure its levers (`structures`, `levers`, `lever_space`, `lever_times`, `footprints`) and ranks plans.
`shortlist`, `confidence` and `measured_runs` choose and qualify the rows of the answer; `refine` times them
on the event engine; `blame` and `shortfall` explain an empty answer; `sizing` asks for each number of GPUs.
"""
