"""From the outside world to a federation: where rows come from, who owns them, and how unlike the owners are."""
