"""The waiting line wired: histories read, forecasts kept, questions answered."""
