"""Claims: taken, renewed and given up."""
