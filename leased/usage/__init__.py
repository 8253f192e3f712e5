"""What tenants have had of each device: the figures, their clocks, and steps."""
