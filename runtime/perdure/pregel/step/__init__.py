"""One superstep as values: tasks in, outcomes out, a changed state. No I/O, no event loop."""
