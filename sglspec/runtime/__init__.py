"""The interpreter: a checked program becomes steps on sessions."""
