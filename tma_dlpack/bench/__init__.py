"""What a user can measure here, against peers in the same run."""
