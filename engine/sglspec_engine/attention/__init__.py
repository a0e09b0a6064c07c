"""Attention over leased keys and values."""
