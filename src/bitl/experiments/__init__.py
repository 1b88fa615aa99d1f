"""Studies: each file makes one table or figure."""
