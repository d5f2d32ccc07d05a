"""What hosts differ in from what serving needs, concern by concern, and what mends it."""
