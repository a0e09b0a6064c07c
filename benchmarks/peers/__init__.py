"""Other systems on the same token ids. Each is optional."""
