"""What a run did and what it rests on, as one page that needs nothing else."""
