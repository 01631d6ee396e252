"""The checks, a file for each capability or part of one."""
