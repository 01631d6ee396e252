"""A graph as data: frozen, with every look-up that a superstep needs already made."""
