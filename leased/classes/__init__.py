"""Online jobs keep their latency, offline ones have the rest."""
