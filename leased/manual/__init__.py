"""Manual pages and completion, made at build time of what the programs themselves are made of."""
