"""One run of one graph, from its opening to its end."""
