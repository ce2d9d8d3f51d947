"""What operators do with cells and queues."""
