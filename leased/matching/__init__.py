"""Which offline job runs beside which online job: pure. Profiles of each alone go in, pairs come
out (docs/matching.md)."""
