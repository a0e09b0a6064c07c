"""Model files and the model itself."""
