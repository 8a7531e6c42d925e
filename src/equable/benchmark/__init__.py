"""Train, score, report: the paper's tables and figures from one command."""
