"""Who carries a round, and what comes of a fit."""
