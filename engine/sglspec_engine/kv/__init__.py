"""Keys and values of contexts: who owns them and how branches share them."""
