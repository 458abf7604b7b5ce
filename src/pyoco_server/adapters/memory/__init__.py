"""Everything in memory: complete, and held to the same contract as the rest."""
