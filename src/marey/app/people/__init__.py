"""Jobs, and the people, projects and machines behind them: tables and pages over the store."""
