"""What the step loop works on, and in which order."""
