"""Running the tasks of a superstep."""
