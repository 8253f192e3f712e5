"""The manual pages: one file each, whose page() makes it."""
