"""From many runs to a belief: rows, statistics, charts, one page. What comes in is rows and nothing else."""
