"""The hold of a run on its thread: claim, renewal, and the line of its commits."""
