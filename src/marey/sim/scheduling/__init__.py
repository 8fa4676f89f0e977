"""What is submitted and when it starts: demand, people, jobs, the scheduler pass."""
