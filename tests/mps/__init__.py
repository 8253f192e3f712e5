"""Tests of leased/mps."""
