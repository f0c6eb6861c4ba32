"""What every room stands on: how messages add, addressed randomness, linear algebra, tasks, methods, models, bytes."""
