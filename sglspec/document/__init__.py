"""Text becomes nodes with positions, nodes become the document model."""
