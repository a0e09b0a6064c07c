"""A plan as text, as graphs for other tools, and as a picture."""
