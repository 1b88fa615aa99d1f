"""Your own table: from a file to estimates, posteriors, answers and a report, kept in one folder."""
